/*
 * Change a row in a transaction, COMMIT, then invalidate its entry: from then
 * on every process gets the new row.
 *
 *     cc invalidate.c -o invalidate \
 *         $(pkg-config --cflags --libs snowshed-mysql)
 *     ./invalidate [REDIS-URI [MYSQL-URI]]
 */
#include <mysql.h>
#include <snowshed/mysql.h>
#include <stdio.h>

static enum shed_code raise_price(struct shed_cache *prices, MYSQL *mysql,
                                  struct shed_error *err)
{
    if (mysql_query(mysql, "BEGIN") ||
        mysql_query(mysql, "UPDATE item SET price_cents = price_cents + 1"
                           " WHERE id = 42") ||
        mysql_query(mysql, "COMMIT")) {
        snprintf(err->reason, sizeof(err->reason), "%s", mysql_error(mysql));
        err->code = SHED_ESOURCE;
        mysql_query(mysql, "ROLLBACK");
    }
    /* after a failure, too, because a COMMIT without an answer may have
     * succeeded */
    if (shed_invalidate(prices, shed_str("42"), SHED_TIMEOUT_DEFAULT, err))
        fputs("the old price may be read until its ttl ends\n", stderr);
    return err->code;
}

int main(int argc, char **argv)
{
    const char *redis = argc > 1 ? argv[1] : "redis://localhost";
    const char *uri = argc > 2 ? argv[2] : "mysql://shop:secret@localhost/shop";
    const char *query = "SELECT id, price_cents FROM item WHERE id IN (?)";
    MYSQL *mysql = mysql_init(NULL);
    struct shed_client_options client_options = SHED_CLIENT_OPTIONS_INIT;
    struct shed_client *client = NULL;
    struct shed_source *source = NULL;
    struct shed_cache *prices = NULL;
    struct shed_value *price = NULL;
    struct shed_error err = {SHED_OK, ""};

    client_options.on_log = shed_log_stderr; /* says if there is no Redis */
    if (shed_client_open(redis, &client_options, &client, &err) ||
        shed_mysql_source_open(uri, query, NULL, &source, &err) ||
        shed_cache_open(client, "price", source, NULL, &prices, &err) ||
        shed_mysql_connect(mysql, uri, NULL, 0, &err) ||
        raise_price(prices, mysql, &err) ||
        shed_get(prices, shed_str("42"), NULL, &price, &err))
        fprintf(stderr, "%s: %s\n", shed_code_name(err.code), err.reason);
    else
        printf("item 42 costs %.*s cents now\n", (int)price->size,
               (const char *)price->data);
    shed_value_unref(price);
    shed_cache_close(prices);
    shed_source_close(source);
    shed_client_close(client);
    mysql_close(mysql); /* NULL is allowed */
    return err.code == SHED_OK ? 0 : 1;
}
