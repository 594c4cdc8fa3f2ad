/*
 * A hold: who has the lock in this process, since when, and for how long it is
 * safe. Pure: the caller provides the time, and the mutex that guards the hold.
 */
#ifndef SHED_LOCK_HOLD_H
#define SHED_LOCK_HOLD_H

#include "lock/owner.h"
#include "lock/protocol.h"

struct shed_hold {
    bool is_held;
    struct shed_owner *owner; /* NULL: the process */
    uint64_t count;           /* entries of the owner */
    uint64_t generation; /* of this hold: a late answer carries an older one */
    struct shed_lock_holder holder;
    uint64_t fence;
    struct shed_lock_memory memory; /* the algorithm's */
    uint64_t lease_ms;
    uint64_t since_ms;
    uint64_t valid_until_ms; /* UINT64_MAX: it does not end */
    uint64_t renew_at_ms;    /* UINT64_MAX: it is not renewed */
    uint64_t renew_until_ms; /* the end of renewals; UINT64_MAX: none */
    /* when to write the record again, because the one in Redis names a session
     * that has changed; UINT64_MAX: it has not */
    uint64_t rewrite_at_ms;
};

/* Begin a hold of what an acquire has won; there must be none. */
void shed_hold_begin(struct shed_hold *hold, struct shed_owner *owner,
                     const struct shed_exchange *exchange);

/* The lease was renewed. */
void shed_hold_renew(struct shed_hold *hold,
                     const struct shed_exchange *exchange);

/* A renewal failed: set the time of the next try. A rewrite is urgent: others
 * may take the holder for dead. */
void shed_hold_retry(struct shed_hold *hold, bool is_rewrite, uint64_t now_ms,
                     uint64_t random);

void shed_hold_end(struct shed_hold *hold);

/* Whether the lock is held and its lease is safe at now_ms. */
bool shed_hold_is_safe(const struct shed_hold *hold, uint64_t now_ms);
bool shed_hold_is_mine(const struct shed_hold *hold,
                       const struct shed_owner *owner);

/* When the hold must next be renewed, rewritten or declared lost. UINT64_MAX:
 * never. is_watched: somebody wants to hear of its loss. */
uint64_t shed_hold_due_ms(const struct shed_hold *hold, bool is_watched);

/* Why the hold was lost, as text. */
const char *shed_hold_reason(const struct shed_hold *hold);

static inline uint64_t shed_lock_sooner_ms(uint64_t a_ms, uint64_t b_ms)
{
    return a_ms < b_ms ? a_ms : b_ms;
}

#endif
