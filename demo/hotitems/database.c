/* A bounded pool of MySQL connections and the prepared statements of the
 * service, each prepared when a connection first needs it. */
#include "database.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <mysql.h>
#include <mysqld_error.h>
#include <snowshed/mysql.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wait.h"

enum statement {
    CHANGE_ITEM,
    TAKE_STOCK,
    READ_STOCK,
    FIND_ORDER,
    ADD_ORDER,
    STATEMENTS
};

static const char *const texts[STATEMENTS] = {
    [CHANGE_ITEM] = "UPDATE item SET name = COALESCE(?, name), "
                    "price_cents = COALESCE(?, price_cents) WHERE id = ?",
    [TAKE_STOCK] = "UPDATE item SET stock = stock - ? "
                   "WHERE id = ? AND stock >= ?",
    [READ_STOCK] = "SELECT stock FROM item WHERE id = ?",
    [FIND_ORDER] = "SELECT id, item, quantity, token FROM item_order "
                   "WHERE idempotency_key = ?",
    [ADD_ORDER] = "INSERT INTO item_order (item, quantity, token, "
                  "idempotency_key) VALUES (?, ?, ?, ?)",
};

#define COLUMNS_MAX 4
#define PING_AFTER_MS 1000

struct db {
    char *uri;
    char setup[100]; /* a statement */
    unsigned connections_max;
    pthread_mutex_t mu;
    pthread_cond_t given_back;
    /* under mu */
    struct db_session *idle;
    unsigned open;
};

struct db_session {
    struct db *db;
    struct db_session *next; /* idle */
    MYSQL *mysql;
    MYSQL_STMT *stmt[STATEMENTS];
    uint64_t used_ms; /* when it was given back */
    bool is_broken;
    char why[200];
};

/* ---------------------------------------------------------------- failures */

enum db_code db_fail(struct db_session *s, unsigned number, const char *text)
{
    if (number == ER_DUP_ENTRY)
        return DB_DUPLICATE;
    if (number == ER_LOCK_DEADLOCK || number == ER_LOCK_WAIT_TIMEOUT ||
        number == ER_CHECKREAD)
        return DB_AGAIN;
    (void)snprintf(s->why, sizeof(s->why), "MySQL: %s%s", text,
                   number == ER_NO_SUCH_TABLE || number == ER_SP_DOES_NOT_EXIST
                       ? " (load sql/)"
                       : "");
    /* Whatever it was, a new connection is in a state that is known. */
    s->is_broken = true;
    return DB_FAILED;
}

static enum db_code run(struct db_session *s, const char *text)
{
    if (mysql_query(s->mysql, text) == 0)
        return DB_OK;
    return db_fail(s, mysql_errno(s->mysql), mysql_error(s->mysql));
}

/* -------------------------------------------------------------- connections */

static void disconnect(struct db_session *s)
{
    if (s == NULL)
        return;
    for (size_t i = 0; i < STATEMENTS; i++)
        if (s->stmt[i] != NULL)
            (void)mysql_stmt_close(s->stmt[i]);
    if (s->mysql != NULL)
        mysql_close(s->mysql);
    free(s);
}

static struct db_session *connect_session(struct db *db, char *why, size_t size)
{
    struct db_session *s = calloc(1, sizeof(*s));
    struct shed_error err = {SHED_OK, ""};

    if (s == NULL) {
        (void)snprintf(why, size, "out of memory");
        return NULL;
    }
    s->db = db;
    s->mysql = mysql_init(NULL);
    /* FOUND_ROWS: an UPDATE that changes nothing has met its row all the same
     */
    if (shed_mysql_connect(s->mysql, db->uri, NULL, CLIENT_FOUND_ROWS, &err))
        (void)snprintf(s->why, sizeof(s->why), "%.190s", err.reason);
    else if (run(s, "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED") ==
                 DB_OK &&
             run(s, db->setup) == DB_OK)
        return s;
    (void)snprintf(why, size, "%s", s->why);
    disconnect(s);
    return NULL;
}

struct db *db_open(const char *uri, unsigned connections_max,
                   uint64_t timeout_ms, char *why, size_t size)
{
    struct db *db = calloc(1, sizeof(*db));

    if (db == NULL || (db->uri = strdup(uri)) == NULL) {
        (void)snprintf(why, size, "out of memory");
        free(db);
        return NULL;
    }
    db->connections_max = connections_max;
    (void)snprintf(db->setup, sizeof(db->setup),
                   "SET SESSION innodb_lock_wait_timeout = %" PRIu64
                   ", lock_wait_timeout = %" PRIu64,
                   (timeout_ms + 999) / 1000, (timeout_ms + 999) / 1000);
    wait_init(&db->mu, &db->given_back);
    return db;
}

void db_close(struct db *db)
{
    struct db_session *s;

    if (db == NULL)
        return;
    while ((s = db->idle) != NULL) {
        db->idle = s->next;
        disconnect(s);
        db->open--;
    }
    assert(db->open == 0);
    (void)pthread_cond_destroy(&db->given_back);
    (void)pthread_mutex_destroy(&db->mu);
    free(db->uri);
    free(db);
}

/* Takes an idle session, or the right to open one (NULL). Returns false at the
 * deadline. */
static bool reserve(struct db *db, uint64_t deadline_ms,
                    struct db_session **out)
{
    bool is_in_time = true, has_place;

    (void)pthread_mutex_lock(&db->mu);
    while (db->idle == NULL && db->open == db->connections_max && is_in_time)
        is_in_time = wait_until(&db->given_back, &db->mu, deadline_ms);
    *out = db->idle;
    has_place = *out != NULL || db->open < db->connections_max;
    if (*out != NULL)
        db->idle = (*out)->next;
    else if (has_place)
        db->open++;
    (void)pthread_mutex_unlock(&db->mu);
    return has_place;
}

static void release_place(struct db *db)
{
    (void)pthread_mutex_lock(&db->mu);
    db->open--;
    (void)pthread_cond_signal(&db->given_back);
    (void)pthread_mutex_unlock(&db->mu);
}

enum db_code db_borrow(struct db *db, uint64_t deadline_ms,
                       struct db_session **out, char *why, size_t size)
{
    if (!reserve(db, deadline_ms, out)) {
        (void)snprintf(why, size, "all %u connections to MySQL are busy",
                       db->connections_max);
        return DB_BUSY;
    }
    /* One that idled may have been closed by the server. */
    if (*out != NULL && wait_now_ms() - (*out)->used_ms > PING_AFTER_MS &&
        mysql_ping((*out)->mysql) != 0) {
        disconnect(*out);
        *out = NULL;
    }
    if (*out == NULL)
        *out = connect_session(db, why, size);
    if (*out != NULL)
        return DB_OK;
    release_place(db);
    return DB_FAILED;
}

void db_give_back(struct db_session *s)
{
    struct db *db;

    if (s == NULL)
        return;
    db = s->db;
    mysql_thread_end(); /* the thread is a connection's, and ends with it */
    if (s->is_broken) {
        disconnect(s);
        release_place(db);
        return;
    }
    s->used_ms = wait_now_ms();
    (void)pthread_mutex_lock(&db->mu);
    s->next = db->idle;
    db->idle = s;
    (void)pthread_cond_signal(&db->given_back);
    (void)pthread_mutex_unlock(&db->mu);
}

void *db_mysql(struct db_session *s)
{
    return s->mysql;
}

const char *db_why(const struct db_session *s)
{
    return s->why;
}

/* -------------------------------------------------------------- statements */

static MYSQL_BIND number(uint64_t *value)
{
    return (MYSQL_BIND){
        .buffer_type = MYSQL_TYPE_LONGLONG, .is_unsigned = 1, .buffer = value};
}

static MYSQL_BIND text(const char *value)
{
    if (value == NULL)
        return (MYSQL_BIND){.buffer_type = MYSQL_TYPE_NULL};
    return (MYSQL_BIND){.buffer_type = MYSQL_TYPE_STRING,
                        .buffer = (void *)(uintptr_t)value,
                        .buffer_length = strlen(value)};
}

static enum db_code fail_statement(struct db_session *s, MYSQL_STMT *stmt)
{
    return db_fail(s, mysql_stmt_errno(stmt), mysql_stmt_error(stmt));
}

static enum db_code prepare(struct db_session *s, enum statement which)
{
    const char *text = texts[which];
    MYSQL_STMT *stmt;

    if (s->stmt[which] != NULL)
        return DB_OK;
    stmt = s->stmt[which] = mysql_stmt_init(s->mysql);
    if (stmt == NULL)
        return db_fail(s, 0, "out of memory");
    if (mysql_stmt_prepare(stmt, text, strlen(text)) != 0)
        return fail_statement(s, stmt);
    return DB_OK;
}

static enum db_code execute(struct db_session *s, enum statement which,
                            MYSQL_BIND *in)
{
    enum db_code code = prepare(s, which);
    MYSQL_STMT *stmt = s->stmt[which];

    if (code != DB_OK)
        return code;
    if (mysql_stmt_bind_param(stmt, in) == 0 && mysql_stmt_execute(stmt) == 0)
        return DB_OK;
    return fail_statement(s, stmt);
}

static enum db_code change(struct db_session *s, enum statement which,
                           MYSQL_BIND *in)
{
    enum db_code code = execute(s, which, in);

    if (code == DB_OK && mysql_stmt_affected_rows(s->stmt[which]) == 0)
        return DB_NONE;
    return code;
}

/* The one row that it selects, of numbers alone. */
static enum db_code select_row(struct db_session *s, enum statement which,
                               MYSQL_BIND *in, uint64_t *row, size_t columns)
{
    MYSQL_BIND out[COLUMNS_MAX];
    enum db_code code = execute(s, which, in);
    MYSQL_STMT *stmt = s->stmt[which];
    int status = 1;

    assert(columns <= COLUMNS_MAX);
    if (code != DB_OK)
        return code;
    for (size_t i = 0; i < columns; i++)
        out[i] = number(&row[i]);
    if (mysql_stmt_bind_result(stmt, out) == 0 &&
        mysql_stmt_store_result(stmt) == 0)
        status = mysql_stmt_fetch(stmt);
    if (status != 0)
        code = status == MYSQL_NO_DATA ? DB_NONE : fail_statement(s, stmt);
    (void)mysql_stmt_free_result(stmt);
    return code;
}

enum db_code db_begin(struct db_session *s)
{
    return run(s, "START TRANSACTION");
}

enum db_code db_commit(struct db_session *s)
{
    return run(s, "COMMIT");
}

void db_rollback(struct db_session *s)
{
    if (mysql_rollback(s->mysql) != 0)
        s->is_broken = true;
}

enum db_code db_change_item(struct db_session *s, uint64_t item,
                            const char *name, const uint64_t *price_cents)
{
    uint64_t price = price_cents != NULL ? *price_cents : 0;
    MYSQL_BIND in[] = {text(name),
                       price_cents != NULL ? number(&price) : text(NULL),
                       number(&item)};

    return change(s, CHANGE_ITEM, in);
}

enum db_code db_take_stock(struct db_session *s, uint64_t item,
                           uint64_t quantity)
{
    MYSQL_BIND in[] = {number(&quantity), number(&item), number(&quantity)};

    return change(s, TAKE_STOCK, in);
}

enum db_code db_read_stock(struct db_session *s, uint64_t item, uint64_t *stock)
{
    MYSQL_BIND in[] = {number(&item)};

    return select_row(s, READ_STOCK, in, stock, 1);
}

enum db_code db_find_order(struct db_session *s, struct db_order *order)
{
    MYSQL_BIND in[] = {text(order->key)};
    uint64_t row[COLUMNS_MAX] = {0};
    enum db_code code = select_row(s, FIND_ORDER, in, row, COLUMNS_MAX);

    if (code != DB_OK)
        return code;
    order->id = row[0];
    order->item = row[1];
    order->quantity = row[2];
    order->token = row[3];
    return DB_OK;
}

enum db_code db_add_order(struct db_session *s, struct db_order *order)
{
    MYSQL_BIND in[] = {number(&order->item), number(&order->quantity),
                       number(&order->token), text(order->key)};
    enum db_code code = change(s, ADD_ORDER, in);

    if (code == DB_OK)
        order->id = mysql_stmt_insert_id(s->stmt[ADD_ORDER]);
    return code;
}
