/* What the tests of locks share: handles of one lock, that must open and be
 * acquired and released; threads that wait for one. */
#ifndef LOCK_FIXTURE_H
#define LOCK_FIXTURE_H

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include <snowshed/lock.h>

#include "support/server.h"
#include "support/testing.h"

/* Longer than any test waits for a lock. */
#define PLENTY_MS ((uint64_t)120000)

/* The lock's name, which is its key with the first three algorithms, and its
 * key with the others. */
#define LOCK_NAME "job"
#define LEASE_KEY "lock:{job}"

/* The algorithms on one server. */
enum { SINGLES = 4 };
extern const enum shed_lock_algorithm singles[SINGLES];

/* A client that waits longer for a reply than a process stops on a busy
 * machine.
 */
struct shed_client *open_client(const struct server *server, uint64_t wait);
struct shed_lock_options options_of(enum shed_lock_algorithm algorithm);
struct shed_lock *open_lock(struct shed_client *client,
                            const struct shed_lock_options *options);

/* They must succeed; and must fail with code. */
void acquire(struct shed_lock *lock, uint64_t wait_ms);
void release(struct shed_lock *lock);
void expect_acquire(struct shed_lock *lock, uint64_t wait_ms,
                    enum shed_code code);
uint64_t fence_of(struct shed_lock *lock);

/* A thread that acquires; it keeps the lock until it may go on. */
struct waiter {
    pthread_t thread;
    struct shed_lock *lock;
    uint64_t wait_ms;
    enum shed_code code;
    enum shed_code release_code;
    uint64_t order; /* as the how manieth it got the lock, from 1 */
    atomic_bool has_ended;
    atomic_bool may_go;
};
void waiter_start(struct waiter *w, struct shed_lock *lock, uint64_t wait_ms);
void waiter_join(struct waiter *w); /* it may go */

/* One that extends the hold of the process; code is how that ended. */
void extender_start(struct waiter *w, struct shed_lock *lock,
                    uint64_t lease_ms);

/* How an asynchronous call ended, as note_outcome is told. */
struct outcome {
    atomic_uint calls;
    atomic_int code;
};
shed_lock_done_fn note_outcome;

/* Wait for its end, which must come once and with code. */
void expect_outcome(struct outcome *out, enum shed_code code);

void acquire_async(struct shed_lock *lock, uint64_t wait_ms,
                   struct outcome *out);

/* Acquire for the whole process. */
void acquire_for_all(struct shed_lock *lock);

/* How often on_lost was called, to be set as on_lost with a counter as user. */
void count_loss(void *counter, struct shed_lock *lock,
                const struct shed_error *reason);

#endif
