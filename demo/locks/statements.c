/*
 * Prepared statements of numbers. The connection has CLIENT_FOUND_ROWS, so
 * affected rows are those that an UPDATE has matched. Isolation is READ
 * COMMITTED, so that servers with and without innodb_snapshot_isolation behave
 * alike.
 */
#include "statements.h"

#include <assert.h>
#include <errmsg.h>
#include <mysqld_error.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/place.h"

struct statements {
    MYSQL *mysql;
    const char *files;
    size_t count;
    char why[SHED_REASON_BYTES + sizeof("database: ")];
    MYSQL_STMT *stmt[STATEMENTS_MAX];
};

/* ---------------------------------------------------------------- failures */

static enum statement_code fail(struct statements *s, unsigned number,
                                const char *text)
{
    bool is_missing = number == ER_NO_SUCH_TABLE;

    if (number == ER_DUP_ENTRY)
        return STATEMENT_DUPLICATE;
    if (number == ER_LOCK_DEADLOCK || number == ER_LOCK_WAIT_TIMEOUT ||
        number == ER_CHECKREAD)
        return STATEMENT_AGAIN;
    (void)snprintf(s->why, sizeof(s->why), "database: %s%s%s%s", text,
                   is_missing ? " (load " : "", is_missing ? s->files : "",
                   is_missing ? ")" : "");
    return STATEMENT_FAILED;
}

static enum statement_code fail_statement(struct statements *s,
                                          MYSQL_STMT *stmt)
{
    return fail(s, mysql_stmt_errno(stmt), mysql_stmt_error(stmt));
}

/* -------------------------------------------------------------- connection */

static bool connect_server(struct statements *s)
{
    struct shed_error err;

    if (place_connect(s->mysql, CLIENT_FOUND_ROWS, &err) == SHED_OK)
        return true;
    (void)snprintf(s->why, sizeof(s->why), "database: %s", err.reason);
    return false;
}

static bool prepare(struct statements *s, const char *const *texts,
                    size_t count)
{
    for (; s->count < count; s->count++) {
        const char *text = texts[s->count];
        MYSQL_STMT *stmt = s->stmt[s->count] = mysql_stmt_init(s->mysql);
        if (stmt == NULL) {
            (void)fail(s, CR_OUT_OF_MEMORY, "out of memory");
            return false;
        }
        if (mysql_stmt_prepare(stmt, text, strlen(text)) != 0) {
            (void)fail_statement(s, stmt);
            (void)mysql_stmt_close(stmt);
            return false;
        }
    }
    return true;
}

struct statements *statements_open(const char *const *texts, size_t count,
                                   const char *files, char *why, size_t size)
{
    struct statements *s = calloc(1, sizeof(*s));

    assert(count <= STATEMENTS_MAX);
    if (s == NULL || (s->mysql = mysql_init(NULL)) == NULL) {
        free(s);
        (void)snprintf(why, size, "out of memory");
        return NULL;
    }
    s->files = files;
    if (connect_server(s) &&
        statements_run(s, "SET SESSION TRANSACTION ISOLATION LEVEL "
                          "READ COMMITTED") == STATEMENT_OK &&
        prepare(s, texts, count))
        return s;
    (void)snprintf(why, size, "%s", s->why);
    statements_close(s);
    return NULL;
}

void statements_close(struct statements *s)
{
    if (s == NULL)
        return;
    for (size_t i = 0; i < s->count; i++)
        (void)mysql_stmt_close(s->stmt[i]);
    mysql_close(s->mysql);
    free(s);
}

MYSQL *statements_mysql(struct statements *s)
{
    return s->mysql;
}

const char *statements_why(const struct statements *s)
{
    return s->why;
}

/* --------------------------------------------------------------- execution */

enum statement_code statements_run(struct statements *s, const char *text)
{
    if (mysql_query(s->mysql, text) == 0)
        return STATEMENT_OK;
    return fail(s, mysql_errno(s->mysql), mysql_error(s->mysql));
}

static void bind_numbers(MYSQL_BIND *bind, uint64_t *numbers, size_t count)
{
    memset(bind, 0, count * sizeof(*bind));
    for (size_t i = 0; i < count; i++) {
        bind[i].buffer_type = MYSQL_TYPE_LONGLONG;
        bind[i].is_unsigned = 1;
        bind[i].buffer = &numbers[i];
    }
}

static enum statement_code execute(struct statements *s, MYSQL_STMT *stmt,
                                   const uint64_t *in)
{
    size_t count = mysql_stmt_param_count(stmt);
    MYSQL_BIND bind[STATEMENT_NUMBERS_MAX];
    uint64_t numbers[STATEMENT_NUMBERS_MAX];

    memcpy(numbers, in, count * sizeof(*in));
    bind_numbers(bind, numbers, count);
    if (mysql_stmt_bind_param(stmt, bind) == 0 && mysql_stmt_execute(stmt) == 0)
        return STATEMENT_OK;
    return fail_statement(s, stmt);
}

enum statement_code statements_change(struct statements *s, size_t which,
                                      const uint64_t *in)
{
    enum statement_code code = execute(s, s->stmt[which], in);

    if (code == STATEMENT_OK && mysql_stmt_affected_rows(s->stmt[which]) == 0)
        return STATEMENT_NONE;
    return code;
}

enum statement_code statements_query(struct statements *s, size_t which,
                                     const uint64_t *in, size_t columns,
                                     statements_take *take, void *user)
{
    MYSQL_STMT *stmt = s->stmt[which];
    enum statement_code code = execute(s, stmt, in);
    uint64_t row[STATEMENT_NUMBERS_MAX] = {0};
    MYSQL_BIND bind[STATEMENT_NUMBERS_MAX];
    int status = 1;

    if (code != STATEMENT_OK)
        return code;
    bind_numbers(bind, row, columns);
    code = STATEMENT_NONE;
    if (mysql_stmt_bind_result(stmt, bind) == 0 &&
        mysql_stmt_store_result(stmt) == 0)
        while ((status = mysql_stmt_fetch(stmt)) == 0) {
            code = STATEMENT_OK;
            take(user, row);
        }
    if (status != MYSQL_NO_DATA)
        code = fail_statement(s, stmt);
    (void)mysql_stmt_free_result(stmt);
    return code;
}

struct first_row {
    uint64_t *row;
    size_t columns;
};

static void copy_row(void *user, const uint64_t *row)
{
    struct first_row *to = user;

    memcpy(to->row, row, to->columns * sizeof(*row));
}

enum statement_code statements_row(struct statements *s, size_t which,
                                   const uint64_t *in, size_t columns,
                                   uint64_t *row)
{
    struct first_row to = {row, columns};

    return statements_query(s, which, in, columns, copy_row, &to);
}

enum statement_code statements_settle(struct statements *s,
                                      enum statement_code code)
{
    if (code == STATEMENT_OK)
        code = statements_run(s, "COMMIT");
    /* If ROLLBACK fails, the connection is gone, and with it the
     * transaction. */
    if (code != STATEMENT_OK)
        (void)mysql_rollback(s->mysql);
    return code;
}
