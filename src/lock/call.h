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
