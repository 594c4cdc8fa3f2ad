/* Asynchronous calls that the test waits for, in the form of the calls that
 * block, so that a test can make either kind. */
#ifndef AWAITED_H
#define AWAITED_H

#include <stdatomic.h>

#include <snowshed/async.h>

/* How a call has ended. */
struct ending {
    atomic_uint calls; /* of done: 1 when it has ended */
    enum shed_code code;
    struct shed_value *value;
    char reason[SHED_REASON_BYTES];
};

/* A done, whose user is an ending. */
void note_ending(void *user, enum shed_code code, struct shed_value *value,
                 const struct shed_error *reason);

/* As shed_get and the like; each without a queue. */
enum shed_code awaited_get(struct shed_cache *cache, struct shed_bytes key,
                           const struct shed_get_options *options,
                           struct shed_value **value, struct shed_error *err);
enum shed_code awaited_get_many(struct shed_cache *cache,
                                struct shed_item *items, size_t count,
                                const struct shed_get_options *options,
                                struct shed_error *err);
enum shed_code awaited_put(struct shed_cache *cache, struct shed_bytes key,
                           struct shed_bytes row,
                           const struct shed_put_options *options,
                           struct shed_error *err);
enum shed_code awaited_invalidate(struct shed_cache *cache,
                                  struct shed_bytes key, uint64_t timeout_ms,
                                  struct shed_error *err);

#endif
