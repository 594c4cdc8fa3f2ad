/* What the writes of a cache share: how one has ended, and what follows that.
 * Any thread. */
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

#endif
