/*
 * A price service: the settings of production in one place, with their reasons;
 * then gets, two kinds of write, and metrics. It needs sql/product.sql.
 *
 *     cc service.c -o service $(pkg-config --cflags --libs snowshed-mysql)
 *     ./service [REDIS-URI [MYSQL-URI]]
 */
#include <mysql.h>
#include <snowshed/mysql.h>
#include <snowshed/stats.h>
#include <stdio.h>
#include <stdlib.h>

/* Payload, version and tags of a row: a put stores what a load would. */
#define COLUMNS                                                                \
    "JSON_OBJECT('name', name, 'cents', cents), version,"                      \
    " CONCAT('shop-', shop_id) AS tags FROM product "
#define RAISE "UPDATE product SET cents = cents + 1, version = version + 1 "

static enum shed_code open_prices(const char *redis, const char *mysql,
                                  struct shed_cache **out,
                                  struct shed_error *err)
{
    struct shed_client_options c = SHED_CLIENT_OPTIONS_INIT;
    struct shed_source_options s = SHED_SOURCE_OPTIONS_INIT;
    struct shed_mysql_options m = SHED_MYSQL_OPTIONS_INIT;
    struct shed_cache_options o = SHED_CACHE_OPTIONS_SERVE_STALE;
    struct shed_client *client = NULL;
    struct shed_source *source = NULL;
    int failed;

    c.on_log = shed_log_stderr; /* what an operator wants to know */
    s.max_loads = 8;            /* times the processes: what MySQL can bear */
    s.load_timeout_ms = 2000;   /* MySQL ends a query that takes longer */
    m.source = &s;
    o.ttl_ms = 300000;         /* how old a row is without invalidation */
    o.local_bytes = 128 << 20; /* of rows for when Redis is away */
    failed =
        shed_client_open(redis, &c, &client, err) ||
        shed_mysql_source_open(mysql, "SELECT id, " COLUMNS "WHERE id IN (?)",
                               &m, &source, err) ||
        shed_cache_open(client, "price", source, &o, out, err);
    shed_source_close(source); /* the cache keeps both alive */
    shed_client_close(client);
    return failed ? err->code : SHED_OK;
}

static enum shed_code print_price(struct shed_cache *prices,
                                  const struct shed_get_options *options,
                                  struct shed_error *err)
{
    struct shed_value *value = NULL;
    if (shed_get(prices, shed_str("1"), options, &value, err))
        return err->code;
    printf("%s %.*s, from: %s\n", shed_kind_name(value->kind), (int)value->size,
           (const char *)value->data, shed_origin_name(value->origin));
    shed_value_unref(value);
    return SHED_OK;
}

static void roll_back(MYSQL *mysql, struct shed_error *err)
{
    snprintf(err->reason, sizeof(err->reason), "%s", mysql_error(mysql));
    err->code = SHED_ESOURCE;
    mysql_query(mysql, "ROLLBACK");
}

/* Invalidates if the put fails, or the outcome of the COMMIT is unknown. */
static enum shed_code raise_price(struct shed_cache *prices, MYSQL *mysql,
                                  struct shed_error *err)
{
    struct shed_put_options options = SHED_PUT_OPTIONS_INIT;
    MYSQL_RES *rows = NULL;
    MYSQL_ROW row = NULL;
    struct shed_bytes tag;
    uint64_t version;
    if (mysql_query(mysql, "BEGIN") ||
        mysql_query(mysql, RAISE "WHERE id = 1") ||
        mysql_query(mysql, "SELECT " COLUMNS "WHERE id = 1") ||
        (rows = mysql_store_result(mysql)) == NULL ||
        mysql_query(mysql, "COMMIT"))
        roll_back(mysql, err);
    else if ((row = mysql_fetch_row(rows)) != NULL) {
        version = strtoull(row[1], NULL, 10);
        tag = shed_str(row[2]);
        options.version = &version; /* of two puts the later row stays */
        options.tags = &tag;
        options.tags_count = 1;
    }
    if ((row == NULL ||
         shed_put(prices, shed_str("1"), shed_str(row[0]), &options, NULL)) &&
        shed_invalidate(prices, shed_str("1"), SHED_TIMEOUT_DEFAULT, NULL))
        fputs("others may read the old price for a while\n", stderr);
    mysql_free_result(rows); /* NULL is allowed */
    return err->code;
}

static enum shed_code raise_shop(struct shed_cache *prices, MYSQL *mysql,
                                 struct shed_error *err)
{
    const struct shed_bytes tag = shed_str("shop-1");
    if (mysql_query(mysql, RAISE "WHERE shop_id = 1"))
        roll_back(mysql, err);
    if (shed_invalidate_tags(prices, &tag, 1, SHED_TIMEOUT_DEFAULT, NULL))
        fputs("others may read the old prices for a while\n", stderr);
    return err->code;
}

int main(int argc, char **argv)
{
    const char *redis = argc > 1 ? argv[1] : "redis://localhost";
    const char *uri = argc > 2 ? argv[2] : "mysql://shop:secret@localhost/shop";
    struct shed_get_options sale = SHED_GET_OPTIONS_INIT;
    static char out[1 << 16]; /* for the metrics of a cache */
    MYSQL *mysql = mysql_init(NULL);
    struct shed_cache *prices = NULL;
    struct shed_error err = {SHED_OK, ""};
    sale.allow_stale = SHED_STALE_NEVER; /* a page may show an old price */
    if (open_prices(redis, uri, &prices, &err) ||
        shed_mysql_connect(mysql, uri, NULL, 0, &err) ||
        print_price(prices, NULL, &err) || raise_price(prices, mysql, &err) ||
        raise_shop(prices, mysql, &err) || print_price(prices, &sale, &err))
        fprintf(stderr, "%s: %s\n", shed_code_name(err.code), err.reason);
    else if (shed_stats_prometheus(&prices, 1, NULL, 0, out, sizeof(out)) <
             sizeof(out))
        fputs(out, stdout);
    shed_cache_close(prices); /* NULL is allowed */
    mysql_close(mysql);
    return err.code == SHED_OK ? 0 : 1;
}
