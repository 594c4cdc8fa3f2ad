/* The statements of the cinema and of the flash sale. */
#ifndef DEMO_LOCKS_DATABASE_H
#define DEMO_LOCKS_DATABASE_H

#include "common/statements.h"

/* Each connection prepares the statements of one scene. */
struct statements *database_open_cinema(char *why, size_t size);
struct statements *database_open_sale(char *why, size_t size);

/* ----------------------------------------------------------------- cinema */

/* The unsold seats of a showing, at most max of them. */
enum statement_code database_list_free(struct statements *s, uint64_t showing,
                                       uint64_t *seats, size_t max,
                                       size_t *count);

/* The buyer who has a seat; 0: nobody. STATEMENT_NONE: no such seat. */
enum statement_code database_read_buyer(struct statements *s, uint64_t seat,
                                        uint64_t *buyer);

/* Sell a seat if nobody has it; otherwise STATEMENT_NONE. */
enum statement_code database_sell(struct statements *s, uint64_t seat,
                                  uint64_t buyer, uint64_t token);

/* Give the seat to the buyer, whether or not another has it. */
enum statement_code database_overwrite(struct statements *s, uint64_t seat,
                                       uint64_t buyer);

enum statement_code database_charge(struct statements *s, uint64_t seat,
                                    uint64_t buyer, uint64_t token);

/* ------------------------------------------------------------------- sale */

enum statement_code database_read_stock(struct statements *s, uint64_t item,
                                        int64_t *stock);
/* Take a piece, whether or not there is one. */
enum statement_code database_take_piece(struct statements *s, uint64_t item);
enum statement_code database_write_stock(struct statements *s, uint64_t item,
                                         int64_t stock);
/* STATEMENT_DUPLICATE: the buyer already has one. */
enum statement_code database_place_order(struct statements *s, uint64_t item,
                                         uint64_t buyer, uint64_t token);

#endif
