/* Faults of the soak by which another server takes the place of a primary, or
 * gets some of its keys. */
#ifndef SOAK_FAILOVERS_H
#define SOAK_FAILOVERS_H

#include "soak/stage.h"

/* With replicas that lack its last writes. It comes back as a replica. */
void soak_kill_primary(struct soak_stage *stage);
void soak_stop_primary(struct soak_stage *stage);

/* While it is well: as an operator asks for it, of sentinels or of a replica of
 * a cluster. */
void soak_fail_over(struct soak_stage *stage);

/* In a cluster, by a replica that lacks the last writes. */
void soak_force(struct soak_stage *stage);
void soak_take_over(struct soak_stage *stage);

/* Move the slot of a key, of a lock, or of what processes share. */
void soak_move_slot(struct soak_stage *stage);

#endif
