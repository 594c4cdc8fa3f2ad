/*
 * Get several rows of MySQL through the cache at the same time, in a program
 * with a loop of its own: epoll watches the queue beside everything else, and
 * each answer comes on the loop's thread.
 *
 *     cc get_epoll.c -o get_epoll $(pkg-config --cflags --libs snowshed-mysql)
 *     ./get_epoll [REDIS-URI [MYSQL-URI]]
 */
#include <snowshed/async.h>
#include <snowshed/mysql.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

#define ITEMS 4

static struct request {
    const char *id;
    char text[100]; /* the answer */
} requests[ITEMS] = {{"1", ""}, {"2", ""}, {"3", ""}, {"1000000", ""}};

static int under_way, status;

static void answer(void *user, enum shed_code code, struct shed_value *value,
                   const struct shed_error *reason)
{
    struct request *r = user;

    if (code != SHED_OK) {
        fprintf(stderr, "%s: %s\n", shed_code_name(code), reason->reason);
        status = 1;
    } else if (value->kind == SHED_KIND_ABSENT) {
        snprintf(r->text, sizeof(r->text), "does not exist");
    } else {
        snprintf(r->text, sizeof(r->text), "%.*s", (int)value->size,
                 (const char *)value->data);
    }
    shed_value_unref(value); /* NULL is allowed */
    under_way--;
}

static void run_loop(struct shed_queue *queue)
{
    struct epoll_event event = {.events = EPOLLIN};
    int loop = epoll_create1(EPOLL_CLOEXEC);

    epoll_ctl(loop, EPOLL_CTL_ADD, shed_queue_fd(queue), &event);
    while (under_way > 0 && epoll_wait(loop, &event, 1, -1) >= 0)
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

    options.on_log = shed_log_stderr; /* says if there is no Redis */
    if (shed_client_open(redis, &options, &client, &err) ||
        shed_mysql_source_open(mysql,
                               "SELECT id, name FROM item WHERE id IN (?)",
                               NULL, &source, &err) ||
        shed_cache_open(client, "item", source, NULL, &items, &err) ||
        shed_queue_open(&queue, &err)) {
        fprintf(stderr, "%s: %s\n", shed_code_name(err.code), err.reason);
        return 1; /* the process ends, and with it what is open */
    }
    for (int i = 0; i < ITEMS; i++) {
        struct shed_then then = {answer, &requests[i], queue};
        if (shed_get_async(items, shed_str(requests[i].id), NULL, &then, NULL,
                           NULL, &err) == SHED_OK)
            under_way++;
        else
            fprintf(stderr, "%s: %s\n", shed_code_name(err.code), err.reason);
    }
    run_loop(queue);
    for (int i = 0; i < ITEMS && status == 0; i++)
        printf("item %s: %s\n", requests[i].id, requests[i].text);
    shed_cache_close(items);
    shed_queue_close(queue);
    shed_source_close(source);
    shed_client_close(client);
    return status;
}
