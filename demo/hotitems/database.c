/* A bounded pool of MySQL connections, and the statements of the service. */
#include "database.h"

#include <assert.h>
#include <inttypes.h>
#include <snowshed/mysql.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wait.h"

enum statement { CHANGE_ITEM, TAKE_STOCK, READ_STOCK, FIND_ORDER, ADD_ORDER };

static const char *const texts[] = {
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
    struct statements *statements;
    uint64_t used_ms; /* when it was given back */
};

/* -------------------------------------------------------------- connections */

static void disconnect(struct db_session *s)
{
    statements_close(s->statements);
    free(s);
}

static struct statements *connect_server(const struct db *db, char *why,
                                         size_t size)
{
    MYSQL *mysql = mysql_init(NULL);
    struct statements *s;
    struct shed_error err = {SHED_OK, ""};

    /* FOUND_ROWS: an UPDATE that changes nothing has met its row all the same
     */
    if (shed_mysql_connect(mysql, db->uri, NULL, CLIENT_FOUND_ROWS, &err)) {
        (void)snprintf(why, size, "%s", err.reason);
        mysql_close(mysql);
        return NULL;
    }
    s = statements_open(mysql, texts, "sql/", why, size);
    if (s == NULL || statements_run(s, db->setup) == STATEMENT_OK)
        return s;
    (void)snprintf(why, size, "%s", statements_why(s));
    statements_close(s);
    return NULL;
}

static struct db_session *connect_session(struct db *db, char *why, size_t size)
{
    struct db_session *s = calloc(1, sizeof(*s));

    if (s == NULL) {
        (void)snprintf(why, size, "out of memory");
        return NULL;
    }
    s->db = db;
    s->statements = connect_server(db, why, size);
    if (s->statements != NULL)
        return s;
    free(s);
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

enum statement_code db_borrow(struct db *db, uint64_t deadline_ms,
                              struct db_session **out, char *why, size_t size)
{
    if (!reserve(db, deadline_ms, out)) {
        (void)snprintf(why, size, "all %u connections to MySQL are busy",
                       db->connections_max);
        return STATEMENT_BUSY;
    }
    /* One that idled may have been closed by the server. */
    if (*out != NULL && wait_now_ms() - (*out)->used_ms > PING_AFTER_MS &&
        mysql_ping(statements_mysql((*out)->statements)) != 0) {
        disconnect(*out);
        *out = NULL;
    }
    if (*out == NULL)
        *out = connect_session(db, why, size);
    if (*out != NULL)
        return STATEMENT_OK;
    release_place(db);
    return STATEMENT_FAILED;
}

void db_give_back(struct db_session *s)
{
    struct db *db;

    if (s == NULL)
        return;
    db = s->db;
    mysql_thread_end(); /* the thread is a connection's, and ends with it */
    if (statements_is_broken(s->statements)) {
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

struct statements *db_statements(struct db_session *s)
{
    return s->statements;
}

/* -------------------------------------------------------------- statements */

enum statement_code db_change_item(struct db_session *s, uint64_t item,
                                   const char *name, uint64_t *price_cents)
{
    MYSQL_BIND in[] = {statement_text(name),
                       price_cents != NULL ? statement_number(price_cents)
                                           : statement_text(NULL),
                       statement_number(&item)};

    return statements_change(s->statements, CHANGE_ITEM, in);
}

enum statement_code db_take_stock(struct db_session *s, uint64_t item,
                                  uint64_t quantity)
{
    MYSQL_BIND in[] = {statement_number(&quantity), statement_number(&item),
                       statement_number(&quantity)};

    return statements_change(s->statements, TAKE_STOCK, in);
}

enum statement_code db_read_stock(struct db_session *s, uint64_t item,
                                  uint64_t *stock)
{
    MYSQL_BIND in[] = {statement_number(&item)};

    return statements_row(s->statements, READ_STOCK, in, 1, stock);
}

enum statement_code db_find_order(struct db_session *s, struct db_order *order)
{
    MYSQL_BIND in[] = {statement_text(order->key)};
    uint64_t row[4] = {0};
    enum statement_code code =
        statements_row(s->statements, FIND_ORDER, in, 4, row);

    if (code != STATEMENT_OK)
        return code;
    order->id = row[0];
    order->item = row[1];
    order->quantity = row[2];
    order->token = row[3];
    return STATEMENT_OK;
}

enum statement_code db_add_order(struct db_session *s, struct db_order *order)
{
    MYSQL_BIND in[] = {
        statement_number(&order->item), statement_number(&order->quantity),
        statement_number(&order->token), statement_text(order->key)};
    enum statement_code code = statements_change(s->statements, ADD_ORDER, in);

    if (code == STATEMENT_OK)
        order->id = statements_inserted(s->statements, ADD_ORDER);
    return code;
}
