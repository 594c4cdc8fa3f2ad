/* The three strategies that the flash sale compares. A thread's get
 * serves one request: ids[0] is what sale_claim gave. */
#ifndef DEMO_FLASHSALE_STRATEGIES_H
#define DEMO_FLASHSALE_STRATEGIES_H

#include "common/strategies.h"
#include "orders_db.h"

/* Without a lock; under SETNX and EXPIRE; with snowshed's lease and guard. */
extern const struct strategy flashsale_none, flashsale_expire,
    flashsale_snowshed;

#define SALE_KEY_BYTES 64

/* What they have in Redis. */
#define SALE_PLAIN_KEY "flashsale-plain:%llu" /* the stock, by none */
#define SALE_CACHE_NAME "flashsale"           /* the stock, by the others */
#define SALE_ENTRY_KEY "flashsale:{%llu}"     /* its entry */
#define SALE_SETNX_NAME "flashsale-setnx:%llu"
#define SALE_LEASE_NAME "flashsale:%llu"

/* Sell as one writes it at first: read the stock, write one less. */
enum answer sell_rewriting(struct statements *db, uint64_t item,
                           uint64_t buyer);

#endif
