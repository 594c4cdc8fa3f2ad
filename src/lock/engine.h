/*
 * The engine of a lock: it steps the lock's machine on the home reactor,
 * carries out the acts, and calls back.
 */
#ifndef SHED_LOCK_ENGINE_H
#define SHED_LOCK_ENGINE_H

#include "base/mutex.h"
#include "lock/machine.h"
#include "lock/server.h"

struct shed_lock {
    /* set at creation */
    pid_t pid;
    struct shed_client *home;
    struct shed_lock_options options;
    struct shed_lock_spec spec;
    const char *name; /* in the first of the spec's keys */
    size_t name_size;
    size_t count;
    struct shed_voter *voter; /* count of them, behind the servers */

    struct shed_lock_counters counters;

    struct shed_mutex mu;
    /* under mu */
    struct shed_lock_machine machine;
    uint64_t
        counted_generation;   /* of the last hold whose beginning was counted */
    uint64_t held_since_us;   /* when that hold began; 0: its end was counted */
    uint64_t held_us;         /* how long the last hold that ended lasted */
    uint64_t told_generation; /* of the last hold whose loss was told */
    uint64_t timer_at_ms;     /* the timer runs until then */
    bool is_posted;

    struct shed_post post;
    /* home reactor */
    struct shed_timer *timer;

    struct shed_lock_server server[]; /* count */
};

/* Create the timer and register the listeners. The fields "set at creation"
 * must be set. Not on a reactor thread.
 * Returns: SHED_OK, SHED_ENOMEM (then there is nothing to close). */
SHED_MUST_CHECK enum shed_code shed_lock_engine_open(struct shed_lock *lock,
                                                     struct shed_error *err);

/* End waiting requests with SHED_ECLOSED, release what is held, and stop. */
void shed_lock_engine_close(struct shed_lock *lock);

/* The done of a request for which a thread waits at its latch. */
void shed_lock_count_down(struct shed_lock_request *request);

/* Submit a request; any thread. done will be called exactly once, on the home
 * reactor, and the request belongs to its owner again from then on.
 * Returns: false, and done will not be called: the lock is being closed. */
SHED_MUST_CHECK bool shed_lock_submit(struct shed_lock *lock,
                                      struct shed_lock_request *request);

/* The same, under mu. */
SHED_MUST_CHECK bool shed_lock_submit_locked(struct shed_lock *lock,
                                             struct shed_lock_request *request);

/* End the acquires of this user that may be cancelled. Any thread. Returns: how
 * many. */
size_t shed_lock_cancel_requests(struct shed_lock *lock, const void *user);

/* Under mu, any thread. To be called after a change to the machine: updates the
 * statistics, and posts to the engine if a step is due. */
void shed_lock_changed_locked(struct shed_lock *lock);

/* Whether the session is connected, or has failed to connect for now. Always
 * true if others do not use the session to tell that a holder is alive. If a
 * holder acquired before that and died, nobody would notice until its lease
 * ends. Any thread. */
bool shed_lock_is_settled(const struct shed_lock *lock);

/* Send a request's command in the caller's thread. Returns: true if that
 * settles it, with the answer in the request; false if it must be submitted. */
SHED_MUST_CHECK bool shed_lock_go_short(struct shed_lock *lock,
                                        struct shed_lock_request *request);

/* Count and report how an acquire or a release has ended. Any thread. */
void shed_lock_count(struct shed_lock *lock,
                     const struct shed_lock_request *request);

/* Shared by lock.c, whose calls block, and async.c, whose calls do not. Any
 * thread. */

/* Whether a handle can be used. Returns: SHED_OK; SHED_EINVAL (NULL),
 * SHED_EFORKED. */
enum shed_code shed_lock_check(const struct shed_lock *lock,
                               struct shed_error *err);

/* Fill in an acquire's request, all zero. owner NULL: the process.
 * Returns: SHED_OK; SHED_EBUSY (no random numbers are available). */
enum shed_code shed_lock_begin_request(struct shed_lock_request *request,
                                       struct shed_owner *owner,
                                       uint64_t wait_ms,
                                       struct shed_error *err);

/* Copy the error of a request that has failed. Returns: its code. */
enum shed_code shed_lock_tell_answer(const struct shed_lock_request *request,
                                     struct shed_error *err);

/* Under mu. Leave the hold of self, or of the process, once. Returns: true if
 * this was the last entry: then release is the request that releases it.
 * Otherwise release has the answer. */
bool shed_lock_leave_locked(struct shed_lock *lock,
                            const struct shed_owner *self,
                            struct shed_lock_request *release);

#endif
