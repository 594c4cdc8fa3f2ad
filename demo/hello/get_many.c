/*
 * Get several rows of MySQL in one call: one pipeline to Redis, and one query
 * for all that Redis does not have. One of the ids does not exist.
 *
 *     cc get_many.c -o get_many $(pkg-config --cflags --libs snowshed-mysql)
 *     ./get_many [REDIS-URI [MYSQL-URI]]
 */
#include <snowshed/mysql.h>
#include <snowshed/snowshed.h>
#include <stdio.h>

#define COUNT 4

static void print_items(const struct shed_item *items)
{
    for (int i = 0; i < COUNT; i++) {
        const struct shed_value *value = items[i].value;
        printf("item %.*s: ", (int)items[i].key.size,
               (const char *)items[i].key.data);
        if (value->kind == SHED_KIND_ABSENT)
            puts("does not exist");
        else
            printf("%.*s\n", (int)value->size, (const char *)value->data);
    }
}

int main(int argc, char **argv)
{
    const char *redis = argc > 1 ? argv[1] : "redis://localhost";
    const char *mysql =
        argc > 2 ? argv[2] : "mysql://shop:secret@localhost/shop";
    const char *ids[COUNT] = {"1", "2", "3", "1000000"};
    struct shed_item items[COUNT] = {0};
    struct shed_client_options client_options = SHED_CLIENT_OPTIONS_INIT;
    struct shed_client *client = NULL;
    struct shed_source *source = NULL;
    struct shed_cache *cache = NULL;
    struct shed_error err = {SHED_OK, ""};

    for (int i = 0; i < COUNT; i++)
        items[i].key = shed_str(ids[i]);
    client_options.on_log = shed_log_stderr; /* says if there is no Redis */
    if (shed_client_open(redis, &client_options, &client, &err) ||
        shed_mysql_source_open(mysql,
                               "SELECT id, name FROM item WHERE id IN (?)",
                               NULL, &source, &err) ||
        shed_cache_open(client, "item", source, NULL, &cache, &err) ||
        /* when this fails, each item has its code, and some may have values */
        shed_get_many(cache, items, COUNT, NULL, &err))
        fprintf(stderr, "%s: %s\n", shed_code_name(err.code), err.reason);
    else
        print_items(items);
    for (int i = 0; i < COUNT; i++)
        shed_value_unref(items[i].value);
    shed_cache_close(cache);
    shed_source_close(source);
    shed_client_close(client);
    return err.code == SHED_OK ? 0 : 1;
}
