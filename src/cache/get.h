/* What the gets of one key and of many have in common. */
#ifndef SHED_GET_H
#define SHED_GET_H

#include "cache/cache.h"
#include "cache/look.h"

/* The keys of one call; arrays of count. */
struct shed_gets {
    struct shed_item *items;
    const struct shed_key *keys;
    struct shed_look *looks;
    struct shed_caller *callers; /* also of hits: for the reason */
    size_t count;
    const struct shed_terms *terms;
};

/* Not answered yet, and not failed. */
static inline bool shed_get_is_miss(const struct shed_item *item)
{
    return item->code == SHED_OK && item->value == NULL;
}

/* Check the options of a call, which may be NULL, and that it may be made, and
 * make its terms; *own is memory for a rule of its own.
 * Returns: SHED_OK; SHED_EINVAL, SHED_EFORKED.
 */
SHED_MUST_CHECK enum shed_code
shed_get_take_options(const struct shed_cache *cache,
                      const struct shed_get_options *options, bool is_async,
                      struct shed_freshness_rule *own, struct shed_terms *out,
                      struct shed_error *err);

/* Check the items of a call for many keys, and set their values to NULL.
 * Returns: SHED_OK; SHED_EINVAL. */
SHED_MUST_CHECK enum shed_code shed_get_check_items(struct shed_item *items,
                                                    size_t count,
                                                    struct shed_error *err);

/* Count how item i has ended, and tell in *own, unless that is NULL, why it
 * failed. *all, at first SHED_OK, is the call's: why the first item failed that
 * did; a miss of a call that may not load decides only where there is nothing
 * worse. */
void shed_get_conclude(struct shed_cache *cache, const struct shed_item *item,
                       size_t i, const char *reason, struct shed_error *own,
                       struct shed_error *all);

/* A get of one key that does not block, to be submitted, or part of a get of
 * many. The memory is the caller's; NULL when out of memory. */
struct shed_pending *shed_async_get_create(const struct shed_cache *cache,
                                           const struct shed_key *key,
                                           const struct shed_terms *terms,
                                           bool is_part);

/* Whether a GET comes first. Where a flight is under way its answer will do,
 * unless it may be older than the invalidation of a tag. */
bool shed_get_looks_first(const struct shed_cache *cache,
                          const struct shed_terms *terms,
                          const struct shed_key *key);

/* The call begins to wait now: set what the terms have from the clock. */
void shed_get_begin(struct shed_terms *terms, uint64_t now_ms);

/* Note why an item has failed. */
void shed_get_fail(struct shed_gets *gets, size_t i,
                   const struct shed_error *why);

/* The slow path: join a flight for each item that is a miss (its code is
 * SHED_OK, and it has no value), and wait until all have answered, or the
 * deadline has passed; with only_cached, end them with SHED_EMISS. Afterwards
 * no item is a miss; the reason of one that failed is in its caller. callers
 * begin as zero. */
void shed_get_slow(struct shed_cache *cache, struct shed_gets *gets);

/*
 * Its steps, none of which waits, for calls that do not.
 *
 * begin; while there are misses: join, wait for the latch, take the answers;
 * look again; end.
 */

/* Count the misses, and end them if the call may not load. Returns: how many
 * there were. */
size_t shed_slow_begin(struct shed_cache *cache, struct shed_gets *gets);

/* Returns: how many items are misses. */
size_t shed_slow_misses(const struct shed_gets *gets);

/* Join a flight for each miss. Each counts the latch down by 1, at once if it
 * cannot join. */
void shed_slow_join(struct shed_cache *cache, struct shed_gets *gets,
                    struct shed_latch *latch);

/* Whether item i could have an old value, but GET did not say so: it failed, or
 * had to wait until Redis has heard of an invalidation. A GET is then repeated
 * when the load has failed or takes too long, by these terms; what it finds is
 * taken over as an old value. */
bool shed_slow_may_have_old(const struct shed_cache *cache,
                            const struct shed_gets *gets, size_t i);
struct shed_terms shed_slow_second_terms(const struct shed_terms *terms);
void shed_slow_take_second(struct shed_look *look);

/* Items with an old value leave their flights, which go on without a caller, if
 * the loads of these began by begun_ms. */
void shed_slow_leave_old(struct shed_cache *cache, struct shed_gets *gets,
                         struct shed_latch *latch, uint64_t begun_ms);

/* At the deadline: leave the flights. Callers that are being answered at this
 * moment count the latch down soon. */
void shed_slow_leave_all(struct shed_cache *cache, struct shed_gets *gets,
                         struct shed_latch *latch);

/* Whether the log of tags has to be read before the answers can be taken. */
bool shed_slow_needs_log(const struct shed_cache *cache,
                         const struct shed_gets *gets);

/* Give the items what their callers were answered; with why, the log could not
 * be read. A value that is too old for the call, or a miss by its tags, leaves
 * its item a miss: the flight had begun without knowing that it was to be
 * replaced. */
void shed_slow_take_answers(struct shed_cache *cache, struct shed_gets *gets,
                            const struct shed_error *why);

/* Count the end, and fall back on old values. misses: what begin returned. */
void shed_slow_end(struct shed_cache *cache, struct shed_gets *gets,
                   size_t misses);

#endif
