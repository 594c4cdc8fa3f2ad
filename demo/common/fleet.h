/* Backend processes with threads that read through one strategy. */
#ifndef DEMO_FLEET_H
#define DEMO_FLEET_H

#include <sys/types.h>

#include "strategies.h"

/* What a thread asks for next: fills ids, returns how many; 0: no more. */
typedef size_t fleet_pick(void *context, uint64_t *random, uint64_t *ids);

struct fleet {
    const struct strategy *strategy;
    struct settings settings;
    uint64_t processes, threads;
    uint64_t think_us; /* mean pause of a thread between calls */
    uint64_t seed;
    fleet_pick *pick;
    void *context;    /* of pick; children inherit it */
    bool has_hot_key; /* one key: waiting for its load can be measured */
    pid_t *pids;      /* of the processes */
};

/* Start all processes. They begin to read at once. Exits on failure. */
void fleet_start(struct fleet *fleet);

/* Put a new process in the place of one that was killed. */
void fleet_replace(struct fleet *fleet, pid_t dead);

/* Wait until all have ended by themselves (is_over, or nothing left to pick);
 * kill those that have not in a minute. Returns how many were killed. */
unsigned fleet_wait(struct fleet *fleet);

/* A cheap generator for what is read and when; state is any number. */
uint64_t fleet_random(uint64_t *state);

#endif
