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

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include <snowshed/snowshed.h>

#include "entry/key.h"
#include "entry/parts.h"
#include "known/undelivered.h"

struct shed_delivery;

/* Borrows cache, whose tag_log has been made. Returns: SHED_OK,
 * SHED_ENOMEM. */
SHED_MUST_CHECK enum shed_code shed_delivery_create(struct shed_cache *cache,
                                                    struct shed_delivery **out,
                                                    struct shed_error *err);

/* Try once more to deliver all, for timeout_ms at most, and tell of
 * what has to be dropped. Not on the reactor thread; nobody else may use it.
 * NULL is allowed. */
void shed_delivery_close(struct shed_delivery *delivery, uint64_t timeout_ms);

/* How many keys are undelivered. Any thread. */
size_t shed_delivery_count(const struct shed_delivery *delivery);

/* Whether a key is undelivered; cheap while none is. Any thread. */
bool shed_delivery_has(struct shed_delivery *delivery,
                       const struct shed_key *key);

/* A write of a key. */
struct shed_delivery_write {
    enum shed_wish wish;
    uint64_t number;  /* it makes up for the failures up to this one */
    unsigned changes; /* of the server, when it was about to be sent */
};

/* Look a key up, named as Redis has it, to deliver its write now.
 * Returns: false if the key has none. Any thread. */
bool shed_delivery_find(struct shed_delivery *delivery, const char *key,
                        size_t size, struct shed_delivery_write *out);

/* Begin the call that carries such a write of an entry out. name is that of its
 * refresh lease, which begins with the key, of size bytes; in_ms is when an
 * expiry has its effect, in digits. Both are borrowed. */
void shed_delivery_begin(struct shed_args *args, enum shed_wish wish,
                         const char *name, size_t size, const char *in_ms);

/* To be called before a write is sent, to make up for all failures of the past
 * if it succeeds. Any thread. */
struct shed_delivery_write shed_delivery_mark(struct shed_delivery *delivery,
                                              enum shed_wish wish);

/* A write has been carried out: what it makes up for is no longer undelivered.
 * Any thread. */
void shed_delivery_settle(struct shed_delivery *delivery, const char *key,
                          size_t size, struct shed_delivery_write write);

/* A write of a key has been carried out: do it again if the server turns out to
 * be another one, which may lack it. Any thread. */
void shed_delivery_remember(struct shed_delivery *delivery,
                            const struct shed_key *key,
                            struct shed_delivery_write write);

/* Add a write that has failed, or may have; why says how, and afterwards also
 * what becomes of the write. Any thread. Returns: false if it was dropped. */
bool shed_delivery_add(struct shed_delivery *delivery,
                       const struct shed_key *key, enum shed_wish wish,
                       struct shed_error *why);

/* Settle and add the invalidation of a tag, or of all entries (no bytes).
 * While it is undelivered, the tag is held (see tags.h): its entries are
 * misses, and reads of others are as usual. */
void shed_delivery_settle_tag(struct shed_delivery *delivery,
                              struct shed_bytes tag, uint64_t number);
bool shed_delivery_add_tag(struct shed_delivery *delivery,
                           struct shed_bytes tag, struct shed_error *why);

#endif
