/*
 * A lock in one process, as a state machine: who waits for it, who holds it,
 * what its servers were asked. Pure: events and facts go in, what to do comes
 * out; no I/O, no clock, no threads, no memory of its own.
 *
 * Requests wait in a queue. Only the first of it asks the servers, because no
 * more than one can win, and not while this very handle holds the lock. In a
 * fair lock each asks once, to be enlisted; in any lock one that nobody has
 * asked for asks once before it ends.
 */
#ifndef SHED_LOCK_STATE_H
#define SHED_LOCK_STATE_H

#include "lock/hold.h"
#include "lock/quorum.h"
#include "lock/voter.h"

/* What is under way on all servers: one round at a time. */
enum shed_lock_state {
    SHED_LOCK_RESTING,   /* no round; single servers may be busy with what
                            earlier ones have left */
    SHED_LOCK_ACQUIRING, /* the first request, or one that wants a single try,
                            has asked for the lock */
    SHED_LOCK_NUMBERING, /* a majority has granted it; its fencing number is on
                            its way to a majority, and nobody holds it yet */
    SHED_LOCK_EXTENDING, /* a hold is being renewed, or only written again */
    SHED_LOCK_RELEASING, /* what was held is being given back */
    SHED_LOCK_ADVANCING  /* later fencing numbers are to be above a number */
};

enum shed_lock_life {
    SHED_LOCK_OPEN,
    SHED_LOCK_CLOSING, /* nothing new is taken in, what waits is ended, and what
                          is held given back */
    SHED_LOCK_CLOSED   /* the closer was told that all is over: nothing is under
                          way, and nothing begins */
};

struct shed_lock_request {
    struct shed_lock_request *next;
    /* the question */
    enum shed_lock_op op;
    struct shed_lock_holder holder;
    struct shed_owner *owner;       /* ACQUIRE: whose hold it will be */
    uint64_t deadline_ms;           /* ACQUIRE */
    uint64_t lease_ms;              /* ACQUIRE, EXTEND */
    uint64_t fence_number;          /* ADVANCE: later ones are above it */
    uint64_t generation;            /* EXTEND: of the hold */
    struct shed_lock_memory memory; /* RELEASE: of the hold */
    uint64_t begun_us;              /* ACQUIRE */
    const void *user;               /* ACQUIRE: whose cancel is meant for it */
    bool may_cancel;                /* ACQUIRE: no thread waits for it */
    bool is_inner; /* RELEASE: the hold was entered more often: there is nothing
                      to ask */
    bool is_cancelled; /* it is over as soon as nothing is under way, and does
                          not win any more */
    bool is_tried;     /* it has asked already, and is over at its deadline */
    bool is_asked_for; /* it or another of the queue has asked since it came */
    bool may_be_left;  /* a try that got no answer may have brought it, even
                          if a later one finds it another's */
    /* The answer. What error says of an ACQUIRE is the answer if it does not
     * ask Redis in time. */
    enum shed_code code;
    struct shed_error error;
    void (*done)(struct shed_lock_request *request);
};

struct shed_lock_queue {
    struct shed_lock_request *first;
    struct shed_lock_request **last;
};

/* The round; of no meaning while the machine rests. */
struct shed_lock_round {
    struct shed_lock_request *request; /* NULL: the lock's own */
    unsigned numberings;               /* how often it was NUMBERING */
    bool is_takeover;                  /* ACQUIRING: a holder was dead */
    uint64_t generation;               /* EXTENDING: of which hold */
    bool is_rewrite;                   /* EXTENDING: the session has changed */
    uint64_t asked_ms;
    unsigned asked_epochs;
    uint64_t patience_until_ms; /* the servers that are silent then, fail */
    struct shed_exchange question;
    struct shed_tally tally;
};

/* What has happened, to be counted by the driver. */
struct shed_lock_counts {
    unsigned tries, acquired, released, lost, renewals, renewal_failures;
    unsigned takeovers; /* acquired from a dead holder */
};

struct shed_lock_machine {
    /* set at creation */
    const struct shed_lock_options *options;
    const struct shed_algorithm *algorithm;
    const char *where; /* the first server's address, for error texts */
    size_t count;      /* of servers */
    struct shed_quorum_rules rules;
    struct shed_voter *voter;

    enum shed_lock_state state;
    enum shed_lock_life life;
    struct shed_lock_round round;
    struct shed_lock_queue acquires, others;
    struct shed_hold hold;
    struct shed_lock_memory memory; /* of the tries */
    unsigned epochs;                /* sessions that have begun or ended */
    bool is_awake;                  /* the first of the queue is to ask */
    bool is_released; /* this handle had it until now: the first may ask */
    struct shed_error last_try; /* how it failed; SHED_OK: it did not */
    unsigned attempts;
    uint64_t retry_at_ms;     /* the first is awake then */
    uint64_t cohort_since_ms; /* taken by this handle again and again, though
                                 others wait; 0: it is not */
    uint64_t cohort_ended_ms;
    uint64_t lost_generation; /* of the last hold that was lost */
    struct shed_error lost_reason;
    unsigned lost; /* losses that are to be told */
    struct shed_lock_counts counts;
    /* of the step that is being made */
    const struct shed_lock_facts *facts;
    uint64_t now_ms, random;
    struct shed_lock_act *act;
};

/* What is so at the moment of a step. */
struct shed_lock_facts {
    uint64_t now_ms; /* monotonic */
    uint64_t random; /* any 64 bits */
    bool is_pushed;  /* changes are announced */
    bool is_settled; /* the session is there, or will not be for now, by which
                        others see that a holder lives */
    const struct shed_error *refusal; /* why no try can succeed, or NULL */
};

/* What to do after a step, in the order of the fields. */
struct shed_lock_act {
    uint32_t ask;         /* a bit per server: run its voter's exchange */
    uint64_t timer_at_ms; /* replaces the timer; UINT64_MAX: none */
    unsigned lost;        /* holds whose loss is to be told */
    struct shed_error lost_reason;   /* of the last of them */
    struct shed_lock_queue answered; /* call done of each, in this order */
    bool is_over; /* the closer is to be told; the machine may be gone then */
};

_Static_assert(SHED_LOCK_CLIENTS_MAX <= 32, "ask has a bit for each server");

/* voter: count of them, not initialised. where, options, algorithm and spec
 * must live as long. */
void shed_lock_machine_init(struct shed_lock_machine *m,
                            struct shed_voter *voter, size_t count,
                            const struct shed_algorithm *algorithm,
                            const struct shed_lock_spec *spec,
                            uint64_t command_timeout_ms, const char *where);

/* Between steps. After each of these, is_due tells whether a step must follow;
 * after add, cancel and close, one must. */

/* Whether something is to be done before the timer runs off. */
bool shed_lock_machine_is_due(const struct shed_lock_machine *m,
                              uint64_t timer_at_ms);

/* Take a request in; done will be called, exactly once. It is the machine's
 * until then. Returns: false, and done will not be called: it is being closed.
 */
SHED_MUST_CHECK bool shed_lock_machine_add(struct shed_lock_machine *m,
                                           struct shed_lock_request *request);

/* Let the acquires of this user that may be cancelled end with SHED_ETIMEDOUT.
 * Returns: how many; those that are answered already are not among them. */
size_t shed_lock_machine_cancel(struct shed_lock_machine *m, const void *user);

/* Begin a hold; one that there is, is lost. */
void shed_lock_machine_grant(struct shed_lock_machine *m,
                             const struct shed_grant *grant);

/* Lose the hold. */
void shed_lock_machine_lose(struct shed_lock_machine *m, const char *reason);

/* The lock was released. has_waiters: others wait for it elsewhere. */
void shed_lock_machine_released(struct shed_lock_machine *m, bool has_waiters,
                                uint64_t now_ms);

/* What this holder has, or may have, nobody has any longer: remove it when
 * Redis can be asked. With one server. */
void shed_lock_machine_give_up(struct shed_lock_machine *m,
                               const struct shed_lock_holder *holder,
                               uint64_t now_ms);

/* End what waits with SHED_ECLOSED, and release what is held. */
void shed_lock_machine_close(struct shed_lock_machine *m);

/* Whether a release is under way, before which no acquire must be sent. */
bool shed_lock_machine_is_releasing(const struct shed_lock_machine *m);

/* For how long the next acquire is to let others come first, because this
 * handle's cohort has ended; 0: not. */
uint64_t shed_lock_machine_step_back_ms(const struct shed_lock_machine *m,
                                        uint64_t now_ms);

/* When the hold needs something to be done. */
uint64_t shed_lock_machine_hold_due_ms(const struct shed_lock_machine *m);

/* Say in err that the lock is closed. Returns: SHED_ECLOSED. */
enum shed_code shed_lock_fail_closed(struct shed_error *err);

/* Within a step. */

/* Answer a request: out of its queue, and into the act. */
void shed_lock_answer(struct shed_lock_machine *m, struct shed_lock_request *r,
                      enum shed_code code);

/* Lose a hold whose lease has ended. It can end while a command hangs that
 * would renew it. */
void shed_lock_see_end(struct shed_lock_machine *m);

/* Ask server i, which is IDLE. */
void shed_lock_ask(struct shed_lock_machine *m, size_t i,
                   enum shed_voter_state state,
                   const struct shed_exchange *question);

/* Have server i remove a leftover, if it is IDLE and has one. */
void shed_lock_clean(struct shed_lock_machine *m, size_t i);

/* Undo what a holder has on any server, or may still get. */
void shed_lock_cancel_try(struct shed_lock_machine *m,
                          const struct shed_lock_holder *holder);

/* Whether no round can be begun. A server of several may be busy. */
bool shed_lock_is_engaged(const struct shed_lock_machine *m);

/* 64 bits for jitter. */
uint64_t shed_lock_draw(struct shed_lock_machine *m);

/* A time by which tries are spread, 0 with one server. */
uint64_t shed_lock_jitter_ms(struct shed_lock_machine *m);

static inline uint64_t shed_lock_sooner_ms(uint64_t a_ms, uint64_t b_ms)
{
    return a_ms < b_ms ? a_ms : b_ms;
}

void shed_lock_queue_init(struct shed_lock_queue *queue);

#endif
