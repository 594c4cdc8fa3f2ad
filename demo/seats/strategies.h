/* How a buyer is served, with a hold and without: ids[0] of a strategy's get is
 * its buyer's place in the showing's visits. */
#ifndef DEMO_SEATS_STRATEGIES_H
#define DEMO_SEATS_STRATEGIES_H

#include "common/strategies.h"
#include "showing.h"

/* A seat that looks free is charged, and then the buyer is written into it. */
extern const struct strategy seats_plain;

/* A seat is held under a lock, and paid under the fencing guard. */
extern const struct strategy seats_held;

/* A buyer looks at this many of the free seats, the best ones. */
#define SEATS_IN_SIGHT 8

#endif
