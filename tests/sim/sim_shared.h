/* What the simulations of caches and of locks do alike, each with its own
 * struct sim: chance, events in their order, the run of many schedules. */
#ifndef SIM_SHARED_H
#define SIM_SHARED_H

#include <stdbool.h>
#include <stdint.h>

struct sim;
struct sim_mode;
struct sim_event;

/* Run the schedules of a mode: those that SHED_SIM_MODE, SHED_SIM_SEED and
 * SHED_SIM_RUNS say, else as many as runs. */
void sim_run_mode(const struct sim_mode *mode, uint64_t runs);

uint64_t sim_draw(struct sim *sim, uint64_t below); /* 0: any 64 bits */
bool sim_chance(struct sim *sim, unsigned pct);
uint64_t sim_between(struct sim *sim, uint64_t low, uint64_t high);

void sim_plan(struct sim *sim, uint64_t delay_ms, struct sim_event event);
struct sim_event sim_take_next(struct sim *sim); /* there must be one */

__attribute__((format(printf, 2, 3), noreturn)) void
sim_fail(const struct sim *sim, const char *format, ...);

/* Run one schedule to its end. A broken invariant ends the test. Each
 * simulation has its own. */
void sim_run(struct sim *sim, const struct sim_mode *mode, uint64_t seed);

#endif
