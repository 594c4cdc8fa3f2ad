/* The scenarios: what happens to the cache while backends read from it. */
#ifndef DEMO_SCENARIOS_H
#define DEMO_SCENARIOS_H

#include "outcome.h"

/* Run a scenario with one strategy. Exits, with
 * all children ended, when a server fails. */
void scenario_run(const struct options *options, size_t scenario,
                  const struct strategy *strategy, struct outcome *out);

#endif
