/* The scenarios: what happens to the cache while backends read from it. */
#ifndef DEMO_SCENARIOS_H
#define DEMO_SCENARIOS_H

#include "common/strategies.h"

struct options {
    const char *redis_uri, *mysql_uri, *json, *svg, *sheet;
    uint64_t processes, threads, load_ms, expiries, keys, page, seconds, seed;
    uint64_t max_loads, crashes, db_capacity;
    double zipf;
};

/* What one scenario showed of one strategy. */
struct outcome {
    const char *scenario, *strategy;
    double seconds;
    uint64_t queries;      /* by the server's own counter */
    uint64_t queried_keys; /* keys in them */
    uint64_t events;       /* expiries, kills */
    uint64_t keys;         /* different keys that were asked for */
    uint64_t calls, errors, redis_commands, most_under_way;
    double p50_ms, p99_ms, p999_ms, max_ms;
    uint64_t waited; /* callers that waited for another's load */
    double extra_p50_ms, extra_p99_ms;
    double recovery_p50_ms, recovery_max_ms; /* kill to next load */
    char first_error[160];
    size_t slots;
    uint64_t slot_queries[SLOTS], slot_worst_us[SLOTS];
};

#define SCENARIOS 5
extern const char *const scenario_names[SCENARIOS];

/* Run a scenario (its place in scenario_names) with one strategy. Exits, with
 * all children ended, when a server fails. */
void scenario_run(const struct options *options, size_t scenario,
                  const struct strategy *strategy, struct outcome *out);

#endif
