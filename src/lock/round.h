/* The rounds of a lock's machine: one operation on all servers. Pure. */
#ifndef SHED_LOCK_ROUND_H
#define SHED_LOCK_ROUND_H

#include "lock/state.h"

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
