/*
 * Counts the answers to one operation on all servers of a lock, and says when
 * it has succeeded and when it no longer can. Pure. With one server the verdict
 * is that server's answer.
 *
 * Source: redis.io, "Distributed Locks with Redis" (the Redlock algorithm), and
 * M. Kleppmann, "How to do distributed locking", 2016, for why the fencing
 * number is written back to a majority before it is used.
 */
#ifndef SHED_LOCK_QUORUM_H
#define SHED_LOCK_QUORUM_H

#include "lock/protocol.h"

struct shed_tally {
    enum shed_lock_op op;
    size_t servers;
    size_t ended[SHED_EXCHANGE_ENDS]; /* how many, with each end */
    bool has_waiters; /* a server that said yes to a release knows of some */
    uint64_t fence;   /* the highest of the servers that said yes */
    uint64_t look_ms; /* the soonest of the servers that said no; 0: unknown */
    struct shed_error error; /* of the last server that FAILED or was WRONG */
};

enum shed_verdict {
    SHED_VERDICT_OPEN, /* more answers are needed */
    SHED_VERDICT_YES,  /* a majority */
    SHED_VERDICT_NO, /* ACQUIRE: others have some servers, and a majority is out
                        of reach; else: a majority says that it is not ours */
    SHED_VERDICT_FAILED, /* neither, because too many did not answer */
    SHED_VERDICT_WRONG   /* a majority says that it can never succeed */
};

/* Begin with op, servers and zeros. */
void shed_tally_add(struct shed_tally *tally,
                    const struct shed_exchange *exchange);

/* Count a server that is not asked, or all that have not answered, as failed.
 */
void shed_tally_skip(struct shed_tally *tally, const char *why);
void shed_tally_close(struct shed_tally *tally, const char *why);

enum shed_verdict shed_tally_verdict(const struct shed_tally *tally);

/* Until when the lease that was requested is safe: its end, less a hundredth of
 * the lease and 2 ms for clocks that run at different speeds (as in Redlock).
 * UINT64_MAX: the lock does not expire. */
uint64_t shed_lock_valid_until_ms(const struct shed_exchange *exchange);

/* How long a round waits for the last of its servers: a twentieth of the lease,
 * so that a dead server does not use up the lease. UINT64_MAX: there is only
 * one, and its answer, or the failure of its connection, is waited for. */
uint64_t shed_quorum_patience_ms(size_t servers, uint64_t lease_ms,
                                 uint64_t command_timeout_ms);

/* Whether a server that has been running for age_ms has no vote in an exchange,
 * because it may have forgotten a lock that it granted. With several servers,
 * an acquire does not ask such a server until it has been running for a whole
 * lease; an extension may take the lock there, which counts for nothing. If it
 * restarted while it was asked, or has not told its age (SHED_AGE_UNKNOWN), its
 * answer (is_answered) says nothing: that it granted the lock, or that the
 * holder has lost it. It keeps others out in either case, like one that is
 * silent. */
bool shed_quorum_is_void(size_t servers, const struct shed_exchange *exchange,
                         bool is_answered, uint64_t age_ms);

#endif
