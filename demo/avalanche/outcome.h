/* What a run is asked for, and what each of its scenarios has shown. */
#ifndef DEMO_OUTCOME_H
#define DEMO_OUTCOME_H

#include <stdio.h>

#include "strategies.h"

struct options {
    const char *redis_uri, *mysql_uri;
    const char *redis_nodes; /* whom the runner asks; NULL: redis_uri */
    const char *program;     /* the script's */
    uint64_t processes, threads, load_ms, expiries, keys, page, seconds, seed;
    uint64_t max_loads, crashes, db_capacity, down_seconds;
    uint64_t redis_pid, db_pid; /* 0: not ours to be stopped */
    double zipf;
};

#define MARKS 256 /* later ones are not marked */

/* A tenth of a second of a scenario: the calls that began and returned in
 * it. */
struct moment {
    uint64_t queries;
    bool has_calls; /* false: there are no percentiles */
    double p50_ms, p99_ms;
};

/* The result of one strategy in one scenario. */
struct outcome {
    const char *scenario, *strategy;
    double seconds;
    uint64_t queries;      /* by the server's own counter */
    uint64_t queried_keys; /* keys in them */
    uint64_t events;       /* expiries, refreshes, kills */
    uint64_t keys;         /* different keys that were asked for */
    uint64_t calls, errors, redis_commands, most_under_way;
    uint64_t slow_calls; /* took longer than slow_ms, which is two queries */
    uint64_t slow_ms;
    uint64_t waited;     /* calls that waited for a load */
    uint64_t late_calls; /* ended later than slack_ms after timeout_ms */
    uint64_t timeout_ms; /* of a call; 0: it has none */
    uint64_t stale;      /* calls that got what was invalidated before */
    uint64_t told_late;  /* changes whose invalidation failed at first */
    uint64_t bound;      /* queries at once that there may be; 0: none */
    uint64_t stale_ms;   /* that a row is given out after its ttl */
    double slack_ms;     /* what the machine adds to a deadline */
    double p50_ms, p99_ms, max_ms;
    double busy_ms, calm_ms;           /* p99.9 while there are queries; else */
    double extra_p50_ms, extra_p99_ms; /* wait after another's load */
    double recovery_p50_ms, recovery_max_ms; /* kill to next load; -1: none */
    char first_error[160];
    /* what the runner did to the cache, and when, in seconds */
    const char *mark_text;
    size_t marks;
    double mark_s[MARKS];
    size_t moments;
    struct moment moment[SLOTS];
};

/* Write it as a line of JSON, by the names of the fields; false: it failed. */
bool outcome_write(FILE *out, const struct outcome *outcome);

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

#endif
