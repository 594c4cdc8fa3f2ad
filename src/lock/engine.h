/*
 * The engine of a lock: on the home reactor it steps the lock's machine,
 * carries out what that says, and calls back.
 */
#ifndef SHED_LOCK_ENGINE_H
#define SHED_LOCK_ENGINE_H

#include <pthread.h>

#include "base/stats.h"
#include "lock/machine.h"
#include "lock/server.h"

struct shed_lock {
    /* set at creation */
    pid_t pid;
    struct shed_client *home;
    struct shed_lock_options options;
    struct shed_lock_spec spec;
    const struct shed_algorithm *algorithm;
    const char *name; /* in the first of the spec's keys */
    size_t name_size;
    size_t count;
    struct shed_voter *voter; /* count of them, behind the servers */

    struct shed_lock_counters counters;

    pthread_mutex_t mu;
    /* under mu */
    struct shed_lock_machine machine;
    uint64_t counted_generation; /* of the last hold that was seen to begin */
    uint64_t held_since_us;      /* of that one; 0: its end was counted */
    uint64_t held_us;            /* how long the last that ended lasted */
    uint64_t timer_at_ms;        /* the timer runs until then */
    bool is_posted;
    struct shed_latch *closing; /* to be opened when all is over */

    struct shed_post post;
    /* home reactor */
    struct shed_timer *timer;

    struct shed_lock_server server[]; /* count */
};

/* Make the timer, and hear of changes. The lock's fields set at creation are.
 * Not on a reactor thread.
 * Returns: SHED_OK, SHED_ENOMEM (then there is nothing to close). */
SHED_MUST_CHECK enum shed_code shed_lock_engine_open(struct shed_lock *lock,
                                                     struct shed_error *err);

/* End what waits with SHED_ECLOSED, release what is held, and stop. */
void shed_lock_engine_close(struct shed_lock *lock);

/* Hand a request over; any thread. done will be called on the home reactor,
 * exactly once; the request is its owner's again then.
 * Returns: false, and done will not be called: the lock is being closed. */
SHED_MUST_CHECK bool shed_lock_submit(struct shed_lock *lock,
                                      struct shed_lock_request *request);

/* The same, under mu. */
SHED_MUST_CHECK bool shed_lock_submit_locked(struct shed_lock *lock,
                                             struct shed_lock_request *request);

/* Let the acquires of this user that may be cancelled end. Any thread.
 * Returns: how many. */
size_t shed_lock_cancel_requests(struct shed_lock *lock, const void *user);

/* Under mu, any thread. Note what was changed of the machine: count it, and
 * have the engine look after it if it must. */
void shed_lock_changed_locked(struct shed_lock *lock);

/* Whether the session with Redis is there, or will not be for now, where
 * others see by it that a holder lives. A holder that acquires before that, and
 * dies, would be missed by nobody until its lease ends. Any thread. */
bool shed_lock_is_settled(const struct shed_lock *lock);

/* Tell the first client's events of something about the lock. Any thread. */
void shed_lock_tell(const struct shed_lock *lock, enum shed_event_kind kind,
                    enum shed_code outcome, uint64_t duration_us,
                    const char *reason);

/* How the release of a hold ended that lasted held_us. Any thread. */
void shed_lock_count_release(struct shed_lock *lock, enum shed_code code,
                             uint64_t held_us);

#endif
