/*
 * A voter: the machine's account of one server. What it was asked, whether the
 * answer still counts, what must be asked next, and what it may still hold that
 * nobody wants any longer (the leftovers). Pure.
 *
 * One question at a time, so that a later one cannot overtake an earlier one.
 */
#ifndef SHED_LOCK_VOTER_H
#define SHED_LOCK_VOTER_H

#include "lock/protocol.h"

enum shed_voter_state {
    SHED_VOTER_IDLE,  /* it has answered every question */
    SHED_VOTER_ASKED, /* it was asked the round's question, and its answer
                         counts */
    SHED_VOTER_BUSY   /* its answer does not count: it was asked in a round that
                         is over, but the command may still take effect; or it
                         was asked to remove a leftover */
};

/* The most leftovers that one server can have. While only RESERVED places or
 * fewer are free, the machine sends no more tries there. The reserve is for
 * what may become a leftover without another try: the hold, a release, and two
 * tries that have already been sent. */
#define SHED_LEFTOVERS_MAX 12
#define SHED_LEFTOVERS_RESERVED 4

_Static_assert(SHED_LEFTOVERS_RESERVED < SHED_LEFTOVERS_MAX,
               "there is room for a try");

/* It begins with the spec of its exchange, and zeros. */
struct shed_voter {
    enum shed_voter_state state;
    uint64_t asked_ms; /* since when, unless it is IDLE */
    bool is_next;      /* the round's question follows; never while IDLE */
    /* Holders that may have something there but should not, the newest last. */
    struct shed_lock_holder leftover[SHED_LEFTOVERS_MAX];
    size_t leftover_count;
    uint64_t clean_at_ms; /* when to remove one; at once in a new session */
    /* The last question and its answer. While not IDLE it belongs to the code
     * that runs the exchange. */
    struct shed_exchange exchange;
};

/* Ask question, and enter state, which is not IDLE. The voter must be IDLE. */
void shed_voter_ask(struct shed_voter *voter, enum shed_voter_state state,
                    const struct shed_exchange *question, uint64_t now_ms);

/* Take the answer, which is in exchange. The voter is IDLE again, and a release
 * that failed has become a leftover. Returns: the state before. */
enum shed_voter_state shed_voter_answered(struct shed_voter *voter,
                                          uint64_t now_ms, uint64_t random);

/* Make a leftover of what this holder has there or may still get, if there can
 * be anything. */
void shed_voter_cancel(struct shed_voter *voter,
                       const struct shed_lock_holder *holder, uint64_t now_ms);

/* Add what this holder may have there to the leftovers, which are removed as
 * soon as the server is IDLE. If there is no more room the oldest one is
 * dropped: its lease ends it. */
void shed_voter_add_leftover(struct shed_voter *voter,
                             const struct shed_lock_holder *holder,
                             uint64_t now_ms);

/* Remove this holder from the leftovers, because it holds the lock. */
void shed_voter_drop_leftover(struct shed_voter *voter,
                              const struct shed_lock_holder *holder);

/* Whether another try may be sent; see SHED_LEFTOVERS_MAX. */
bool shed_voter_has_room(const struct shed_voter *voter);

/* Ask the server to remove the newest leftover, if it is IDLE and has one.
 * Returns: whether it was asked. */
bool shed_voter_clean(struct shed_voter *voter, uint64_t now_ms);

/* When to do that. UINT64_MAX: there is nothing to remove, or it is not
 * IDLE. */
uint64_t shed_voter_clean_at_ms(const struct shed_voter *voter);

#endif
