/*
 * Sell a piece under a lock, with a guard in the transaction that refuses it if
 * the lock was lost unnoticed. It needs the table of sql/fence.sql.
 *
 *     cc lock_with_fence.c -o lock_with_fence \
 *         $(pkg-config --cflags --libs snowshed-mysql)
 *     ./lock_with_fence [REDIS-URI [MYSQL-URI]]
 */
#include <mysql.h>
#include <snowshed/mysql.h>
#include <stdio.h>

static enum shed_code sell(struct shed_lock *lock, MYSQL *mysql,
                           struct shed_error *err)
{
    struct shed_fence fence;
    struct shed_error late;
    uint64_t newest = 0;
    if (shed_lock_acquire(lock, 10000, err)) /* waits for at most 10 s */
        return err->code;
    if (shed_lock_fence(lock, &fence, err) || mysql_query(mysql, "BEGIN") ||
        shed_mysql_fence(mysql, shed_str("stock"), &fence, &newest, err) ||
        /* stock is UNSIGNED, so the server refuses to sell more than there
         * is */
        mysql_query(mysql, "UPDATE item SET stock = stock - 1 WHERE id = 42") ||
        mysql_query(mysql,
                    "COMMIT")) { /* without an answer it may have succeeded */
        if (err->code == SHED_OK) {
            err->code = SHED_ESOURCE;
            snprintf(err->reason, SHED_REASON_BYTES, "%s", mysql_error(mysql));
        }
        mysql_query(mysql, "ROLLBACK");
    }
    if (shed_lock_release(lock, &late)) /* what was committed is valid */
        fprintf(stderr, "release: %s\n", late.reason);
    /* refused: make the numbers of later holders exceed newest */
    if (err->code == SHED_ELOST && shed_lock_advance(lock, newest, &late))
        fprintf(stderr, "advance: %s\n", late.reason);
    return err->code;
}

int main(int argc, char **argv)
{
    const char *redis = argc > 1 ? argv[1] : "redis://localhost";
    const char *uri = argc > 2 ? argv[2] : "mysql://shop:secret@localhost/shop";
    MYSQL *mysql = mysql_init(NULL);
    struct shed_client_options options = SHED_CLIENT_OPTIONS_INIT;
    struct shed_client *client = NULL;
    struct shed_lock *lock = NULL;
    struct shed_error err = {SHED_OK, ""};

    options.on_log = shed_log_stderr; /* says if there is no Redis */
    if (shed_client_open(redis, &options, &client, &err) ||
        shed_lock_open(client, shed_str("stock"), NULL, &lock, &err) ||
        shed_mysql_connect(mysql, uri, NULL, 0, &err) ||
        sell(lock, mysql, &err))
        fprintf(stderr, "%s: %s\n", shed_code_name(err.code), err.reason);
    else
        puts("sold");
    shed_lock_close(lock);
    shed_client_close(client);
    mysql_close(mysql); /* NULL is allowed */
    return err.code == SHED_OK ? 0 : 1;
}
