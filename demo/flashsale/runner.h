/* One sale from its beginning to the proof: processes, kills, figures. */
#ifndef DEMO_FLASHSALE_RUNNER_H
#define DEMO_FLASHSALE_RUNNER_H

#include "strategies.h"

struct options {
    const char *redis_uri, *mysql_uri, *protect, *json;
    uint64_t pieces, buyers, twice_pct, processes, threads, kills, runs, seed;
};

/* The figures of a sale: X(field, its name in the table, decimals). The field
 * is its name in JSON. */
#define SALE_FIGURES(X)                                                        \
    X(orders, "orders in the database", 0)                                     \
    X(oversold, "sold without being there", 0)                                 \
    X(stock, "stock left in the database", 0)                                  \
    X(bought_twice, "orders of a buyer who had one", 0)                        \
    X(misled, "buyers told what is not so", 0)                                 \
    X(seconds, "seconds to the last order", 2)                                 \
    X(orders_per_second, NULL, 0)                                              \
    X(most_at_once, "most transactions at once", 0)                            \
    X(stock_queries, "queries to fill the cache", 0)                           \
    X(turned_away, "turned away by the cache alone", 0)                        \
    X(sold_out, "told 'sold out' by the database", 0)                          \
    X(kills, "processes killed", 0)                                            \
    X(kills_inside, "... in a transaction", 0)                                 \
    X(refused, "transactions refused by the guard", 0)                         \
    X(lost, "holds lost before the release", 0)                                \
    X(tokens_backwards, "orders with an older token", 0)                       \
    X(errors, "errors", 0)

struct outcome {
    const char *strategy;
    uint64_t item;
    bool is_exact; /* all pieces were sold, one per buyer, and all buyers were
                      told the truth */
#define SALE_FIELD(field, title, decimals) double field;
    SALE_FIGURES(SALE_FIELD)
#undef SALE_FIELD
    char first_error[160];
};

struct runner;

/* Connect, and empty the tables. Exits on failure. */
struct runner *runner_create(const struct options *options);
void runner_destroy(struct runner *runner);

/* Sell an item (numbered from 1, each only once) with a strategy. Exits, with
 * all children ended, when a server fails. */
void run_sale(struct runner *runner, const struct strategy *strategy,
              uint64_t item, struct outcome *out);

#endif
