/* The scenarios of the demo, in the order in which they run. */
#ifndef DEMO_SEATS_SCENARIOS_H
#define DEMO_SEATS_SCENARIOS_H

#include "runner.h"

#define SCENARIOS 10
extern const struct scenario *const seats_scenarios[SCENARIOS];

/* Those of a whole hall: without a hold, and with. */
extern const struct scenario rush_without, rush_with;

#endif
