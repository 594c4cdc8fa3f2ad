/* The rounds of a lock's machine: one operation on all servers. Pure. */
#ifndef SHED_LOCK_ROUND_H
#define SHED_LOCK_ROUND_H

#include "lock/state.h"

/* Begin a round that serves request (NULL: the lock's own), for what nobody may
 * be engaged. Returns: its question, to be completed before it is asked. */
struct shed_exchange *shed_round_begin(struct shed_lock_machine *m,
                                       enum shed_lock_op op,
                                       const struct shed_lock_holder *holder,
                                       struct shed_lock_request *request);

/* Ask its question of all servers, as what state says; of none, if too many of
 * them count as silent. */
void shed_round_ask(struct shed_lock_machine *m, enum shed_lock_state state);

/* Take in what server i has answered, to whatever question. */
void shed_round_answered(struct shed_lock_machine *m, size_t i);

/* End the round if its verdict is clear, or its patience over.
 * Returns: whether it was; it may go on as another. */
bool shed_round_end(struct shed_lock_machine *m);

#endif
