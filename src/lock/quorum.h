/*
 * One operation on all servers of a lock, counted: when it has succeeded, and
 * when it can not any more. Pure. With one server it is that server's answer.
 *
 * Source: redis.io, "Distributed Locks with Redis" (the Redlock algorithm), and
 * M. Kleppmann, "How to do distributed locking", 2016, for why the fencing
 * number is written back to a majority before it is used.
 */
#ifndef SHED_LOCK_QUORUM_H
#define SHED_LOCK_QUORUM_H

#include "lock/talk.h"

struct shed_tally {
    enum shed_lock_op op;
    size_t servers;
    size_t yes, no, failed, wrong;
    bool has_waiters; /* one of those that said yes to a release knows some */
    uint64_t fence;   /* highest of those that said yes */
    uint64_t look_ms; /* soonest of those that said no; 0: not known */
    struct shed_error error; /* of the last that failed or was wrong */
};

enum shed_verdict {
    SHED_VERDICT_OPEN,   /* more answers are needed */
    SHED_VERDICT_YES,    /* a majority */
    SHED_VERDICT_NO,     /* ACQUIRE: others have some, and there can be no
                            majority; else: a majority says it is not ours */
    SHED_VERDICT_FAILED, /* neither: too many did not answer */
    SHED_VERDICT_WRONG   /* a majority says that it never can be */
};

void shed_tally_init(struct shed_tally *tally, enum shed_lock_op op,
                     size_t servers);
void shed_tally_add(struct shed_tally *tally, const struct shed_talk *talk);

/* Count as failed who has not answered. */
void shed_tally_close(struct shed_tally *tally, const char *why);

enum shed_verdict shed_tally_verdict(const struct shed_tally *tally);

/* Until when a lease that was asked for at asked_ms is safe: less a hundredth
 * and 2 ms, for clocks that run at different speeds (as Redlock has it). */
uint64_t shed_lock_valid_until_ms(uint64_t asked_ms, uint64_t lease_ms);

/* How long one server of several is waited for: so long that a lease is not
 * used up by one that is dead (a twentieth of it). */
uint64_t shed_lock_patience_ms(uint64_t lease_ms, uint64_t command_timeout_ms);

#endif
