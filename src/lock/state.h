/*
 * A lock in one process, as a state machine: who waits for it, who holds it,
 * what its servers were asked. Pure: events and facts go in, an act comes out.
 * It does no I/O, reads no clock, starts no thread and allocates nothing.
 *
 * Requests wait in a queue. Only the first one asks the servers, because only
 * one can win, and it does not ask while this handle itself holds the lock. In
 * a fair lock each request asks once, to be enlisted. In any lock a request
 * asks once before its time ends, unless another has asked since it came.
 */
#ifndef SHED_LOCK_STATE_H
#define SHED_LOCK_STATE_H

#include "base/container.h"
#include "base/list.h"
#include "base/stats.h"
#include "lock/owner.h"
#include "lock/quorum.h"
#include "lock/voter.h"

/* A hold: who has the lock in this process, since when, and for how long it is
 * safe. valid_until_ms counts from before a command was sent; it grows only
 * when Redis has confirmed a lease, and shrinks before a shorter one is
 * requested. */
struct shed_hold {
    bool is_held;
    struct shed_owner *owner; /* NULL: the process */
    uint64_t count;           /* entries of the owner */
    uint64_t generation; /* of this hold: a late answer carries an older one */
    struct shed_lock_holder holder;
    uint64_t fence;
    uint64_t lease_ms;
    uint64_t since_ms, granted_us; /* when it was requested, and granted */
    uint64_t valid_until_ms;       /* UINT64_MAX: it does not end */
    /* when the record is written again, to prolong the lease, or because it
     * names a session that has changed; UINT64_MAX: it is not */
    uint64_t renew_at_ms;
    uint64_t renew_until_ms; /* the end of renewals; UINT64_MAX: none */
    unsigned epochs;         /* of the lock, when the record was written */
};

enum shed_lock_life {
    SHED_LOCK_OPEN,
    SHED_LOCK_CLOSING, /* requests are no longer accepted; waiting ones are
                          ended, and the hold is released */
    SHED_LOCK_CLOSED   /* the closer has been told: nothing is under way, and
                          nothing begins */
};

struct shed_lock_request {
    struct shed_node node; /* in the machine's or the act's list */
    /* the question */
    enum shed_lock_op op;
    struct shed_lock_holder holder;
    struct shed_owner *owner; /* ACQUIRE: whose hold it will be */
    uint64_t deadline_ms;     /* ACQUIRE */
    uint64_t lease_ms;        /* EXTEND */
    uint64_t fence_number;    /* ADVANCE: later tokens are above it */
    uint64_t generation;      /* EXTEND: of the hold */
    uint64_t begun_us;        /* ACQUIRE */
    uint64_t held_us;         /* RELEASE: how long the hold lasted */
    /* Who is told of the answer: the thread that waits at the latch, or done */
    struct shed_latch *latch;
    shed_lock_done_fn *done; /* of a call that does not block, or NULL */
    void *user;              /* done's */
    bool is_inner; /* RELEASE: an inner entry was left, so there is nothing to
                      ask */
    bool is_cancelled; /* it ends as soon as nothing is under way, and can no
                          longer win */
    bool is_tried;     /* it has asked. ACQUIRE: it ends at its deadline;
                          RELEASE: that may have released it */
    bool is_asked_for; /* it or another request has asked since it came */
    bool may_be_left;  /* an unanswered try may have got the lock, even if a
                          later one finds it taken by another */
    /* The answer. For an ACQUIRE, error is set from the beginning: it is the
     * answer if Redis is not asked in time. */
    enum shed_code code;
    struct shed_error error;
    bool is_takeover; /* ACQUIRE: from a dead holder */
};

/* NULL: it was the last one. */
static inline struct shed_lock_request *
shed_lock_request_of(const struct shed_node *node)
{
    return node != NULL
               ? shed_container_of(node, struct shed_lock_request, node)
               : NULL;
}

static inline struct shed_lock_request *
shed_lock_next(const struct shed_lock_request *r)
{
    return shed_lock_request_of(r->node.after);
}

/* A round: one operation on all servers, one round at a time. */
struct shed_lock_round {
    bool is_open; /* if not, single servers may still be busy with the
                     consequences of earlier rounds, and the rest of this struct
                     has no meaning */
    struct shed_lock_request *request;
    /* An ACQUIRE is not over when servers have granted it. A quorum goes on
     * with an ADVANCE, which writes the fencing number to a majority; a lock
     * with replicas with a CONFIRM. Until that has succeeded nobody holds the
     * lock. */
    struct shed_exchange question;
    unsigned numberings;        /* how often the number was written */
    uint64_t patience_until_ms; /* servers that have not answered by then count
                                   as failed */
    struct shed_tally tally;
};

/* The facts at the moment of a step. */
struct shed_lock_facts {
    uint64_t now_us; /* monotonic */
    uint64_t random; /* any 64 bits */
    bool is_pushed;  /* changes are announced */
    bool is_settled; /* whether others can tell that we live is known */
    const struct shed_error *refusal; /* why no try can succeed, or NULL */
};

/* What steps have decided and nobody has done yet, in the order of the
 * fields. */
struct shed_lock_act {
    uint32_t ask;         /* a bit per server: run its voter's exchange */
    uint64_t timer_at_ms; /* replaces the timer; UINT64_MAX: none */
    unsigned lost;        /* holds whose loss is to be told */
    struct shed_error lost_reason; /* of the last of them */
    uint64_t lost_us;              /* how long that one lasted */
    /* Tell the caller of each, in this order. The closer is the last, and the
     * machine may be freed then. */
    struct shed_list answered;
};

struct shed_lock_machine {
    /* set at creation */
    const struct shed_lock_spec *spec;
    const char *where; /* the first server's address, for error texts */
    size_t count;      /* of servers */
    uint64_t command_timeout_ms;
    uint64_t patience_ms; /* of a round */
    struct shed_voter *voter;
    struct shed_lock_counters *counters;

    enum shed_lock_life life;
    struct shed_lock_round round;
    struct shed_list acquires, others;
    /* not in a queue: what is answered last, and what the hold itself needs */
    struct shed_lock_request *closer, renewal;
    struct shed_hold hold;
    unsigned epochs;            /* sessions that have begun or ended */
    struct shed_error last_try; /* why it failed; SHED_OK: it did not */
    unsigned attempts;
    uint64_t retry_at_ms;     /* the first request asks from then on */
    uint64_t cohort_since_ms; /* since when this handle has acquired the lock
                                 repeatedly while others wait; 0: it has not */
    uint64_t cohort_ended_ms;
    uint64_t lost_generation;     /* of the last hold that was lost */
    struct shed_lock_facts facts; /* of the last step */
    uint64_t now_ms, random;
    struct shed_lock_act act; /* taken by shed_lock_machine_take */
};

_Static_assert(SHED_LOCK_CLIENTS_MAX <= 32, "ask has a bit for each server");

/* m is zero, and voter an array of count zeros. spec, counters and where must
 * outlive the machine. */
void shed_lock_machine_init(struct shed_lock_machine *m,
                            struct shed_voter *voter, size_t count,
                            const struct shed_lock_spec *spec,
                            struct shed_lock_counters *counters,
                            uint64_t command_timeout_ms, const char *where);

/* For use between steps. After add, cancel and close a step must follow. */

/* Add a request; it will be answered exactly once, and belongs to the machine
 * until then. Returns: false if the lock is being closed; then it will not be
 * answered. */
SHED_MUST_CHECK bool shed_lock_machine_add(struct shed_lock_machine *m,
                                           struct shed_lock_request *request);

/* End this user's acquires that do not block, with SHED_ETIMEDOUT. Returns: how
 * many; an acquire that was answered before does not count. */
size_t shed_lock_machine_cancel(struct shed_lock_machine *m, const void *user);

/* Lose a hold whose lease has ended, as it can while its renewal hangs. */
void shed_lock_machine_see_end(struct shed_lock_machine *m, uint64_t now_us);

/* End the hold, which release is to release. */
void shed_lock_machine_leave(struct shed_lock_machine *m,
                             struct shed_lock_request *release,
                             uint64_t now_us);

/* End waiting requests with SHED_ECLOSED, and release what is held. closer, a
 * RELEASE, is answered when nothing is under way any longer; it is_inner if
 * nothing was held. */
void shed_lock_machine_close(struct shed_lock_machine *m,
                             struct shed_lock_request *closer);

/* Lend the first server's exchange to the caller of request, whose command is
 * the next to be sent: it is sent over a link in the caller's thread, and then
 * a step with SHED_LOCK_EV_ANSWERED must follow. Returns: false if another
 * command is the next one, or if this one may not go over a link. */
bool shed_lock_machine_lend(struct shed_lock_machine *m,
                            const struct shed_lock_request *request);

/* Take what is to be done. */
struct shed_lock_act shed_lock_machine_take(struct shed_lock_machine *m);

/* Take the request out of the act, if it has been answered. */
bool shed_lock_machine_take_answer(struct shed_lock_machine *m,
                                   struct shed_lock_request *request);

/* Say in err that the lock is closed. Returns: SHED_ECLOSED. */
enum shed_code shed_lock_fail_closed(struct shed_error *err);

/* The hold. */

/* The lease was renewed. */
void shed_hold_renew(struct shed_hold *hold,
                     const struct shed_exchange *exchange);

/* Whether the lock is held and its lease is safe at now_ms. */
bool shed_hold_is_safe(const struct shed_hold *hold, uint64_t now_ms);
bool shed_hold_is_mine(const struct shed_hold *hold,
                       const struct shed_owner *owner);

/* When the hold must next be renewed or declared lost. UINT64_MAX: never.
 * is_watched: somebody wants to hear of its loss. */
uint64_t shed_hold_due_ms(const struct shed_hold *hold, bool is_watched);

/* Why the hold was lost, as text. */
const char *shed_hold_reason(const struct shed_hold *hold);

static inline uint64_t shed_lock_sooner_ms(uint64_t a_ms, uint64_t b_ms)
{
    return a_ms < b_ms ? a_ms : b_ms;
}

/* For the parts of the machine: machine.c, round.c, state.c. */

/* For use at any time. */

/* Begin a hold of what an acquire has won. An existing hold is lost. */
void shed_lock_machine_grant(struct shed_lock_machine *m,
                             struct shed_lock_request *request,
                             const struct shed_exchange *exchange);

/* Renew the hold again soon. */
void shed_lock_machine_retry(struct shed_lock_machine *m);

/* Lose the hold. */
void shed_lock_machine_lose(struct shed_lock_machine *m, const char *reason);

/* The lock was released. has_waiters: others wait for it elsewhere. */
void shed_lock_machine_released(struct shed_lock_machine *m, bool has_waiters);

/* For use within a step, or while now_ms is the time. */

/* Answer a request: move it from its queue into the act. */
void shed_lock_answer(struct shed_lock_machine *m, struct shed_lock_request *r,
                      enum shed_code code);

/* Have server i remove a leftover, if it is IDLE and has one. */
void shed_lock_clean(struct shed_lock_machine *m, size_t i);

/* Undo what a holder has, or may still get, on any server. */
void shed_lock_cancel_try(struct shed_lock_machine *m,
                          const struct shed_lock_holder *holder);

#define SHED_US_PER_MS 1000

/* With several servers, the first one's push arrives before the others have
 * released the lock as well; this long after it, they have. */
#define SHED_LOCK_SPREAD_MS 8

/* With one server, its answer is the verdict. */
static inline bool shed_lock_is_alone(const struct shed_lock_machine *m)
{
    return m->count == 1;
}

/* A random delay; 0 with one server. Tries are spread over it, because handles
 * that ask at the same moment split the votes. */
uint64_t shed_lock_jitter_ms(struct shed_lock_machine *m);

/* Rounds (round.c). */

/* Begin a round that serves request: ask all servers; none of them, if too many
 * count as silent. Nothing may be under way. */
void shed_round_begin(struct shed_lock_machine *m,
                      struct shed_lock_request *request);

/* Take in server i's answer to its last question, of this round or an earlier
 * one. */
void shed_round_answered(struct shed_lock_machine *m, size_t i);

/* End the round if its verdict is clear or its patience is over. Returns:
 * whether it ended; another round may follow it at once. */
bool shed_round_end(struct shed_lock_machine *m);

#endif
