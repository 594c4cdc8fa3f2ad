/* How long a server takes to answer PING, measured. */
#ifndef CLI_LATENCY_H
#define CLI_LATENCY_H

#include "cli/redis.h"

struct cli_latency {
    uint64_t count;
    double fastest_ms, median_ms, slowest_ms;
};

/* Ask count times, one after the other. */
void cli_latency_measure(struct cli_redis *redis, uint64_t count,
                         struct cli_latency *out);
json_t *cli_latency_json(const struct cli_latency *latency);

#endif
