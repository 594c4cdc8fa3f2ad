/* What the gets of one key and of many have in common. */
#ifndef SHED_GET_H
#define SHED_GET_H

#include "cache/cache.h"
#include "cache/look.h"

/* The get of one key, by a call of its own or as one of many. */
struct shed_key_get {
    /* set by its maker */
    struct shed_cache *cache;
    struct shed_key key;
    struct shed_terms terms;
    /* the result */
    struct shed_value *value;
    enum shed_code code;
    /* what the steps know */
    bool is_looked; /* look is what a GET has found */
    bool is_reader; /* it counts among the cache's readers */
    bool is_miss;   /* it is counted as one */
    bool is_flying; /* it has joined a flight, whose answer it has not taken */
    struct shed_look look;
    struct shed_caller caller; /* caller.why: why the get failed */
};

/* Not answered yet, and not failed. */
static inline bool shed_get_is_open(const struct shed_key_get *g)
{
    return g->code == SHED_OK && g->value == NULL;
}

/* Check the options of a call, which may be NULL, and that it may be made, and
 * make its terms, all but start_us. errors: where those of the keys of many
 * go; or NULL.
 * Returns: SHED_OK; SHED_EINVAL, SHED_EFORKED.
 */
SHED_MUST_CHECK enum shed_code
shed_get_take_options(const struct shed_cache *cache,
                      const struct shed_get_options *options, bool is_async,
                      struct shed_terms *out, struct shed_error **errors,
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

/* A get of one key as a call, to be submitted, or part of a get of many, whose
 * parts have one is_let_through (see shed_asker; else NULL); its terms begin at
 * their start_us. The memory is the caller's; NULL when out of memory. */
struct shed_pending *shed_async_get_create(struct shed_cache *cache,
                                           const struct shed_key *key,
                                           const struct shed_terms *terms,
                                           bool *is_let_through);

/* What it gets. Before the call begins, its look may be set. */
struct shed_key_get *shed_async_get_of(struct shed_pending *pending);

/* Whether a GET comes first. Where a flight is under way its answer will do,
 * unless it may be older than the invalidation of a tag. */
bool shed_get_looks_first(const struct shed_cache *cache,
                          const struct shed_terms *terms,
                          const struct shed_key *key);

/* Count the end of a get that is not part of one of many, and how long it
 * took. */
void shed_get_count(const struct shed_key_get *g);

/* It needs no GET, or has it. */
void shed_get_end_reading(struct shed_key_get *g);

/* Note why a get has failed. */
void shed_get_fail(struct shed_key_get *g, const struct shed_error *why);

/* Take what the look at the reply to its GET has found. why: NULL, or why there
 * was no such reply: then take what there is without Redis. */
void shed_get_take_look(struct shed_key_get *g, const struct shed_error *why);

/*
 * The steps of a miss, none of which waits.
 *
 * begin; while it is open: join, wait until the caller is told, take the
 * answer; look again; end.
 */

/* Count a miss, and end it if the call may not load. */
void shed_slow_begin(struct shed_key_get *g);

/* Join a flight for g->caller, which says what follows the answer: that is at
 * once if the get cannot join. */
void shed_slow_join(struct shed_key_get *g);

/* Whether it could have an old value, but GET did not say so: it failed, or
 * had to wait until Redis has heard of an invalidation. A GET is then repeated
 * when the load has failed or takes too long, by these terms. */
bool shed_slow_may_have_old(const struct shed_key_get *g);
struct shed_terms shed_slow_second_terms(const struct shed_terms *terms);

/* A get with an old value leaves its flight, which goes on without a caller, if
 * that has begun its load by begun_ms. */
void shed_slow_leave_old(struct shed_key_get *g, uint64_t begun_ms);

/* At the deadline: leave the flight. A get that is being answered at this
 * moment is told so soon. */
void shed_slow_leave(struct shed_key_get *g);

/* Whether the log of tags has to be read before the answer can be taken. */
bool shed_slow_needs_log(const struct shed_key_get *g);

/* Take what the flight has answered; with why, the log could not be read. A
 * value that is too old for the call, or a miss by its tags, leaves the get
 * open: the flight had begun without knowing that it was to be replaced. */
void shed_slow_take_answer(struct shed_key_get *g,
                           const struct shed_error *why);

/* Count the end of a miss, and fall back on an old value. */
void shed_slow_end(struct shed_key_get *g);

#endif
