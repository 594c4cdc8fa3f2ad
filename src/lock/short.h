/* A lock's operations in the caller's thread: one round trip, without the
 * engine. */
#ifndef SHED_LOCK_SHORT_H
#define SHED_LOCK_SHORT_H

#include "lock/engine.h"

/* Whether the lock is of a kind that may go this way. */
bool shed_lock_goes_short(const struct shed_lock *l);

/* Under mu. Whether it may be tried now: nobody waits for it here, nor is to be
 * let in before. */
bool shed_lock_may_try_short_locked(const struct shed_lock *l,
                                    uint64_t wait_ms);

/* Try once to acquire it. What r's error says is the answer if it is another's.
 * Returns: true if that was the answer, which is in r; false: r is to be
 * submitted. */
bool shed_lock_try_short(struct shed_lock *l, struct shed_lock_request *r);

/* Release what was held until now. Returns: true if that was the answer, which
 * is in code; false: it is to be asked of the engine. */
bool shed_lock_release_short(struct shed_lock *l, const struct shed_hold *hold,
                             enum shed_code *code, struct shed_error *err);

/* Fail a release that was sent twice: the first may have been carried out. */
enum shed_code shed_lock_fail_unconfirmed(struct shed_error *err);

#endif
