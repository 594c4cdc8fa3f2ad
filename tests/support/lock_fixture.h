/* Shared by the tests of locks: handles of one lock, calls that must succeed,
 * and threads that wait for the lock. */
#ifndef LOCK_FIXTURE_H
#define LOCK_FIXTURE_H

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include <snowshed/lock.h>

#include "support/server.h"
#include "support/testing.h"

/* The server of a test with one. The two functions are its checked fixture. */
extern struct server server;
void server_up(void);
void server_down(void);

/* Longer than any test waits for a lock. */
#define PLENTY_MS ((uint64_t)120000)

/* The lock's name, which is its key with the first three algorithms, and its
 * key with the others. */
#define LOCK_NAME "job"
#define LEASE_KEY "lock:{job}"

/* The algorithms on one server, from LEASED on those with a lease. */
enum { SINGLES = 4, LEASED = 1 };
extern const enum shed_lock_algorithm singles[SINGLES];

/* Open a client whose command timeout is longer than a process stops on a busy
 * machine. server_down closes those that are still open. */
struct shed_client *open_client(const struct server *s, uint64_t wait);

/* The same with this timeout. */
struct shed_client *open_timed(const char *uri, uint64_t command_timeout_ms);
struct shed_lock_options options_of(enum shed_lock_algorithm algorithm);
struct shed_lock *open_lock(struct shed_client *client,
                            const struct shed_lock_options *options);

/* A client lives until the last of its locks is closed. So close_client closes
 * its locks that were opened by open_kept and not yet closed by close_kept. */
struct shed_lock *open_kept(struct shed_client *client,
                            const struct shed_lock_options *options);

/* The same with a client of its own; open_of: with default options. */
struct shed_lock *open_alone(const struct shed_lock_options *options);
struct shed_lock *open_of(enum shed_lock_algorithm algorithm);
void close_kept(struct shed_lock *lock);
void close_client(struct shed_client *client);

/* Wait until waiters have asked for LEASE locks this many times more; a restart
 * of the server resets the count. */
void wait_until_asked(const struct server *s, long long times);

/* These must succeed, or fail with code. */
void acquire(struct shed_lock *lock, uint64_t wait_ms);
void release(struct shed_lock *lock);
void expect_acquire(struct shed_lock *lock, uint64_t wait_ms,
                    enum shed_code code);
uint64_t fence_of(struct shed_lock *lock);

/* A thread that acquires the lock and keeps it until waiter_join. */
struct waiter {
    pthread_t thread;
    struct shed_lock *lock;
    uint64_t wait_ms;
    enum shed_code code;
    enum shed_code release_code;
    uint64_t order; /* its position in the order of acquisition, from 1 */
    atomic_bool has_ended;
    atomic_bool may_go;
};
void waiter_start(struct waiter *w, struct shed_lock *lock, uint64_t wait_ms);
void waiter_join(struct waiter *w); /* let it release and end */

/* A thread that extends the hold of the process; code is the result. */
void extender_start(struct waiter *w, struct shed_lock *lock,
                    uint64_t lease_ms);

/* The result of an asynchronous call, as note_outcome has noted it. */
struct outcome {
    atomic_uint calls;
    atomic_int code;
};
shed_lock_done_fn note_outcome;

/* Wait for the result, which must come exactly once and be code. */
void expect_outcome(struct outcome *out, enum shed_code code);

void acquire_async(struct shed_lock *lock, uint64_t wait_ms,
                   struct outcome *out);

/* Acquire for the whole process. */
void acquire_for_all(struct shed_lock *lock);

/* An on_lost that counts its calls since server_up, or of the program. */
extern atomic_uint losses;
shed_lock_lost_fn count_loss;

#endif
