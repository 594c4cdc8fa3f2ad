/*
 * A pool of connections to MySQL, and the statements of the service on them:
 * its writes, and the query for items of the lanes that do not read through
 * snowshed.
 */
#ifndef HOTITEMS_DATABASE_H
#define HOTITEMS_DATABASE_H

#include <stddef.h>
#include <stdint.h>

#include "common/statements.h"

struct db;

/* At most connections_max at a time, opened when they are needed; no server is
 * asked now. A statement waits for others' locks for timeout_ms, in whole
 * seconds. Returns NULL with why. */
struct db *db_open(const char *uri, unsigned connections_max,
                   uint64_t timeout_ms, char *why, size_t size);
void db_close(struct db *db); /* all have been given back */

/* A connection, for one thread until it is given back. Returns STATEMENT_OK and
 * *out, or STATEMENT_BUSY, STATEMENT_FAILED with why. */
enum statement_code db_borrow(struct db *db, uint64_t deadline_ms,
                              struct statements **out, char *why, size_t size);
void db_give_back(struct db *db, struct statements *s); /* NULL is allowed */

enum statement_code db_change_price(struct statements *s, uint64_t item,
                                    uint64_t cents);

#define DB_ITEMS_MAX 100 /* of one query */

/* Read items with one query, which ends at the deadline, in the server too, and
 * hand each row to take: JSON, as it is sent. lane: whose db_work the query
 * calls, or NULL. Returns STATEMENT_OK, STATEMENT_LATE or STATEMENT_FAILED. */
typedef void db_take_item(void *user, uint64_t id, const char *json,
                          size_t size);
enum statement_code db_read_items(struct statements *s, const char *lane,
                                  const uint64_t *ids, size_t count,
                                  uint64_t deadline_ms, db_take_item *take,
                                  void *user);

/* Takes pieces of an item; STATEMENT_NONE: there are too few, or no such item.
 */
enum statement_code db_take_stock(struct statements *s, uint64_t item,
                                  uint64_t quantity);
enum statement_code db_read_stock(struct statements *s, uint64_t item,
                                  uint64_t *stock);

#define DB_KEY_MAX_BYTES 64

struct db_order {
    uint64_t id;
    uint64_t item, quantity;
    uint64_t token;
    const char *key; /* idempotency key, terminated */
};

/* Finds the order of a key: order->key is set, the rest is filled in. */
enum statement_code db_find_order(struct statements *s, struct db_order *order);

/* Adds one; sets its id. */
enum statement_code db_add_order(struct statements *s, struct db_order *order);

#endif
