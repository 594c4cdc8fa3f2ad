/*
 * A voter: one server of a lock, as the lock's machine keeps account of it.
 * What it was asked, whether the answer still counts, what must be asked after
 * it, and what it may hold that nobody wants any longer (the leftovers). Pure.
 *
 * One question at a time, so that a later one cannot overtake an earlier one.
 */
#ifndef SHED_LOCK_VOTER_H
#define SHED_LOCK_VOTER_H

#include "lock/protocol.h"

enum shed_voter_state {
    SHED_VOTER_IDLE,      /* whatever it was asked, it has answered */
    SHED_VOTER_ASKED,     /* it was asked the round's question: its answer
                             counts */
    SHED_VOTER_LATE,      /* it was asked in a round that is over: its answer
                             counts no longer, what it does is still done */
    SHED_VOTER_REPAIRING, /* it was asked to grant what a majority has granted
                           */
    SHED_VOTER_CLEANING   /* it was asked to remove a leftover */
};

/* The most leftovers that one server can have. A machine that finds RESERVED
 * places or fewer free sends no more tries there before one is removed. The
 * reserve is for what may become a leftover without another try: the hold, a
 * release, and two tries that have been sent. */
#define SHED_LEFTOVERS_MAX 12
#define SHED_LEFTOVERS_RESERVED 4

_Static_assert(SHED_LEFTOVERS_RESERVED < SHED_LEFTOVERS_MAX,
               "there is room for a try");

/* A holder that may have something there, and is to have nothing. */
struct shed_leftover {
    struct shed_lock_holder holder;
    uint64_t until_ms; /* it is given up then */
};

struct shed_voter {
    enum shed_voter_state state;
    uint64_t asked_ms; /* unless IDLE: since when */
    bool is_next;      /* unless IDLE: the round's question follows */
    bool is_missing;   /* it said last that it does not have the lock */
    struct shed_leftover leftover[SHED_LEFTOVERS_MAX]; /* the newest last */
    size_t leftover_count;
    uint64_t clean_at_ms; /* when to remove one; sooner in a new session */
    /* The last question, and its answer. Unless IDLE it is the asker's. */
    struct shed_exchange exchange;
};

/* IDLE, without leftovers. question is how each of its exchanges begins. */
void shed_voter_init(struct shed_voter *voter,
                     const struct shed_exchange *question);

/* Ask question, in one of the states but IDLE; it must be IDLE. */
void shed_voter_ask(struct shed_voter *voter, enum shed_voter_state state,
                    const struct shed_exchange *question, uint64_t now_ms);

/* The answer is in exchange. It is IDLE again; what was not confirmed to be
 * gone is a leftover. Returns: the state before. */
enum shed_voter_state shed_voter_answered(struct shed_voter *voter,
                                          uint64_t now_ms, uint64_t random);

/* Make a leftover of what this holder has there, or may still get, unless it
 * cannot have anything. */
void shed_voter_cancel(struct shed_voter *voter,
                       const struct shed_lock_holder *holder, uint64_t now_ms);

/* Add what this holder may have there to the leftovers, to be removed as soon
 * as the server is IDLE. If they are as many as there can be, the oldest is
 * dropped: it ends with its lease. */
void shed_voter_add_leftover(struct shed_voter *voter,
                             const struct shed_lock_holder *holder,
                             uint64_t now_ms);

/* What this holder has there is no leftover any longer: it holds the lock. */
void shed_voter_drop_leftover(struct shed_voter *voter,
                              const struct shed_lock_holder *holder);

/* Whether another try may be sent: see SHED_LEFTOVERS_MAX. */
bool shed_voter_has_room(const struct shed_voter *voter);

/* Ask it to remove the newest leftover, if it is IDLE and has one.
 * Returns: whether it was asked. */
bool shed_voter_clean(struct shed_voter *voter, uint64_t now_ms);

/* When to do so. UINT64_MAX: there is nothing to remove, or it is not IDLE. */
uint64_t shed_voter_clean_at_ms(const struct shed_voter *voter);

#endif
