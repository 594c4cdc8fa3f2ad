/* ping: whether Redis answers, and how fast. */
#include <stdio.h>

#include "base/clock.h"
#include "cli/redis.h"
#include "cli/latency.h"

#define PINGS_DEFAULT 5

int cli_ping(struct cli_call *call)
{
    struct cli_redis *redis = cli_redis_open(call, NULL);
    struct cli_latency latency;

    cli_latency_measure(
        redis, call->count_limit > 0 ? call->count_limit : PINGS_DEFAULT,
        &latency);
    if (call->is_json)
        cli_json_print(call,
                       json_pack("{s:s, s:o}", "server", cli_redis_name(redis),
                                 "latency", cli_latency_json(&latency)));
    else
        printf("%s answers: median %.3f ms, slowest %.3f ms of %llu\n",
               cli_redis_name(redis), latency.median_ms, latency.slowest_ms,
               (unsigned long long)latency.count);
    cli_redis_close(redis);
    return CLI_YES;
}
