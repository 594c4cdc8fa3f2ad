/*
 * Get a row of MySQL through the cache, twice: the first get loads it, unless
 * another process has done so in the last five minutes; the second finds it in
 * Redis.
 *
 *     cc get.c -o get $(pkg-config --cflags --libs snowshed-mysql)
 *     ./get [REDIS-URI [MYSQL-URI]]
 */
#include <snowshed/mysql.h>
#include <snowshed/snowshed.h>
#include <stdio.h>

static enum shed_code print_item(struct shed_cache *items, const char *id,
                                 struct shed_error *err)
{
    struct shed_value *value = NULL;

    if (shed_get(items, shed_str(id), NULL, &value, err))
        return err->code;
    if (value->kind == SHED_KIND_ABSENT)
        printf("there is no item %s\n", id);
    else /* the payload is not terminated, so its size is passed along */
        printf("item %s: %.*s, from %s\n", id, (int)value->size,
               (const char *)value->data,
               value->origin == SHED_ORIGIN_REDIS ? "Redis" : "MySQL");
    shed_value_unref(value);
    return SHED_OK;
}

int main(int argc, char **argv)
{
    const char *redis = argc > 1 ? argv[1] : "redis://localhost";
    const char *mysql =
        argc > 2 ? argv[2] : "mysql://shop:secret@localhost/shop";
    struct shed_client_options client_options = SHED_CLIENT_OPTIONS_INIT;
    struct shed_client *client = NULL;
    struct shed_source *source = NULL;
    struct shed_cache *items = NULL;
    struct shed_error err = {SHED_OK, ""};

    client_options.on_log = shed_log_stderr; /* says if there is no Redis */
    if (shed_client_open(redis, &client_options, &client, &err) ||
        shed_mysql_source_open(mysql,
                               "SELECT id, name FROM item WHERE id IN (?)",
                               NULL, &source, &err) ||
        shed_cache_open(client, "item", source, NULL, &items, &err) ||
        print_item(items, "42", &err) || print_item(items, "42", &err))
        fprintf(stderr, "%s: %s\n", shed_code_name(err.code), err.reason);
    shed_cache_close(items); /* NULL is allowed */
    shed_source_close(source);
    shed_client_close(client);
    return err.code == SHED_OK ? 0 : 1;
}
