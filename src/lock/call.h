/* What the calls that block (lock.c) and those that do not (async.c) share. Any
 * thread. */
#ifndef SHED_LOCK_CALL_H
#define SHED_LOCK_CALL_H

#include "lock/engine.h"

/* Whether a handle can be used. Returns: SHED_OK; SHED_EINVAL (NULL),
 * SHED_EFORKED. */
enum shed_code shed_lock_check(const struct shed_lock *lock,
                               struct shed_error *err);

enum shed_code shed_lock_check_wait(uint64_t wait_ms, struct shed_error *err);

/* Fill in an acquire's request. owner NULL: the process.
 * Returns: SHED_OK; SHED_EBUSY (no random numbers are available). */
enum shed_code shed_lock_begin_request(struct shed_lock *lock,
                                       struct shed_lock_request *request,
                                       struct shed_owner *owner,
                                       uint64_t wait_ms,
                                       struct shed_error *err);

/* Count how an acquire ended. */
void shed_lock_count_acquire(struct shed_lock *lock,
                             const struct shed_lock_request *request);

/* A hold that its owner has left: what to release, and how long it lasted. */
struct shed_left {
    struct shed_hold hold;
    uint64_t held_us;
};

/* Under mu. Leave the hold of self, or of the process, once. Returns: true if
 * this was the last entry; *left is set then. Otherwise *code says how it
 * ended. */
bool shed_lock_leave_locked(struct shed_lock *lock,
                            const struct shed_owner *self,
                            struct shed_left *left, enum shed_code *code,
                            struct shed_error *err);

#endif
