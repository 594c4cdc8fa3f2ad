/* What the flash sale says to the database. */
#ifndef DEMO_FLASHSALE_ORDERS_DB_H
#define DEMO_FLASHSALE_ORDERS_DB_H

#include "common/statements.h"
#include "sale.h"

/* Connect. Returns NULL with why on failure: of missing tables, it names the
 * files that bring them. */
struct statements *orders_open(char *why, size_t size);

enum statement_code orders_begin(struct statements *db);
/* Commit if all went well, else roll back. Returns what the buyer hears. */
enum answer orders_settle(struct statements *db, enum statement_code code);

enum statement_code orders_read_stock(struct statements *db, uint64_t item,
                                      int64_t *stock);
/* One piece less, whether there is one or not. */
enum statement_code orders_take_piece(struct statements *db, uint64_t item);
enum statement_code orders_write_stock(struct statements *db, uint64_t item,
                                       int64_t stock);
/* STATEMENT_DUPLICATE: the buyer has one. */
enum statement_code orders_place_order(struct statements *db, uint64_t item,
                                       uint64_t buyer, uint64_t token);

/* ------------------------------------------------------- for the runner */

/* Empty both tables. */
enum statement_code orders_clear(struct statements *db);

/* Put an item on sale; strategy is its place in the table's list, from 1. */
enum statement_code orders_put_on_sale(struct statements *db, uint64_t item,
                                       uint64_t strategy, uint64_t pieces);

/* What the database says of a sale. */
struct proof {
    int64_t stock;
    uint64_t orders;
    uint64_t buyers;    /* different ones among them */
    uint64_t misled;    /* buyers that were told something else */
    uint64_t backwards; /* orders with a token below the one before */
};

enum statement_code orders_prove(struct statements *db, const struct sale *sale,
                                 struct proof *proof);

#endif
