/* Backend processes with threads that read through one strategy. */
#ifndef DEMO_FLEET_H
#define DEMO_FLEET_H

#include <sys/types.h>

#include "strategies.h"

/* Chooses what a thread asks for next: fills ids, returns how many; 0: no
 * more. */
typedef size_t fleet_pick(void *context, uint64_t *random, uint64_t *ids);

struct fleet {
    const struct strategy *strategy;
    struct settings settings;
    uint64_t processes, threads;
    uint64_t think_us; /* mean pause of a thread between calls */
    uint64_t seed;
    fleet_pick *pick;
    void *context;    /* for pick; children inherit it */
    bool has_hot_key; /* there is one key, so waiting for its load can be
                         measured */
    /* What one more thread of the first process does; NULL: nothing. It ends
     * when is_over is set. */
    void (*aside)(void *context, void *process);
    void *aside_context;
    pid_t *pids; /* of the processes */
};

/* Start all processes. They begin to read at once. Exits on failure. */
void fleet_start(struct fleet *fleet);

/* Start a new process in place of a killed one. */
void fleet_replace(struct fleet *fleet, pid_t dead);

/* Wait until all have ended by themselves (is_over, or nothing left to pick);
 * after a minute kill the rest. Returns how many were killed. */
unsigned fleet_wait(struct fleet *fleet);

/* A cheap random generator for what is read and when; state is any number. */
uint64_t fleet_random(uint64_t *state);

#endif
