/*
 * A program outside the tree, as a user would write it: it gets a row through
 * a cache from a function of its own or, built with snowshed-mysql, from the
 * database. It is valid C and C++.
 *
 * usage: program REDIS-URI [MYSQL-URI]
 */
#include <stdio.h>
#include <string.h>

#include <snowshed/source.h>
#include <snowshed/stats.h>
#ifdef WITH_MYSQL
#include <snowshed/mysql.h>
#endif

static const char key[] = "package";
static const char row[] = "a row";

static void load_row(void *user, void *thread, struct shed_bytes asked,
                     struct shed_answer *answer)
{
    (void)user;
    (void)thread;
    (void)asked;
    answer->kind = SHED_ANSWER_ROW;
    answer->row = shed_str(row);
}

/* Invalidate and get the key, so that it is loaded; compare the row. */
static int get_row(struct shed_client *client, struct shed_source *source,
                   struct shed_error *err)
{
    struct shed_cache *cache;
    struct shed_value *value;
    int rc = shed_cache_open(client, "package_test", source, NULL, &cache, err);

    if (rc != SHED_OK)
        return rc;
    rc = shed_invalidate(cache, shed_str(key), 0, err);
    if (rc == SHED_OK)
        rc = shed_get(cache, shed_str(key), NULL, &value, err);
    if (rc == SHED_OK) {
        if (value->kind != SHED_KIND_ROW || value->size != strlen(row) ||
            memcmp(value->data, row, strlen(row)) != 0) {
            (void)snprintf(err->reason, sizeof(err->reason), "another row");
            rc = SHED_ESOURCE;
        }
        shed_value_unref(value);
    }
    shed_cache_close(cache);
    return rc;
}

static int open_source(int argc, char **argv, struct shed_source **out,
                       struct shed_error *err)
{
#ifdef WITH_MYSQL
    if (argc > 2)
        return shed_mysql_source_open(
            argv[2],
            "SELECT 'package', 'a row' FROM dual WHERE 'package' IN (?)", NULL,
            out, err);
#endif
    (void)argc;
    (void)argv;
    return shed_source_open(load_row, NULL, NULL, out, err);
}

int main(int argc, char **argv)
{
    struct shed_client *client = NULL;
    struct shed_source *source = NULL;
    struct shed_error err = {SHED_OK, ""};
    int rc;

    if (argc < 2)
        return 2;
    rc = shed_client_open(argv[1], NULL, &client, &err);
    if (rc == SHED_OK)
        rc = open_source(argc, argv, &source, &err);
    if (rc == SHED_OK)
        rc = get_row(client, source, &err);
    if (rc != SHED_OK)
        (void)fprintf(stderr, "%s: %s\n", shed_code_name(err.code), err.reason);
    shed_source_close(source);
    shed_client_close(client);
    return rc == SHED_OK ? 0 : 1;
}
