/* What the gets of one key and of many have in common. */
#ifndef SHED_GET_H
#define SHED_GET_H

#include "cache/cache.h"
#include "cache/look.h"

/* The keys of one call; arrays of count. */
struct shed_gets {
    struct shed_item *items;
    const struct shed_named_key *named;
    struct shed_look *looks;
    struct shed_caller *callers; /* also of hits: for the error */
    size_t count;
    const struct shed_terms *terms;
};

/* Check the options of a call that blocks, which may be NULL, and make its
 * terms; *own is memory for a rule of its own.
 * Returns: SHED_OK; SHED_EINVAL, SHED_EFORKED.
 */
SHED_MUST_CHECK enum shed_code
shed_get_take_options(const struct shed_cache *cache,
                      const struct shed_get_options *options,
                      struct shed_freshness_rule *own, struct shed_terms *out,
                      struct shed_error *err);

/* The call begins to wait now: set what the terms have from the clock. */
void shed_get_begin(struct shed_terms *terms, uint64_t now_ms);

/* The slow path: join a flight for each item that is a miss (its code is
 * SHED_OK, and it has no value), and wait until all have answered, or the
 * deadline has passed; with only_cached, end them with SHED_EMISS. Afterwards
 * no item is a miss; the reason of one that failed is in its caller. callers
 * begin as zero. */
void shed_get_slow(struct shed_cache *cache, struct shed_gets *gets);

#endif
