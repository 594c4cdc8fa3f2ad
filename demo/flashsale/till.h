/* What the flash sale says to the database. */
#ifndef DEMO_FLASHSALE_TILL_H
#define DEMO_FLASHSALE_TILL_H

#include "common/statements.h"
#include "sale.h"

/* Connect. Returns NULL with why on failure: of missing tables, it names the
 * files that bring them. */
struct statements *till_open(char *why, size_t size);

enum statement_code till_begin(struct statements *till);
/* Commit if all went well, else roll back. Returns what the buyer hears. */
enum answer till_settle(struct statements *till, enum statement_code code);

enum statement_code till_read_stock(struct statements *till, uint64_t item,
                                    int64_t *stock);
/* One piece less, whether there is one or not. */
enum statement_code till_take_piece(struct statements *till, uint64_t item);
enum statement_code till_write_stock(struct statements *till, uint64_t item,
                                     int64_t stock);
/* STATEMENT_DUPLICATE: the buyer has one. */
enum statement_code till_place_order(struct statements *till, uint64_t item,
                                     uint64_t buyer, uint64_t token);

/* ------------------------------------------------------- for the conductor */

/* Empty both tables. */
enum statement_code till_clear(struct statements *till);

/* Put an item on sale; strategy is its place in the table's list, from 1. */
enum statement_code till_put_on_sale(struct statements *till, uint64_t item,
                                     uint64_t strategy, uint64_t pieces);

/* What the database says of a sale. */
struct proof {
    int64_t stock;
    uint64_t orders;
    uint64_t buyers;    /* different ones among them */
    uint64_t misled;    /* buyers who heard other than what stands there */
    uint64_t backwards; /* orders with a token below the one before */
};

enum statement_code till_prove(struct statements *till, const struct sale *sale,
                               struct proof *proof);

#endif
