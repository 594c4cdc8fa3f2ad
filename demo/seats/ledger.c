/* The statements about seats, and the proof, which compares what the database
 * says about a showing with what its buyers were told. */
#include "ledger.h"

enum {
    LIST_FREE,
    READ_BUYER,
    SELL,
    OVERWRITE,
    CHARGE,
    ADD_SEAT,
    COUNT_SEATS,
    LIST_CHARGED,
    FIND_FENCES, /* only prepared, to see that the guard's table exists */
    STATEMENTS
};

static const char *const texts[STATEMENTS] = {
    [LIST_FREE] = "SELECT id FROM seat WHERE showing = ? AND buyer IS NULL "
                  "ORDER BY id LIMIT ?",
    [READ_BUYER] = "SELECT COALESCE(buyer, 0) FROM seat WHERE id = ?",
    [SELL] = "UPDATE seat SET buyer = ?, token = ? "
             "WHERE id = ? AND buyer IS NULL",
    [OVERWRITE] = "UPDATE seat SET buyer = ?, token = 0 WHERE id = ?",
    [CHARGE] = "INSERT INTO charge (seat, buyer, cents, token) "
               "VALUES (?, ?, ?, ?)",
    [ADD_SEAT] = "INSERT INTO seat (id, showing) VALUES (?, ?)",
    /* One row per seat inside: its charges, and those that its buyer paid. */
    [COUNT_SEATS] =
        "SELECT COUNT(*), COUNT(buyer), COALESCE(SUM(charges), 0), "
        "COALESCE(SUM(charges - own), 0), COALESCE(SUM(charges > 1), 0), "
        "COALESCE(SUM(buyer IS NOT NULL AND own = 0), 0) FROM ("
        "SELECT s.id, s.buyer, COUNT(c.id) AS charges, "
        "COALESCE(SUM(c.buyer = s.buyer), 0) AS own "
        "FROM seat AS s LEFT JOIN charge AS c ON c.seat = s.id "
        "WHERE s.showing = ? GROUP BY s.id, s.buyer) AS each_seat",
    [LIST_CHARGED] = "SELECT c.buyer, s.buyer <=> c.buyer FROM charge AS c "
                     "JOIN seat AS s ON s.id = c.seat WHERE s.showing = ?",
    [FIND_FENCES] = "SELECT 1 FROM snowshed_fence",
};

struct statements *ledger_open(char *why, size_t size)
{
    return statements_open(texts, STATEMENTS, "sql/seats.sql and sql/fence.sql",
                           why, size);
}

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

enum statement_code ledger_list_free(struct statements *s, uint64_t showing,
                                     uint64_t *seats, size_t max, size_t *count)
{
    struct list list = {seats, max, 0};
    enum statement_code code = statements_query(
        s, LIST_FREE, (uint64_t[]){showing, max}, 1, add_to_list, &list);

    *count = list.count;
    return code == STATEMENT_NONE ? STATEMENT_OK : code;
}

enum statement_code ledger_read_buyer(struct statements *s, uint64_t seat,
                                      uint64_t *buyer)
{
    return statements_row(s, READ_BUYER, &seat, 1, buyer);
}

/* The connection counts matched rows, not changed ones. Here this makes no
 * difference, because the WHERE matches only rows that are changed. */
enum statement_code ledger_sell(struct statements *s, uint64_t seat,
                                uint64_t buyer, uint64_t token)
{
    return statements_change(s, SELL, (uint64_t[]){buyer, token, seat});
}

enum statement_code ledger_overwrite(struct statements *s, uint64_t seat,
                                     uint64_t buyer)
{
    return statements_change(s, OVERWRITE, (uint64_t[]){buyer, seat});
}

enum statement_code ledger_charge(struct statements *s, uint64_t seat,
                                  uint64_t buyer, uint64_t token)
{
    return statements_change(s, CHARGE,
                             (uint64_t[]){seat, buyer, PRICE_CENTS, token});
}

/* -------------------------------------------------------- for the runner */

enum statement_code ledger_clear(struct statements *s)
{
    enum statement_code code = statements_run(s, "DELETE FROM charge");

    return code == STATEMENT_OK ? statements_run(s, "DELETE FROM seat") : code;
}

enum statement_code ledger_add_seat(struct statements *s, uint64_t seat,
                                    uint64_t showing)
{
    return statements_change(s, ADD_SEAT, (uint64_t[]){seat, showing});
}

struct match {
    const struct showing *showing;
    uint64_t right; /* were told that they bought it, and have it */
    uint64_t wrong; /* were charged, but told that they were not */
    uint64_t untold;
};

/* Compare a charge with what the buyer was told. A buyer whose process was
 * killed was told nothing. */
static void match_charge(void *user, const uint64_t *row)
{
    struct match *m = user;
    const struct showing *h = m->showing;
    enum answer told = ANSWER_NONE;

    if (row[0] >= 1 && row[0] <= h->buyers)
        told = (enum answer)atomic_load(&h->visit[row[0] - 1].answer);
    m->untold += told == ANSWER_NONE;
    m->right += told == ANSWER_BOUGHT && row[1] != 0;
    m->wrong += told != ANSWER_BOUGHT && told != ANSWER_NONE;
}

enum statement_code ledger_prove(struct statements *s,
                                 const struct showing *showing,
                                 struct proof *proof)
{
    struct match m = {.showing = showing};
    uint64_t n[6];
    enum statement_code code =
        statements_row(s, COUNT_SEATS, &showing->number, 6, n);

    if (code == STATEMENT_OK)
        code = statements_query(s, LIST_CHARGED, &showing->number, 2,
                                match_charge, &m);
    if (code != STATEMENT_OK && code != STATEMENT_NONE)
        return code;
    *proof = (struct proof){.seats = n[0],
                            .sold = n[1],
                            .charges = n[2],
                            .untold = m.untold,
                            .in_vain = n[3],
                            .twice = n[4],
                            .unpaid = n[5],
                            .misled = showing_count(showing, ANSWER_BOUGHT) -
                                      m.right + m.wrong};
    return STATEMENT_OK;
}
