/* The runner: this process, which makes trouble while the fleet reads. What it
 * asks of the servers itself is left out of what they count. Each function
 * exits when a server fails, and the children die with it. */
#ifndef DEMO_RUNNER_H
#define DEMO_RUNNER_H

#include <hiredis/hiredis.h>

#include "fleet.h"
#include "database.h"
#include "picks.h"
#include "outcome.h"

#define THINK_US 20000
#define NODES_MAX 16

struct runner {
    const struct options *options;
    const struct strategy *strategy;
    struct record *record;
    redisContext *node[NODES_MAX]; /* Redis, or the primaries of a cluster */
    size_t nodes;
    struct database *db;
    uint64_t own_commands;
    struct fleet fleet;
    struct picks picks;
    uint64_t load_ms; /* what a query costs in this scenario */
    /* what the servers had counted when the counting began */
    uint64_t queries, commands, expired;
    struct outcome *out;
};

_Noreturn void runner_die(const char *what, const char *why);
void runner_progress(const struct runner *c, const char *what, uint64_t n,
                     uint64_t of);
/* A command of its own, at the node that has its key, or the first; the reply
 * is the caller's. */
redisReply *runner_command(struct runner *c, const char *format, ...);

/* Let the fleet read, until it is told to end. */
void runner_begin(struct runner *c, fleet_pick *pick, uint64_t think_us);
void runner_end(struct runner *c);
void runner_set_capacity(struct runner *c, uint64_t slots, uint64_t load_ms);
void runner_count_from_here(struct runner *c);
/* Something has just been done; text is a literal. */
void runner_mark(struct runner *c, const char *text);

/* Run a scenario in which a server fails: from REDIS_DOWN on. */
void trouble_run(struct runner *c, enum scenario scenario);

#endif
