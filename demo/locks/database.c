/* All parameters and results are numbers. */
#include "database.h"

#include <stdio.h>

#include "common/place.h"

#define PRICE_CENTS 1200

enum { LIST_FREE, READ_BUYER, SELL, OVERWRITE, CHARGE, CINEMA };

static const char *const cinema[CINEMA] = {
    [LIST_FREE] = "SELECT id FROM seat WHERE showing = ? AND buyer IS NULL "
                  "ORDER BY id LIMIT ?",
    [READ_BUYER] = "SELECT COALESCE(buyer, 0) FROM seat WHERE id = ?",
    [SELL] = "UPDATE seat SET buyer = ?, token = ? "
             "WHERE id = ? AND buyer IS NULL",
    [OVERWRITE] = "UPDATE seat SET buyer = ?, token = 0 WHERE id = ?",
    [CHARGE] = "INSERT INTO charge (seat, buyer, cents, token) "
               "VALUES (?, ?, ?, ?)"};

enum { READ_STOCK, TAKE_PIECE, WRITE_STOCK, PLACE_ORDER, SALE };

/* A stock may be negative, but results are unsigned: the CAST gives its two's
 * complement. */
static const char *const sale[SALE] = {
    [READ_STOCK] =
        "SELECT CAST(stock AS UNSIGNED) FROM flashsale_item WHERE id = ?",
    [TAKE_PIECE] = "UPDATE flashsale_item SET stock = stock - 1 WHERE id = ?",
    [WRITE_STOCK] = "UPDATE flashsale_item SET stock = ? WHERE id = ?",
    [PLACE_ORDER] = ("INSERT INTO flashsale_order (item, buyer, token) "
                     "VALUES (?, ?, ?)")};

static struct statements *open_statements(const char *const *texts,
                                          const char *files, char *why,
                                          size_t size)
{
    MYSQL *mysql = mysql_init(NULL);
    struct shed_error err;

    if (place_connect(mysql, CLIENT_FOUND_ROWS, &err) == SHED_OK)
        return statements_open(mysql, texts, files, why, size);
    (void)snprintf(why, size, "database: %s", err.reason);
    mysql_close(mysql);
    return NULL;
}

struct statements *database_open_cinema(char *why, size_t size)
{
    return open_statements(cinema, "sql/seats.sql and sql/fence.sql", why,
                           size);
}

struct statements *database_open_sale(char *why, size_t size)
{
    return open_statements(sale, "sql/flashsale.sql and sql/fence.sql", why,
                           size);
}

/* ----------------------------------------------------------------- cinema */

struct list {
    uint64_t *seats;
    size_t max, count;
};

static void add_to_list(void *user, const uint64_t *row)
{
    struct list *list = user;

    if (list->count < list->max)
        list->seats[list->count++] = row[0];
}

enum statement_code database_list_free(struct statements *s, uint64_t showing,
                                       uint64_t *seats, size_t max,
                                       size_t *count)
{
    struct list list = {seats, max, 0};
    uint64_t limit = max;
    enum statement_code code = statements_query(
        s, LIST_FREE,
        (MYSQL_BIND[]){statement_number(&showing), statement_number(&limit)}, 1,
        add_to_list, &list);

    *count = list.count;
    return code == STATEMENT_NONE ? STATEMENT_OK : code;
}

enum statement_code database_read_buyer(struct statements *s, uint64_t seat,
                                        uint64_t *buyer)
{
    return statements_row(s, READ_BUYER,
                          (MYSQL_BIND[]){statement_number(&seat)}, 1, buyer);
}

/* The connection counts matched rows, not changed ones. Here this makes no
 * difference, because the WHERE matches only rows that are changed. */
enum statement_code database_sell(struct statements *s, uint64_t seat,
                                  uint64_t buyer, uint64_t token)
{
    return statements_change(s, SELL,
                             (MYSQL_BIND[]){statement_number(&buyer),
                                            statement_number(&token),
                                            statement_number(&seat)});
}

enum statement_code database_overwrite(struct statements *s, uint64_t seat,
                                       uint64_t buyer)
{
    return statements_change(
        s, OVERWRITE,
        (MYSQL_BIND[]){statement_number(&buyer), statement_number(&seat)});
}

enum statement_code database_charge(struct statements *s, uint64_t seat,
                                    uint64_t buyer, uint64_t token)
{
    uint64_t cents = PRICE_CENTS;

    return statements_change(
        s, CHARGE,
        (MYSQL_BIND[]){statement_number(&seat), statement_number(&buyer),
                       statement_number(&cents), statement_number(&token)});
}

/* ------------------------------------------------------------------- sale */

enum statement_code database_read_stock(struct statements *s, uint64_t item,
                                        int64_t *stock)
{
    uint64_t number = 0;
    enum statement_code code = statements_row(
        s, READ_STOCK, (MYSQL_BIND[]){statement_number(&item)}, 1, &number);

    *stock = (int64_t)number;
    return code;
}

enum statement_code database_take_piece(struct statements *s, uint64_t item)
{
    return statements_change(s, TAKE_PIECE,
                             (MYSQL_BIND[]){statement_number(&item)});
}

enum statement_code database_write_stock(struct statements *s, uint64_t item,
                                         int64_t stock)
{
    uint64_t number = (uint64_t)stock;

    return statements_change(
        s, WRITE_STOCK,
        (MYSQL_BIND[]){statement_number(&number), statement_number(&item)});
}

enum statement_code database_place_order(struct statements *s, uint64_t item,
                                         uint64_t buyer, uint64_t token)
{
    return statements_change(s, PLACE_ORDER,
                             (MYSQL_BIND[]){statement_number(&item),
                                            statement_number(&buyer),
                                            statement_number(&token)});
}
