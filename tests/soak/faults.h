/* What the soak does to its servers and processes. */
#ifndef SOAK_FAULTS_H
#define SOAK_FAULTS_H

#include "soak/stage.h"

extern const unsigned soak_fault_count;

/* The name of a fault, NULL if it is not made on this topology; of
 * soak_fault_count: that there was none yet. */
const char *soak_fault_name(const struct soak_stage *stage, unsigned fault);

/* Draw one and make it; while the stage is calm, one that no call may fail of.
 * Returns: its number. */
unsigned soak_make_fault(struct soak_stage *stage);

#endif
