/* The runner: this process, which makes trouble while the fleet reads. What it
 * asks of the servers itself is left out of what they count. Each function
 * exits when a server fails, and the children die with it. */
#ifndef DEMO_RUNNER_H
#define DEMO_RUNNER_H

#include <hiredis/hiredis.h>
#include <stdio.h>

#include "database.h"
#include "fleet.h"
#include "picks.h"

#define THINK_US 20000
#define NODES_MAX 16
#define MARKS 256 /* later ones are not marked */

enum scenario {
    BREAKDOWN,
    AVALANCHE,
    PENETRATION,
    COLD,
    CRASH,
    REDIS_DOWN,
    DB_DOWN,
    SLOW_DB,
    RESTART,
    SCENARIOS
};
extern const char *const scenario_names[SCENARIOS];

/* What a run is asked for. */
struct options {
    const char *redis_uri, *mysql_uri;
    const char *redis_nodes; /* whom the runner asks; NULL: redis_uri */
    const char *program;     /* the script's */
    uint64_t processes, threads, load_ms, expiries, keys, page, seconds, seed;
    uint64_t max_loads, crashes, db_capacity, down_seconds;
    uint64_t redis_pid, db_pid; /* 0: not ours to be stopped */
    double zipf;
};

struct runner {
    const struct options *options;
    const struct strategy *strategy;
    enum scenario scenario;
    struct record *record;
    redisContext *node[NODES_MAX]; /* Redis, or the primaries of a cluster */
    size_t nodes;
    struct database *db;
    uint64_t own_commands;
    struct fleet fleet;
    struct picks picks;
    uint64_t load_ms; /* what a query costs in this scenario */
    /* what the servers had counted when the counting began; at the end, what
     * they have counted since */
    uint64_t queries, commands, expired;
    /* what it has done, beside what the record has */
    uint64_t end_us;
    uint64_t events; /* expiries, refreshes, kills */
    uint64_t keys;   /* different keys that were asked for */
    double recovery_p50_ms, recovery_max_ms; /* kill to next load; -1: none */
    const char *mark_text; /* what it did to the cache, and when, in seconds */
    size_t marks;
    double mark_s[MARKS];
};

_Noreturn void runner_die(const char *what, const char *why);
void runner_progress(const struct runner *c, const char *what, uint64_t n,
                     uint64_t of);

/* Let the fleet read, until it is told to end. */
void runner_begin(struct runner *c, fleet_pick *pick, uint64_t think_us);
void runner_end(struct runner *c);
void runner_set_capacity(struct runner *c, uint64_t slots, uint64_t load_ms);
void runner_count_from_here(struct runner *c);
/* Something has just been done; text is a literal. */
void runner_mark(struct runner *c, const char *text);

/* Run the scenario, in which a server fails: from REDIS_DOWN on. */
void trouble_run(struct runner *c);

/* Write all that was measured as a line of JSON; false: it failed. */
bool outcome_write(FILE *out, const struct runner *c);

/* Run a scenario with one strategy, and write its outcome. Exits, with all
 * children ended, when a server fails. */
bool scenario_run(const struct options *options, enum scenario scenario,
                  const struct strategy *strategy, FILE *out);

#endif
