/* What the parts of a lock's machine share. Pure. */
#ifndef SHED_LOCK_STATE_H
#define SHED_LOCK_STATE_H

#include "lock/machine.h"

#define SHED_LOCK_TOO_LATE "acquiring the lock took longer than its lease"

/* For use at any time. */

/* Begin a hold of what an acquire has won. An existing hold is lost. */
void shed_lock_machine_grant(struct shed_lock_machine *m,
                             struct shed_lock_request *request,
                             const struct shed_exchange *exchange);

/* Lose the hold. */
void shed_lock_machine_lose(struct shed_lock_machine *m, const char *reason);

/* The lock was released. has_waiters: others wait for it elsewhere. */
void shed_lock_machine_released(struct shed_lock_machine *m, bool has_waiters,
                                uint64_t now_ms);

/* How long the next acquire must step back because this handle's cohort has
 * ended; 0: not at all. */
uint64_t shed_lock_machine_step_back_ms(const struct shed_lock_machine *m,
                                        uint64_t now_ms);

/* For use within a step. */

/* Answer a request: move it from its queue into the act. */
void shed_lock_answer(struct shed_lock_machine *m, struct shed_lock_request *r,
                      enum shed_code code);

/* Say in the request that Redis does not have what was held here: it was lost,
 * or the request has released it before. */
void shed_lock_fail_gone(struct shed_lock_request *r);

/* Ask server i, which is IDLE. */
void shed_lock_ask(struct shed_lock_machine *m, size_t i,
                   enum shed_voter_state state,
                   const struct shed_exchange *question);

/* Have server i remove a leftover, if it is IDLE and has one. */
void shed_lock_clean(struct shed_lock_machine *m, size_t i);

/* Undo what a holder has, or may still get, on any server. */
void shed_lock_cancel_try(struct shed_lock_machine *m,
                          const struct shed_lock_holder *holder);

/* With several servers, the first one's push arrives before the others have
 * released the lock as well; this long after it, they have. */
#define SHED_LOCK_SPREAD_MS 8

/* With one server, its answer is the verdict. */
static inline bool shed_lock_is_alone(const struct shed_lock_machine *m)
{
    return m->count == 1;
}

/* Whether no round can begin. With several servers, one of them may be busy. */
bool shed_lock_is_engaged(const struct shed_lock_machine *m);

/* 64 bits for jitter. */
uint64_t shed_lock_draw(struct shed_lock_machine *m);

/* A random delay; 0 with one server. Tries are spread over it, because handles
 * that ask at the same moment split the votes. */
uint64_t shed_lock_jitter_ms(struct shed_lock_machine *m);

void shed_lock_queue_init(struct shed_lock_queue *queue);
void shed_lock_append(struct shed_lock_queue *queue,
                      struct shed_lock_request *r);

/* Rounds (round.c). */

/* Begin a round that serves request (NULL: the lock itself needs it). Nothing
 * may be under way. Returns: its question, to be completed before it is
 * asked. */
struct shed_exchange *shed_round_begin(struct shed_lock_machine *m,
                                       enum shed_lock_op op,
                                       const struct shed_lock_holder *holder,
                                       struct shed_lock_request *request);

/* Ask all servers the round's question; none of them, if too many count as
 * silent. */
void shed_round_ask(struct shed_lock_machine *m);

/* Take in server i's answer to its last question, of this round or an earlier
 * one. */
void shed_round_answered(struct shed_lock_machine *m, size_t i);

/* End the round if its verdict is clear or its patience is over. Returns:
 * whether it ended; another round may follow it at once. */
bool shed_round_end(struct shed_lock_machine *m);

#endif
