/* Round trips, sorted. */
#include "cli/latency.h"

#include <stdlib.h>

#include "base/clock.h"

#define US_PER_MS 1000.0
#define KEPT_MAX 100000 /* more would not improve the median */

static int compare(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

void cli_latency_measure(struct cli_redis *redis, uint64_t count,
                         struct cli_latency *out)
{
    size_t n = count < KEPT_MAX ? (size_t)count : KEPT_MAX;
    size_t middle = n / 2;
    uint64_t *us = cli_alloc(n, sizeof(*us));

    for (size_t i = 0; i < n; i++) {
        uint64_t begin_us = shed_now_us();
        shed_reply_free(
            cli_redis_check(redis, cli_redis_ask(redis, "PING"), "PING"));
        us[i] = shed_now_us() - begin_us;
    }
    qsort(us, n, sizeof(*us), compare);
    out->count = n;
    out->fastest_ms = (double)us[0] / US_PER_MS;
    out->median_ms = (double)us[middle] / US_PER_MS;
    out->slowest_ms = (double)us[n - 1] / US_PER_MS;
    free(us);
}

json_t *cli_latency_json(const struct cli_latency *l)
{
    return json_pack("{s:I, s:f, s:f, s:f}", "count", (json_int_t)l->count,
                     "fastest_ms", l->fastest_ms, "median_ms", l->median_ms,
                     "slowest_ms", l->slowest_ms);
}
