/* A bounded pool of MySQL connections, and the statements of the service. */
#include "database.h"

#include <inttypes.h>
#include <snowshed/mysql.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pool.h"
#include "wait.h"

enum statement { CHANGE_PRICE, TAKE_STOCK, READ_STOCK, FIND_ORDER, ADD_ORDER };

static const char *const texts[] = {
    [CHANGE_PRICE] = "UPDATE item SET price_cents = ? WHERE id = ?",
    [TAKE_STOCK] = "UPDATE item SET stock = stock - ? "
                   "WHERE id = ? AND stock >= ?",
    [READ_STOCK] = "SELECT stock FROM item WHERE id = ?",
    [FIND_ORDER] = "SELECT id, item, quantity, token FROM item_order "
                   "WHERE idempotency_key = ?",
    [ADD_ORDER] = "INSERT INTO item_order (item, quantity, token, "
                  "idempotency_key) VALUES (?, ?, ?, ?)",
};

struct db {
    char *uri;
    char setup[100];  /* a statement */
    struct pool pool; /* of struct statements */
};

/* -------------------------------------------------------------- connections */

static void disconnect(void *statements)
{
    statements_close(statements);
}

static struct statements *connect_server(const struct db *db, char *why,
                                         size_t size)
{
    struct statements *s =
        statements_open(db->uri, NULL, texts, "sql/", why, size);

    if (s == NULL || statements_run(s, db->setup) == STATEMENT_OK)
        return s;
    (void)snprintf(why, size, "%s", statements_why(s));
    statements_close(s);
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
    (void)snprintf(db->setup, sizeof(db->setup),
                   "SET SESSION innodb_lock_wait_timeout = %" PRIu64
                   ", lock_wait_timeout = %" PRIu64,
                   (timeout_ms + 999) / 1000, (timeout_ms + 999) / 1000);
    pool_init(&db->pool, connections_max, disconnect);
    return db;
}

void db_close(struct db *db)
{
    if (db == NULL)
        return;
    pool_fini(&db->pool);
    free(db->uri);
    free(db);
}

enum statement_code db_borrow(struct db *db, uint64_t deadline_ms,
                              struct statements **out, char *why, size_t size)
{
    void *idle;

    if (!pool_take(&db->pool, deadline_ms, &idle)) {
        (void)snprintf(why, size, "all %zu connections to MySQL are busy",
                       db->pool.most);
        return STATEMENT_BUSY;
    }
    *out = idle;
    if (*out != NULL && !statements_wake(*out)) {
        statements_close(*out);
        *out = NULL;
    }
    if (*out == NULL)
        *out = connect_server(db, why, size);
    if (*out != NULL)
        return STATEMENT_OK;
    pool_give_back(&db->pool, NULL);
    return STATEMENT_FAILED;
}

void db_give_back(struct db *db, struct statements *s)
{
    if (s == NULL)
        return;
    mysql_thread_end(); /* the thread is a connection's, and ends with it */
    if (statements_is_broken(s)) {
        statements_close(s);
        s = NULL;
    } else {
        statements_rest(s);
    }
    pool_give_back(&db->pool, s);
}

/* -------------------------------------------------------------- statements */

enum statement_code db_change_price(struct statements *s, uint64_t item,
                                    uint64_t cents)
{
    return statements_change(s, CHANGE_PRICE, (uint64_t[]){cents, item}, NULL);
}

enum statement_code db_take_stock(struct statements *s, uint64_t item,
                                  uint64_t quantity)
{
    return statements_change(s, TAKE_STOCK,
                             (uint64_t[]){quantity, item, quantity}, NULL);
}

enum statement_code db_read_stock(struct statements *s, uint64_t item,
                                  uint64_t *stock)
{
    return statements_select(s, READ_STOCK, &item, NULL, stock, 1, 1);
}

enum statement_code db_find_order(struct statements *s, struct db_order *order)
{
    uint64_t row[4] = {0};
    enum statement_code code =
        statements_select(s, FIND_ORDER, NULL, order->key, row, 4, 1);

    if (code == STATEMENT_OK)
        *order = (struct db_order){row[0], row[1], row[2], row[3], order->key};
    return code;
}

enum statement_code db_add_order(struct statements *s, struct db_order *order)
{
    enum statement_code code = statements_change(
        s, ADD_ORDER, (uint64_t[]){order->item, order->quantity, order->token},
        order->key);

    if (code == STATEMENT_OK)
        order->id = statements_inserted(s, ADD_ORDER);
    return code;
}
