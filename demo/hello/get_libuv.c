/*
 * Get a row of MySQL through the cache in a program that libuv drives: its loop
 * watches the queue, and the answer comes on the loop's own thread.
 *
 *     cc get_libuv.c -o get_libuv \
 *         $(pkg-config --cflags --libs snowshed-mysql libuv)
 *     ./get_libuv [REDIS-URI [MYSQL-URI]]
 */
#include <snowshed/async.h>
#include <snowshed/mysql.h>
#include <stdio.h>
#include <uv.h>

static uv_poll_t watcher;

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
    uv_poll_stop(&watcher); /* the loop ends: nothing is left to watch */
}

static void collect(uv_poll_t *poll, int status, int events)
{
    (void)status, (void)events;
    shed_queue_collect(poll->data, 100);
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

    options.on_log = shed_log_stderr; /* says if there is no Redis */
    if (shed_client_open(redis, &options, &client, &err) ||
        shed_mysql_source_open(mysql,
                               "SELECT id, name FROM item WHERE id IN (?)",
                               NULL, &source, &err) ||
        shed_cache_open(client, "item", source, NULL, &items, &err) ||
        shed_queue_open(&queue, &err))
        goto out;
    uv_poll_init(uv_default_loop(), &watcher, shed_queue_fd(queue));
    watcher.data = then.queue = queue;
    uv_poll_start(&watcher, UV_READABLE, collect);
    if (shed_get_async(items, shed_str("42"), NULL, &then, NULL, NULL, &err))
        goto out;
    uv_run(uv_default_loop(), UV_RUN_DEFAULT);
out:
    if (err.code != SHED_OK)
        fprintf(stderr, "%s: %s\n", shed_code_name(err.code), err.reason);
    shed_cache_close(items); /* NULL is allowed */
    shed_queue_close(queue);
    shed_source_close(source);
    shed_client_close(client);
    return code == SHED_OK ? 0 : 1;
}
