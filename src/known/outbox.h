/*
 * The outbox of a cache: the invalidations that Redis could not be told, kept
 * and delivered when it can. A read of such a key delivers first, and takes
 * nothing from Redis until then.
 */
#ifndef SHED_OUTBOX_H
#define SHED_OUTBOX_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include <snowshed/snowshed.h>

#include "base/stats.h"
#include "known/pending.h"
#include "client/client.h"

struct shed_tag_log;
struct shed_key;
struct shed_outbox;

/* Make the outbox of the cache of this name. What is passed must outlive it,
 * but for options. tag_log can be NULL.
 * Returns: SHED_OK, SHED_ENOMEM. */
SHED_MUST_CHECK enum shed_code
shed_outbox_create(struct shed_client *client, const char *name,
                   const struct shed_cache_options *options,
                   struct shed_counters *counters, struct shed_tag_log *tag_log,
                   struct shed_outbox **out, struct shed_error *err);

/* Try once more to deliver what is kept, for timeout_ms at most, and tell of
 * what has to be dropped. Not on the reactor thread; nobody else may use it.
 * NULL is allowed. */
void shed_outbox_close(struct shed_outbox *outbox, uint64_t timeout_ms);

/* How many keys are kept. Any thread. */
size_t shed_outbox_count(const struct shed_outbox *outbox);

/* Whether a key is kept; cheap while none is. Any thread. */
bool shed_outbox_has(struct shed_outbox *outbox, const struct shed_key *key);

/* A write that is still to be delivered. */
struct shed_outbox_write {
    enum shed_wish wish;
    uint64_t number; /* makes up for what failed until now */
};

/* Look a key up, named as Redis has it, to deliver its write now.
 * Returns: false if the key is not kept. Any thread. */
bool shed_outbox_find(struct shed_outbox *outbox, const char *key, size_t size,
                      struct shed_outbox_write *out);

/* Begin the call that carries such a write of an entry out now. name is that of
 * its refresh lease, which begins with the key, of size bytes; borrowed. */
void shed_outbox_begin(struct shed_args *args, enum shed_wish wish,
                       const char *name, size_t size);

/* To be asked before a write is sent: for which failures of the past it makes
 * up if it succeeds. Any thread. */
uint64_t shed_outbox_mark(struct shed_outbox *outbox);

/* A write has been carried out: what it makes up for is no longer kept. Any
 * thread. */
void shed_outbox_settle(struct shed_outbox *outbox, const char *key,
                        size_t size, struct shed_outbox_write write);

/* Keep a write that has failed, or may have; why says how, and afterwards also
 * what becomes of the write. Any thread. Returns: false if it is not kept. */
bool shed_outbox_keep(struct shed_outbox *outbox, const struct shed_key *key,
                      enum shed_wish wish, struct shed_error *why);

/* The same for the invalidation of a tag, or of all entries (no bytes).
 * While it is kept, the tag is held (see tags.h): its entries are misses,
 * and reads of others are as usual. */
void shed_outbox_settle_tag(struct shed_outbox *outbox, struct shed_bytes tag,
                            uint64_t number);
bool shed_outbox_keep_tag(struct shed_outbox *outbox, struct shed_bytes tag,
                          struct shed_error *why);

#endif
