/*
 * The undelivered writes of a cache: the invalidations that Redis could not be
 * told, which it is told when it can. A read of such a key delivers first, and
 * takes nothing from Redis until then.
 *
 * Writes that Redis has carried out are remembered for a while, because a
 * failover takes back what the new primary had not received. When the server
 * turns out to be another run, they are undelivered again.
 */
#ifndef SHED_DELIVERY_H
#define SHED_DELIVERY_H

#include <stdbool.h>
#include <stddef.h>

#include <snowshed/snowshed.h>

#include "entry/key.h"
#include "entry/parts.h"

struct shed_delivery;

/* What is to be done to a key. A greater one does what a lesser one does. */
enum shed_wish {
    SHED_WISH_EXPIRE,
    SHED_WISH_INVALIDATE,
    SHED_WISH_TAG /* its keys are tags and no others */
};

/* Borrows cache, whose tag_log has been made. Returns: NULL when out of memory.
 */
struct shed_delivery *shed_delivery_create(struct shed_cache *cache);

/* Try once more to deliver all, for the cache's timeout_ms at most, and tell of
 * what has to be dropped. Not on the reactor thread; nobody else may use it.
 * NULL is allowed. */
void shed_delivery_close(struct shed_delivery *delivery);

/* How many keys are undelivered. Any thread. */
size_t shed_delivery_count(const struct shed_delivery *delivery);

/* A write of a key. */
struct shed_delivery_write {
    enum shed_wish wish;
    uint64_t number;  /* it makes up for the failures up to this one */
    unsigned changes; /* of the server, when it was about to be sent */
};

/* Whether a key, named as Redis has it, is undelivered; cheap while none is.
 * *out, unless it is NULL: its write, to be delivered now. Any thread. */
bool shed_delivery_find(struct shed_delivery *delivery, struct shed_bytes key,
                        struct shed_delivery_write *out);

/* Begin the call that carries such a write of an entry out. The suffix of its
 * refresh lease's name is behind the key; in_ms is when an expiry has its
 * effect, in digits. Both are borrowed. */
void shed_delivery_begin(struct shed_args *args, enum shed_wish wish,
                         struct shed_bytes key, const char *in_ms);

/* To be called before a write is sent, to make up for all failures of the past
 * if it succeeds. Any thread. */
struct shed_delivery_write shed_delivery_mark(struct shed_delivery *delivery,
                                              enum shed_wish wish);

/* A write has been carried out: what it makes up for is no longer undelivered.
 * Any thread. */
void shed_delivery_settle(struct shed_delivery *delivery, struct shed_bytes key,
                          struct shed_delivery_write write);

/* Note how a write of a key has ended, as why says. One that was carried out is
 * settled, and done again if the server turns out to be another one, which may
 * lack it. One that has failed, or may have, becomes undelivered; but not one
 * that ran out of memory, which has changed nothing. why says afterwards what
 * becomes of it, too; of a write that had to be dropped it begins with
 * SHED_DELIVERY_DROPPED. Any thread.
 *
 * The key of a tag, or of all entries, is shed_tag_log_key's. While it is
 * undelivered, the tag is held (see tags.h): its entries are misses, and reads
 * of others are as usual. */
#define SHED_DELIVERY_DROPPED "dropped"
void shed_delivery_follow_up(struct shed_delivery *delivery,
                             const struct shed_key *key,
                             struct shed_delivery_write write,
                             struct shed_error *why);

#endif
