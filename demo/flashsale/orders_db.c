/* The statements of the flash sale, and the proof, which compares the orders in
 * the database with what the buyers were told. */
#include "orders_db.h"

enum {
    READ_STOCK,
    TAKE_PIECE,
    WRITE_STOCK,
    PLACE_ORDER,
    PUT_ON_SALE,
    COUNT_ORDERS,
    COUNT_BACKWARDS,
    LIST_BUYERS,
    FIND_FENCES, /* only prepared, to see that the guard's table exists */
    TEXTS
};

/* A stock may be negative, but results are unsigned: the CAST gives its two's
 * complement. */
static const char *const texts[TEXTS] = {
    [READ_STOCK] =
        "SELECT CAST(stock AS UNSIGNED) FROM flashsale_item WHERE id = ?",
    [TAKE_PIECE] = "UPDATE flashsale_item SET stock = stock - 1 WHERE id = ?",
    [WRITE_STOCK] = "UPDATE flashsale_item SET stock = ? WHERE id = ?",
    [PLACE_ORDER] = "INSERT INTO flashsale_order (item, buyer, token) "
                    "VALUES (?, ?, ?)",
    [PUT_ON_SALE] = "INSERT INTO flashsale_item (id, strategy, pieces, stock) "
                    "VALUES (?, ?, ?, ?)",
    [COUNT_ORDERS] = "SELECT CAST(i.stock AS UNSIGNED), COUNT(o.id), "
                     "COUNT(DISTINCT o.buyer) "
                     "FROM flashsale_item AS i "
                     "LEFT JOIN flashsale_order AS o ON o.item = i.id "
                     "WHERE i.id = ? GROUP BY i.id, i.stock",
    [COUNT_BACKWARDS] =
        "SELECT COUNT(*) FROM (SELECT token < LAG(token) OVER (ORDER BY id) "
        "AS is_less FROM flashsale_order WHERE item = ?) AS t WHERE is_less",
    [LIST_BUYERS] = "SELECT buyer FROM flashsale_order WHERE item = ?",
    [FIND_FENCES] = "SELECT 1 FROM snowshed_fence",
};

struct statements *orders_open(char *why, size_t size)
{
    return statements_open(texts, TEXTS, "sql/flashsale.sql and sql/fence.sql",
                           why, size);
}

enum statement_code orders_begin(struct statements *t)
{
    return statements_run(t, "START TRANSACTION");
}

enum answer orders_settle(struct statements *t, enum statement_code code)
{
    switch (statements_settle(t, code)) {
    case STATEMENT_OK:
        return ANSWER_SOLD;
    case STATEMENT_NONE:
        return ANSWER_SOLD_OUT;
    case STATEMENT_DUPLICATE:
        return ANSWER_HAS_ONE;
    case STATEMENT_AGAIN:
        return ANSWER_AGAIN;
    default:
        return ANSWER_FAILED;
    }
}

enum statement_code orders_read_stock(struct statements *t, uint64_t item,
                                      int64_t *stock)
{
    uint64_t number = 0;
    enum statement_code code = statements_row(t, READ_STOCK, &item, 1, &number);

    *stock = (int64_t)number;
    return code;
}

enum statement_code orders_take_piece(struct statements *t, uint64_t item)
{
    return statements_change(t, TAKE_PIECE, &item);
}

enum statement_code orders_write_stock(struct statements *t, uint64_t item,
                                       int64_t stock)
{
    return statements_change(t, WRITE_STOCK,
                             (uint64_t[]){(uint64_t)stock, item});
}

enum statement_code orders_place_order(struct statements *t, uint64_t item,
                                       uint64_t buyer, uint64_t token)
{
    return statements_change(t, PLACE_ORDER, (uint64_t[]){item, buyer, token});
}

/* -------------------------------------------------------- for the runner */

enum statement_code orders_clear(struct statements *t)
{
    enum statement_code code = statements_run(t, "DELETE FROM flashsale_order");

    if (code == STATEMENT_OK)
        code = statements_run(t, "DELETE FROM flashsale_item");
    return code;
}

enum statement_code orders_put_on_sale(struct statements *t, uint64_t item,
                                       uint64_t strategy, uint64_t pieces)
{
    return statements_change(t, PUT_ON_SALE,
                             (uint64_t[]){item, strategy, pieces, pieces});
}

struct match {
    const struct sale *sale;
    uint64_t agree, orders;
};

static void match_buyer(void *user, const uint64_t *row)
{
    struct match *m = user;

    m->orders++;
    m->agree += row[0] < m->sale->plan.buyers &&
                atomic_load(&m->sale->is_told[row[0]]) != 0;
}

enum statement_code orders_prove(struct statements *t, const struct sale *sale,
                                 struct proof *proof)
{
    uint64_t item = sale->plan.item, counts[3], backwards;
    struct match m = {.sale = sale};
    enum statement_code code =
        statements_row(t, COUNT_ORDERS, &item, 3, counts);

    if (code == STATEMENT_OK)
        code = statements_row(t, COUNT_BACKWARDS, &item, 1, &backwards);
    if (code != STATEMENT_OK)
        return code;
    code = statements_query(t, LIST_BUYERS, &item, 1, match_buyer, &m);
    if (code != STATEMENT_OK && code != STATEMENT_NONE)
        return code;
    *proof = (struct proof){.stock = (int64_t)counts[0],
                            .orders = counts[1],
                            .buyers = counts[2],
                            .misled = m.orders - m.agree +
                                      atomic_load(&sale->buyers_told) - m.agree,
                            .backwards = backwards};
    return STATEMENT_OK;
}
