/*
 * Get a row of MySQL through the cache in a program that libevent drives: its
 * loop watches the queue, and the answer comes on the loop's own thread.
 *
 *     cc get_libevent.c -o get_libevent \
 *         $(pkg-config --cflags --libs snowshed-mysql libevent)
 *     ./get_libevent [REDIS-URI [MYSQL-URI]]
 */
#include <event2/event.h>
#include <snowshed/async.h>
#include <snowshed/mysql.h>
#include <stdio.h>

static struct event_base *base;

static void print_item(void *user, enum shed_code code,
                       struct shed_value *value,
                       const struct shed_error *reason)
{
    if (code != SHED_OK)
        fprintf(stderr, "%s: %s\n", shed_code_name(code), reason->reason);
    else if (value->kind == SHED_KIND_ABSENT)
        puts("there is no item 42");
    else
        printf("item 42: %.*s\n", (int)value->size, (const char *)value->data);
    shed_value_unref(value); /* NULL is allowed */
    *(enum shed_code *)user = code;
    event_base_loopbreak(base);
}

static void collect(evutil_socket_t fd, short events, void *queue)
{
    (void)fd, (void)events;
    shed_queue_collect(queue, 100);
}

int main(int argc, char **argv)
{
    const char *redis = argc > 1 ? argv[1] : "redis://localhost";
    const char *mysql =
        argc > 2 ? argv[2] : "mysql://shop:secret@localhost/shop";
    struct shed_client_options options = SHED_CLIENT_OPTIONS_INIT;
    struct shed_client *client = NULL;
    struct shed_source *source = NULL;
    struct shed_cache *items = NULL;
    struct shed_queue *queue = NULL;
    struct shed_error err = {SHED_OK, ""};
    enum shed_code code = SHED_EINVAL; /* until there is an answer */
    struct shed_then then = {print_item, &code, NULL};
    struct event *watcher;

    options.on_log = shed_log_stderr; /* says if there is no Redis */
    base = event_base_new();
    if (shed_client_open(redis, &options, &client, &err) ||
        shed_mysql_source_open(mysql,
                               "SELECT id, name FROM item WHERE id IN (?)",
                               NULL, &source, &err) ||
        shed_cache_open(client, "item", source, NULL, &items, &err) ||
        shed_queue_open(&queue, &err)) {
        fprintf(stderr, "%s: %s\n", shed_code_name(err.code), err.reason);
        return 1; /* the process ends, and with it what is open */
    }
    watcher = event_new(base, shed_queue_fd(queue), EV_READ | EV_PERSIST,
                        collect, queue);
    event_add(watcher, NULL);
    then.queue = queue;
    if (shed_get_async(items, shed_str("42"), NULL, &then, NULL, NULL, &err))
        fprintf(stderr, "%s: %s\n", shed_code_name(err.code), err.reason);
    else
        event_base_dispatch(base);
    event_free(watcher);
    event_base_free(base);
    shed_cache_close(items);
    shed_queue_close(queue);
    shed_source_close(source);
    shed_client_close(client);
    return code == SHED_OK ? 0 : 1;
}
