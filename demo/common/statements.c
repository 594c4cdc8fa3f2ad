/*
 * Prepared statements, each prepared when it is first needed. The connection
 * has CLIENT_FOUND_ROWS: an UPDATE that changes nothing has met its row all the
 * same.
 * Isolation is READ COMMITTED, so that servers with and without
 * innodb_snapshot_isolation behave alike.
 */
#include "statements.h"

#include <assert.h>
#include <mysqld_error.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <snowshed/mysql.h>

#include "clock.h"

#define PING_AFTER_US 1000000

struct statements {
    MYSQL *mysql;
    const char *const *texts;
    const char *files;
    bool is_broken;
    uint64_t rests_us; /* since then */
    char why[SHED_REASON_BYTES + sizeof("MySQL: ")];
    MYSQL_STMT *stmt[STATEMENTS_MAX];
};

/* ---------------------------------------------------------------- failures */

enum statement_code statements_fail(struct statements *s, unsigned number,
                                    const char *text)
{
    bool is_missing =
        number == ER_NO_SUCH_TABLE || number == ER_SP_DOES_NOT_EXIST;

    if (number == ER_DUP_ENTRY)
        return STATEMENT_DUPLICATE;
    if (number == ER_LOCK_DEADLOCK || number == ER_LOCK_WAIT_TIMEOUT ||
        number == ER_CHECKREAD)
        return STATEMENT_AGAIN;
    (void)snprintf(s->why, sizeof(s->why), "MySQL: %s%s%s%s", text,
                   is_missing ? " (load " : "", is_missing ? s->files : "",
                   is_missing ? ")" : "");
    /* Whatever it was, a new connection is in a state that is known. */
    s->is_broken = true;
    return STATEMENT_FAILED;
}

static enum statement_code fail_statement(struct statements *s,
                                          MYSQL_STMT *stmt)
{
    return statements_fail(s, mysql_stmt_errno(stmt), mysql_stmt_error(stmt));
}

/* -------------------------------------------------------------- connection */

struct statements *statements_open(const char *uri,
                                   const struct shed_mysql_options *options,
                                   const char *const *texts, const char *files,
                                   char *why, size_t size)
{
    struct statements *s = calloc(1, sizeof(*s));
    struct shed_error err;

    if (s == NULL) {
        (void)snprintf(why, size, "out of memory");
        return NULL;
    }
    *s = (struct statements){
        .mysql = mysql_init(NULL), .texts = texts, .files = files};
    if (shed_mysql_connect(s->mysql, uri, options, CLIENT_FOUND_ROWS, &err))
        (void)snprintf(why, size, "MySQL: %s", err.reason);
    else if (statements_run(s, "SET SESSION TRANSACTION ISOLATION LEVEL "
                               "READ COMMITTED") == STATEMENT_OK)
        return s;
    else
        (void)snprintf(why, size, "%s", s->why);
    statements_close(s);
    return NULL;
}

void statements_close(struct statements *s)
{
    if (s == NULL)
        return;
    for (size_t i = 0; i < STATEMENTS_MAX; i++)
        if (s->stmt[i] != NULL)
            (void)mysql_stmt_close(s->stmt[i]);
    mysql_close(s->mysql);
    free(s);
}

bool statements_is_broken(const struct statements *s)
{
    return s->is_broken;
}

void statements_rest(struct statements *s)
{
    s->rests_us = demo_now_us();
}

/* A short rest need not be asked for. */
bool statements_wake(struct statements *s)
{
    return demo_now_us() - s->rests_us < PING_AFTER_US ||
           mysql_ping(s->mysql) == 0;
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
    return statements_fail(s, mysql_errno(s->mysql), mysql_error(s->mysql));
}

static MYSQL_BIND bind_number(const uint64_t *value)
{
    return (MYSQL_BIND){.buffer_type = MYSQL_TYPE_LONGLONG,
                        .is_unsigned = 1,
                        .buffer = (void *)(uintptr_t)value};
}

static enum statement_code prepare(struct statements *s, size_t which)
{
    const char *text = s->texts[which];
    MYSQL_STMT *stmt;

    assert(which < STATEMENTS_MAX);
    if (s->stmt[which] != NULL)
        return STATEMENT_OK;
    stmt = s->stmt[which] = mysql_stmt_init(s->mysql);
    if (stmt == NULL)
        return statements_fail(s, 0, "out of memory");
    if (mysql_stmt_prepare(stmt, text, strlen(text)) != 0)
        return fail_statement(s, stmt);
    return STATEMENT_OK;
}

static enum statement_code execute(struct statements *s, size_t which,
                                   const uint64_t *numbers, const char *text)
{
    enum statement_code code = prepare(s, which);
    MYSQL_STMT *stmt = s->stmt[which];
    MYSQL_BIND in[STATEMENT_NUMBERS_MAX];
    size_t count;

    if (code != STATEMENT_OK)
        return code;
    count = mysql_stmt_param_count(stmt) - (text != NULL);
    assert(count < STATEMENT_NUMBERS_MAX);
    for (size_t i = 0; i < count; i++)
        in[i] = bind_number(&numbers[i]);
    if (text != NULL)
        in[count] = (MYSQL_BIND){.buffer_type = MYSQL_TYPE_STRING,
                                 .buffer = (void *)(uintptr_t)text,
                                 .buffer_length = strlen(text)};
    if (mysql_stmt_bind_param(stmt, in) == 0 && mysql_stmt_execute(stmt) == 0)
        return STATEMENT_OK;
    return fail_statement(s, stmt);
}

enum statement_code statements_change(struct statements *s, size_t which,
                                      const uint64_t *numbers, const char *text)
{
    enum statement_code code = execute(s, which, numbers, text);

    if (code == STATEMENT_OK && mysql_stmt_affected_rows(s->stmt[which]) == 0)
        return STATEMENT_NONE;
    return code;
}

enum statement_code statements_select(struct statements *s, size_t which,
                                      const uint64_t *numbers, const char *text,
                                      uint64_t *rows, size_t columns,
                                      size_t most)
{
    enum statement_code code = execute(s, which, numbers, text);
    MYSQL_STMT *stmt = s->stmt[which];
    uint64_t row[STATEMENT_NUMBERS_MAX] = {0};
    MYSQL_BIND out[STATEMENT_NUMBERS_MAX];
    size_t taken = 0;
    int status = 1;

    if (code != STATEMENT_OK)
        return code;
    for (size_t i = 0; i < columns; i++)
        out[i] = bind_number(&row[i]);
    if (mysql_stmt_bind_result(stmt, out) == 0 &&
        mysql_stmt_store_result(stmt) == 0)
        while ((status = mysql_stmt_fetch(stmt)) == 0)
            if (taken < most)
                memcpy(&rows[columns * taken++], row, columns * sizeof(*row));
    code = taken > 0 ? STATEMENT_OK : STATEMENT_NONE;
    if (status != MYSQL_NO_DATA)
        code = fail_statement(s, stmt);
    (void)mysql_stmt_free_result(stmt);
    return code;
}

uint64_t statements_inserted(const struct statements *s, size_t which)
{
    return mysql_stmt_insert_id(s->stmt[which]);
}

enum statement_code statements_pass_guard(struct statements *s,
                                          const char *resource,
                                          const struct shed_fence *fence,
                                          uint64_t *newest,
                                          struct shed_error *err)
{
    enum shed_code code =
        shed_mysql_fence(s->mysql, shed_str(resource), fence, newest, err);

    if (code != SHED_ELOST)
        *newest = 0;
    if (code == SHED_OK)
        return STATEMENT_OK;
    return code == SHED_ETIMEDOUT ? STATEMENT_AGAIN : STATEMENT_FAILED;
}

enum statement_code statements_settle(struct statements *s,
                                      enum statement_code code)
{
    if (code == STATEMENT_OK)
        code = statements_run(s, "COMMIT");
    /* If ROLLBACK fails, the connection is gone, and with it the
     * transaction. */
    if (code != STATEMENT_OK && mysql_rollback(s->mysql) != 0)
        s->is_broken = true;
    return code;
}
