/*
 * A thread's wait for the ends of calls. It belongs to the thread and to the
 * calls, and is freed when the last of them has left it: a thread leaves calls
 * that end too late.
 */
#ifndef SHED_CACHE_AWAIT_H
#define SHED_CACHE_AWAIT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/latch.h"
#include "cache/pending.h"

/* How a call has ended. */
struct shed_outcome {
    struct shed_await *await;
    enum shed_code code;
    struct shed_value *value; /* of the wait, until it is taken */
    struct shed_error *why;   /* see shed_error_keep */
};

struct shed_await {
    struct shed_latch latch;
    atomic_size_t users; /* the thread, and the calls that have not ended */
    struct shed_pending *added;
    size_t count;
    bool is_let_through; /* for its calls, on the reactor thread: the gate has
                            let one pass, and counts them as one */
    struct shed_outcome outcome[]; /* of each call, once all have ended */
};

/* Make a wait for count calls, each of which is then to begin. The caller is to
 * leave it; before the first one begins it may free() it. Returns: NULL when
 * out of memory. */
struct shed_await *shed_await_create(size_t count);

/* Take over the i-th call. It will begin before the calls that were added
 * earlier. */
void shed_await_add(struct shed_await *await, size_t i,
                    struct shed_pending *call);

/* Begin the calls that were added, in one turn of the loop. Not on the reactor
 * thread. */
void shed_await_begin(struct shed_await *await);

/* One of the calls need not begin. */
void shed_await_skip(struct shed_await *await);

/* How much later than its deadline a call may end before its thread leaves it:
 * the loop is blocked, by a callback that takes long. To leave a read costs
 * nothing; a write should have become undelivered before. */
#define SHED_AWAIT_READ_LATE_MS 100
#define SHED_AWAIT_WRITE_LATE_MS 5000

/* Wait for the ends of all calls, which their deadline brings about, until
 * late_ms (shed_now_ms). Returns: SHED_OK; SHED_ETIMEDOUT: they have not
 * ended. */
SHED_MUST_CHECK enum shed_code shed_await_ends(struct shed_await *await,
                                               uint64_t late_ms,
                                               struct shed_error *err);

void shed_await_leave(struct shed_await *await);

/* Begin the only call of a wait, wait for its end, and leave. Returns: how it
 * has ended; *out is its value. */
SHED_MUST_CHECK enum shed_code shed_await_one(struct shed_await *await,
                                              struct shed_pending *call,
                                              uint64_t late_ms,
                                              struct shed_value **out,
                                              struct shed_error *err);

#endif
