/*
 * What the writes of keys and of tags share: their calls, which go in one
 * pipeline, and what follows when each has ended. Any thread.
 */
#ifndef SHED_WRITE_H
#define SHED_WRITE_H

#include "cache/cache.h"

/* How a call has ended that got this reply, or none because of all; what is
 * what it should have done. Returns: why it failed, or SHED_OK. */
struct shed_error shed_write_judge(const struct shed_reply *reply,
                                   const struct shed_error *all,
                                   const char *what);

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

/* The same write of many keys, or tags. */
struct shed_sweep {
    struct shed_cache *cache;
    size_t count;
    const char *array; /* what they are called; NULL: there is only one */
    const char *what;  /* what each call should do */
    /* Make call i; they are made in this order. */
    void (*begin)(struct shed_sweep *sweep, size_t i, struct shed_args *out);
    /* Follow the end of call i, which why describes, and afterwards what
     * becomes of the write. Returns: false if it was dropped. */
    bool (*follow_up)(struct shed_sweep *sweep, size_t i,
                      const struct shed_reply *reply, struct shed_error *why);
};

/* Send the calls, which may be carried out late, or twice. Returns: SHED_OK, or
 * why the first one failed that did; the reason is that of the first that was
 * dropped, else of the first. */
SHED_MUST_CHECK enum shed_code shed_sweep_run(struct shed_sweep *sweep,
                                              uint64_t timeout_ms,
                                              struct shed_error *err);

#endif
