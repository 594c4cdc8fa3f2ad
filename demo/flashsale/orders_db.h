/* The statements of the flash sale. */
#ifndef DEMO_FLASHSALE_ORDERS_DB_H
#define DEMO_FLASHSALE_ORDERS_DB_H

#include "common/statements.h"
#include "sale.h"

/* Connect. Returns NULL on failure, with the reason in why; if tables are
 * missing it names their files. */
struct statements *orders_open(char *why, size_t size);

enum statement_code orders_begin(struct statements *db);
/* Commit if all went well, otherwise roll back. Returns the answer for the
 * buyer. */
enum answer orders_settle(struct statements *db, enum statement_code code);

enum statement_code orders_read_stock(struct statements *db, uint64_t item,
                                      int64_t *stock);
/* Take a piece, whether or not there is one. */
enum statement_code orders_take_piece(struct statements *db, uint64_t item);
enum statement_code orders_write_stock(struct statements *db, uint64_t item,
                                       int64_t stock);
/* STATEMENT_DUPLICATE: the buyer already has one. */
enum statement_code orders_place_order(struct statements *db, uint64_t item,
                                       uint64_t buyer, uint64_t token);

/* ------------------------------------------------------- for the runner */

/* Empty both tables. */
enum statement_code orders_clear(struct statements *db);

/* Put an item on sale; strategy: its position in the table's list, from 1. */
enum statement_code orders_put_on_sale(struct statements *db, uint64_t item,
                                       uint64_t strategy, uint64_t pieces);

/* What the database says about a sale. */
struct proof {
    int64_t stock;
    uint64_t orders;
    uint64_t buyers;    /* different buyers among the orders */
    uint64_t misled;    /* buyers that were told something else */
    uint64_t backwards; /* orders with a token below the previous one */
};

enum statement_code orders_prove(struct statements *db, const struct sale *sale,
                                 struct proof *proof);

#endif
