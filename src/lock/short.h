/* A lock's operations in the caller's thread: one round trip, without the
 * engine. */
#ifndef SHED_LOCK_SHORT_H
#define SHED_LOCK_SHORT_H

#include "lock/engine.h"

/* Whether the lock is of a kind that may go this way. */
bool shed_lock_goes_short(const struct shed_lock *l);

/* Under mu. Whether a try may be sent now: nobody waits for the lock here, and
 * nobody elsewhere is to be let in first. */
bool shed_lock_may_try_short_locked(const struct shed_lock *l,
                                    uint64_t wait_ms);

/* Try once to acquire the lock. r's error must be set to the answer for a lock
 * that is taken. Returns: true if the try settled the request, with the answer
 * in r; false if r must be submitted to the engine. */
bool shed_lock_try_short(struct shed_lock *l, struct shed_lock_request *r);

/* Release a hold that has been left. Returns: true if that is settled, with the
 * answer in code; false if the engine must release it. */
bool shed_lock_release_short(struct shed_lock *l, const struct shed_hold *hold,
                             enum shed_code *code, struct shed_error *err);

/* Report a release that was sent twice, so that the first may have
 * succeeded. */
enum shed_code shed_lock_fail_unconfirmed(struct shed_error *err);

#endif
