/*
 * The fencing guard. Its one invariant: the row of a resource only ever moves
 * forward, and a caller that gets SHED_OK has it locked, with its own token in
 * it, until its transaction ends. So the accepted transactions of a resource
 * follow each other in the order of their numbers.
 *
 * Design notes.
 *
 * Why a table. A lock's holder can be stopped for longer than its lease and go
 * on writing; only the store that it writes to can refuse it, by a number that
 * grows with each holder (M. Kleppmann, "How to do distributed locking", 2016).
 * The row makes the database such a store, and locking it makes acceptance and
 * protected writes one transaction. The owner tells two holders with the same
 * number apart, which Redis can hand out after a failover.
 *
 * Two statements. The first inserts the token, or moves the row forward. It
 * comes first for the case that there is no row: two transactions that read the
 * gap with a lock would both get it, and deadlock at the insert (MySQL manual,
 * "Locks Set by Different SQL Statements in InnoDB"). The second reads the row
 * with a lock, which returns the current row at every isolation level ("Locking
 * Reads"; a plain read would see the snapshot of REPEATABLE READ).
 *
 * The tokens are compared here. The count of changed rows would not be enough:
 * the same token twice changes nothing, which looks like a refusal unless the
 * connection has CLIENT_FOUND_ROWS, and the connection belongs to the caller.
 *
 * The transaction is checked before and after, by the status flags of the last
 * reply, because an error of a statement can end a transaction ("InnoDB Error
 * Handling"), and tables of other engines do not take part in one.
 */
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <string.h>

#include <snowshed/mysql.h>

#include "base/error.h"
#include "mysql/compat.h"
#include "mysql/connection.h"
#include "mysql/sigpipe.h"

/* A value is bound again for each place: VALUES(number) is deprecated in MySQL,
 * and its successor, an alias for the new row, is unknown to MariaDB ("INSERT
 * ... ON DUPLICATE KEY UPDATE Statement"). Assignments are executed from left
 * to right; owner's comes first, because it compares the number before that is
 * changed. */
#define RECORD                                                                 \
    "INSERT INTO snowshed_fence (resource, number, owner) VALUES (?, ?, ?) "   \
    "ON DUPLICATE KEY UPDATE owner = IF(? > number, ?, owner), "               \
    "number = IF(? > number, ?, number)"

#define READ                                                                   \
    "SELECT number, owner FROM snowshed_fence WHERE resource = ? FOR UPDATE"

enum { RESOURCE_MAX_BYTES = 255, OWNER_BYTES = 16 }; /* of the columns */

_Static_assert(sizeof(((struct shed_fence *)NULL)->owner) == OWNER_BYTES,
               "sql/fence.sql has room for an owner");

enum { COLUMN_NUMBER, COLUMN_OWNER, COLUMNS };

enum { NO_SUCH_TABLE = 1146 };

struct call {
    MYSQL *mysql;
    struct shed_bytes resource;
    const struct shed_fence *fence;
    struct shed_error *err;
};

/* --------------------------------------------------------------- failures */

/* Report why the server or the library failed, with the remedy if there is one.
 */
static enum shed_code explain(const struct call *call, MYSQL_STMT *stmt)
{
    /* The timeouts of the caller's connection are unknown here, so no failure
     * is taken for a timeout. */
    static const struct shed_mysql_config config = {
        .connect_timeout_s = UINT_MAX, .read_timeout_s = UINT_MAX};
    const struct shed_mysql_connection c = {.config = &config,
                                            .mysql = call->mysql};
    struct shed_mysql_failure failure;

    shed_mysql_connection_explain(&c, stmt, &failure);
    if (failure.cause == SHED_MYSQL_CONFLICT)
        return shed_fail(call->err, SHED_ETIMEDOUT,
                         "fencing guard: roll back and repeat the whole "
                         "transaction: %s",
                         failure.error.reason);
    if (failure.number == NO_SUCH_TABLE)
        return shed_fail(call->err, SHED_ESOURCE,
                         "fencing guard: load sql/fence.sql, installed in "
                         "share/snowshed, into the database: %s",
                         failure.error.reason);
    return shed_fail(call->err, failure.error.code, "fencing guard: %s",
                     failure.error.reason);
}

static enum shed_code refuse_table(const struct call *call)
{
    return shed_fail(call->err, SHED_ESOURCE,
                     "fencing guard: MySQL: the table snowshed_fence does not "
                     "keep the values it is given: create it as sql/fence.sql "
                     "does");
}

/* ----------------------------------------------------------------- checks */

static enum shed_code check_arguments(const struct call *call)
{
    if (call->mysql == NULL)
        return shed_fail(call->err, SHED_EINVAL,
                         "fencing guard: mysql is NULL");
    if (call->resource.data == NULL || call->resource.size == 0 ||
        call->resource.size > RESOURCE_MAX_BYTES)
        return shed_fail(call->err, SHED_EINVAL,
                         "fencing guard: a resource has 1 to %d bytes, not %zu",
                         RESOURCE_MAX_BYTES,
                         call->resource.data != NULL ? call->resource.size : 0);
    if (call->fence == NULL || call->fence->number == 0)
        return shed_fail(call->err, SHED_EINVAL,
                         "fencing guard: there is no token: acquire the lock "
                         "first");
    return SHED_OK;
}

static enum shed_code check_connection(const struct call *call)
{
    const MYSQL *mysql = call->mysql;

    /* closing our statement would discard it */
    if (mysql->status != MYSQL_STATUS_READY || mysql_more_results(call->mysql))
        return shed_fail(call->err, SHED_EINVAL,
                         "fencing guard: the connection has an unread result: "
                         "read it to its end first");
    if (shed_mysql_reconnects(mysql))
        return shed_fail(call->err, SHED_EINVAL,
                         "fencing guard: the connection reconnects by itself "
                         "and would go on without its transaction: switch "
                         "MYSQL_OPT_RECONNECT off");
    if ((mysql->server_status & SERVER_STATUS_IN_TRANS) == 0 &&
        (mysql->server_status & SERVER_STATUS_AUTOCOMMIT) != 0)
        return shed_fail(call->err, SHED_EINVAL,
                         "fencing guard: the connection is in no transaction: "
                         "START TRANSACTION first; only writes of the same "
                         "transaction are protected");
    return SHED_OK;
}

/* -------------------------------------------------------------- statements */

/* As bytes, which are not converted from the connection's character set. */
static void bind_bytes(MYSQL_BIND *bind, const void *data, size_t size)
{
    shed_mysql_bind_bytes(bind, MYSQL_TYPE_BLOB, data, size);
}

/* Read the one row of an executed READ. */
static enum shed_code fetch(const struct call *call, MYSQL_STMT *stmt,
                            struct shed_fence *seen)
{
    unsigned long owner_size = 0;
    MYSQL_BIND binds[COLUMNS];

    shed_mysql_bind_number(&binds[COLUMN_NUMBER], &seen->number, true);
    bind_bytes(&binds[COLUMN_OWNER], seen->owner, sizeof(seen->owner));
    binds[COLUMN_OWNER].length = &owner_size;
    if (mysql_stmt_bind_result(stmt, binds) != 0 ||
        mysql_stmt_store_result(stmt) != 0)
        return explain(call, stmt);
    return mysql_stmt_fetch(stmt) == 0 && owner_size == sizeof(seen->owner)
               ? SHED_OK
               : refuse_table(call);
}

/* Run a statement on the caller's connection, and close it, because until then
 * nothing else can run there. seen gets what READ reads; NULL: no result. */
static enum shed_code run(const struct call *call, const char *sql,
                          MYSQL_BIND *binds, struct shed_fence *seen)
{
    MYSQL_STMT *stmt = mysql_stmt_init(call->mysql);
    enum shed_code code = SHED_OK;

    if (stmt == NULL)
        return shed_fail_nomem(call->err, "the fencing guard's statement");
    if (mysql_stmt_prepare(stmt, sql, (unsigned long)strlen(sql)) != 0 ||
        mysql_stmt_bind_param(stmt, binds) != 0 ||
        mysql_stmt_execute(stmt) != 0)
        code = explain(call, stmt);
    else if (seen != NULL)
        code = fetch(call, stmt, seen);
    (void)mysql_stmt_close(stmt);
    return code;
}

/* Move the row of the resource forward to the token, if that is forward; and
 * read what it then says. */
static enum shed_code record_and_read(const struct call *call,
                                      struct shed_fence *seen)
{
    const struct shed_fence *fence = call->fence;
    MYSQL_BIND resource, number, owner;
    enum shed_code code;

    bind_bytes(&resource, call->resource.data, call->resource.size);
    shed_mysql_bind_number(&number, &fence->number, true);
    bind_bytes(&owner, fence->owner, sizeof(fence->owner));
    code = run(call, RECORD,
               (MYSQL_BIND[]){resource, number, owner, /* VALUES */
                              number, owner,           /* owner = */
                              number, number},         /* again */
               NULL);
    return code == SHED_OK ? run(call, READ, &resource, seen) : code;
}

/* ------------------------------------------------------------------ guard */

static enum shed_code judge(const struct call *call,
                            const struct shed_fence *seen)
{
    const struct shed_fence *fence = call->fence;

    /* An error of an earlier statement may have ended the transaction without
     * telling the library, and tables of engines other than InnoDB begin none.
     */
    if ((call->mysql->server_status & SERVER_STATUS_IN_TRANS) == 0)
        return shed_fail(call->err, SHED_EINVAL,
                         "fencing guard: the connection is no longer in a "
                         "transaction: an error has ended it (roll back after "
                         "each), or snowshed_fence is not an InnoDB table");
    if (seen->number < fence->number)
        return refuse_table(call);
    if (seen->number > fence->number)
        return shed_fail(call->err, SHED_ELOST,
                         "fencing guard: the token %" PRIu64 " is older than "
                         "%" PRIu64 ": roll back",
                         fence->number, seen->number);
    if (memcmp(seen->owner, fence->owner, sizeof(fence->owner)) != 0)
        return shed_fail(call->err, SHED_ELOST,
                         "fencing guard: another holder has written with the "
                         "same number, %" PRIu64 ": roll back",
                         fence->number);
    return SHED_OK;
}

static enum shed_code guard(const struct call *call, struct shed_fence *seen)
{
    enum shed_code code = check_arguments(call);

    if (code == SHED_OK)
        code = check_connection(call);
    if (code == SHED_OK)
        code = record_and_read(call, seen);
    if (code == SHED_OK)
        code = judge(call, seen);
    return code;
}

enum shed_code shed_mysql_fence(void *mysql, struct shed_bytes resource,
                                const struct shed_fence *fence,
                                uint64_t *newest, struct shed_error *err)
{
    struct call call = {mysql, resource, fence, err};
    struct shed_fence seen = {0};
    struct shed_mysql_sigpipe sigpipe;
    enum shed_code code;

    shed_mysql_sigpipe_block(&sigpipe);
    code = guard(&call, &seen);
    shed_mysql_sigpipe_restore(&sigpipe);
    if (newest != NULL)
        *newest = code == SHED_OK || code == SHED_ELOST ? seen.number : 0;
    return code;
}
