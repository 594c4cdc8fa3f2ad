/*
 * What the writes of keys and of tags share: their calls, which go in one
 * pipeline, and what follows when each has ended. Any thread.
 */
#ifndef SHED_WRITE_H
#define SHED_WRITE_H

#include "cache/cache.h"

/* Check what a write of one key is given. Returns: SHED_OK; SHED_EINVAL,
 * SHED_EFORKED. */
SHED_MUST_CHECK enum shed_code shed_write_check(const struct shed_cache *cache,
                                                struct shed_bytes key,
                                                uint64_t timeout_ms,
                                                struct shed_error *err);

/* Calls of a script, arrays of count. */
struct shed_write_batch {
    size_t count;
    struct shed_args *args; /* for the caller to fill, see shed_script_begin */
    struct shed_reply **replies; /* NULL without one */
    struct shed_error all;       /* how the pipeline has ended */
};

/* Returns: SHED_OK; SHED_ENOMEM: there is nothing to destroy. */
SHED_MUST_CHECK enum shed_code
shed_write_batch_create(struct shed_write_batch *batch, size_t count,
                        struct shed_error *err);

void shed_write_batch_destroy(struct shed_write_batch *batch);

/* Send the calls, which may be carried out late, or twice. */
void shed_write_batch_send(struct shed_write_batch *batch,
                           const struct shed_cache *cache,
                           uint64_t deadline_ms);

/* How a call has ended that got this reply, or none because of all; what is
 * what it should have done. Returns: why it failed, or SHED_OK. */
struct shed_error shed_write_judge(const struct shed_reply *reply,
                                   const struct shed_error *all,
                                   const char *what);

/* Returns: how call i has ended; what is what it should have done. */
struct shed_error shed_write_batch_judge(const struct shed_write_batch *batch,
                                         size_t i, const char *what);

/* Follow the end of a write of a key, which why describes. A success makes up
 * for earlier failures; a failure makes the write undelivered, and why says so
 * afterwards. A write that ran out of memory has changed nothing and is
 * dropped. Returns: false if the write was dropped. */
bool shed_write_follow_up(struct shed_cache *cache, const struct shed_key *key,
                          struct shed_delivery_write write,
                          struct shed_error *why);

/* Count how the invalidation of a key ended, or, with a reason that says so, of
 * a tag, and tell of its success. */
void shed_write_count_invalidation(struct shed_cache *cache,
                                   struct shed_bytes key, const char *reason,
                                   enum shed_code code);

/* How a call for many keys, or tags, ends: with the code of the first one that
 * failed, and the reason of the first that was dropped, else of
 * the first. Begins as {SHED_OK, true, err}. */
struct shed_write_sum {
    enum shed_code code;
    bool are_safe; /* no failed write was dropped */
    struct shed_error *err;
};

/* Add the end of array[i], which why tells; array NULL: it is the only one. */
void shed_write_sum_up(struct shed_write_sum *sum, const char *array, size_t i,
                       const struct shed_error *why, bool is_safe);

#endif
