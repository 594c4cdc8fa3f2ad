/*
 * Sell a piece of stock under a lock, with a guard in the transaction: if this
 * process has lost the lock without noticing, the guard refuses the sale. It
 * needs the table of sql/fence.sql.
 *
 *     cc lock_with_fence.c -o lock_with_fence \
 *         $(pkg-config --cflags --libs snowshed-mysql libmariadb)
 *     ./lock_with_fence [REDIS-URI [MYSQL-URI]]
 */
#include <mysql.h> /* of libmariadb, or of mysqlclient */
#include <snowshed/mysql.h>
#include <stdio.h>

static enum shed_code run(MYSQL *mysql, const char *sql, struct shed_error *err)
{
    if (mysql_query(mysql, sql) == 0)
        return SHED_OK;
    snprintf(err->reason, sizeof(err->reason), "%s", mysql_error(mysql));
    return err->code = SHED_ESOURCE; /* as the library reports failures */
}

static enum shed_code sell(struct shed_lock *lock, MYSQL *mysql,
                           struct shed_error *err)
{
    /* stock is UNSIGNED: the server refuses to sell what is not there */
    const char *take = "UPDATE item SET stock = stock - 1 WHERE id = 42";
    struct shed_fence fence;
    struct shed_error late; /* too late to change what became of the sale */
    uint64_t newest = 0;

    if (shed_lock_acquire(lock, 10000, err)) /* waits 10 s at most */
        return err->code;
    if (shed_lock_fence(lock, &fence, err) || run(mysql, "BEGIN", err) ||
        shed_mysql_fence(mysql, shed_str("stock"), &fence, &newest, err) ||
        run(mysql, take, err) || run(mysql, "COMMIT", err))
        mysql_query(mysql, "ROLLBACK");
    /* What is committed counts, even if the lock was lost after that. (A COMMIT
     * without an answer may have been done: use an order id, and check.) */
    if (shed_lock_release(lock, &late))
        fprintf(stderr, "release: %s\n", late.reason);
    /* Refused: the numbers of later holders have to be above newest. */
    if (err->code == SHED_ELOST && shed_lock_advance(lock, newest, &late))
        fprintf(stderr, "advance: %s\n", late.reason);
    return err->code;
}

int main(int argc, char **argv)
{
    const char *redis = argc > 1 ? argv[1] : "redis://localhost";
    const char *uri = argc > 2 ? argv[2] : "mysql://shop:secret@localhost/shop";
    MYSQL *mysql = mysql_init(NULL);
    struct shed_client *client = NULL;
    struct shed_lock *lock = NULL;
    struct shed_error err = {SHED_OK, ""};

    if (shed_client_open(redis, NULL, &client, &err) ||
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
