/* Every counter of a sample is one of the instance's: nothing is estimated. */
#include "sample.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "service.h"

#define HOT_ITEMS 10
#define SAMPLE_BYTES 4096 /* of its text */

struct text {
    size_t size;
    char bytes[SAMPLE_BYTES];
};

static void __attribute__((format(printf, 2, 3)))
add(struct text *t, const char *format, ...)
{
    size_t left = sizeof(t->bytes) - t->size;
    va_list args;
    int size;

    va_start(args, format);
    size = vsnprintf(t->bytes + t->size, left, format, args);
    va_end(args);
    if (size > 0 && (size_t)size < left)
        t->size += (size_t)size;
}

static void raise_to(uint64_t *value, uint64_t least)
{
    if (*value < least)
        *value = least;
}

/* Counters that are sums are not read at one instant. What has been reported
 * never goes back: to a listener that would be an instance that has started
 * again. */
static void read_lane(struct sampler *sampler, struct lane *lane,
                      struct lane_stats *stats)
{
    lane_read_stats(lane, stats);
    raise_to(&stats->queries, sampler->last.queries);
    for (size_t i = 0; i < LANE_ORIGINS; i++)
        raise_to(&stats->origin[i], sampler->last.origin[i]);
    sampler->last = *stats;
}

static uint64_t unix_ms(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* The oldest of the counts is replaced by those of now. */
static void add_latency(struct text *t, struct sampler *sampler,
                        const struct histogram *latency)
{
    struct histogram_counts *then =
        &sampler->latency[sampler->taken % SAMPLES_PER_SECOND];
    struct histogram_counts now;

    histogram_read(latency, &now);
    add(t, "\"p50_us\":%" PRIu64 ",\"p99_us\":%" PRIu64 ",",
        histogram_between_us(then, &now, 0.5),
        histogram_between_us(then, &now, 0.99));
    add(t, "\"max_us\":%" PRIu64 ",", histogram_between_us(then, &now, 1.0));
    *then = now;
}

static void add_lane(struct text *t, const struct lane_stats *stats,
                     uint64_t most_waiting)
{
    add(t, "\"queries\":%" PRIu64 ",\"queries_alive\":%" PRIu64 ",",
        stats->queries, stats->queries_alive);
    add(t, "\"waiting\":%" PRIu64 ",\"most_waiting\":%" PRIu64 ",",
        stats->waiting, most_waiting);
    add(t, "\"origins\":{");
    for (size_t i = 0; i < LANE_ORIGINS; i++)
        add(t, "%s\"%s\":%" PRIu64, i > 0 ? "," : "",
            lane_origin_name((enum lane_origin)i), stats->origin[i]);
    add(t, "},");
}

static void add_redis(struct text *t, const struct lane_redis *redis)
{
    add(t, "\"redis\":{\"up\":%s,\"since_ms\":%" PRIu64 ",",
        redis->is_up ? "true" : "false", redis->since_ms);
    add(t, "\"breaker\":\"%s\",\"retry_ms\":%" PRIu64 "}",
        redis->has_breaker ? shed_breaker_state_name(redis->breaker) : "none",
        redis->retry_ms);
}

/* A breaker by what it is before, so that a page shows as many as there are. */
static void add_guard(struct text *t, const struct lane_guard *guard)
{
    if (!guard->is_there)
        return;
    add(t, "\"guard\":{\"breakers\":{\"database\":\"%s\"},",
        shed_breaker_state_name(guard->breaker));
    add(t, "\"loads\":%" PRIu64 ",\"loads_limit\":%" PRIu64 ",", guard->loads,
        guard->loads_limit);
    add(t, "\"loads_max\":%" PRIu64 ",\"refused\":%" PRIu64 ",",
        guard->loads_max, guard->refused);
    add(t, "\"undelivered\":%" PRIu64 ",", guard->undelivered);
    add_redis(t, &guard->redis);
    add(t, "},");
}

static void add_hot(struct text *t, struct popular *popular)
{
    struct popular_key keys[HOT_ITEMS];
    size_t count = popular_list(popular, keys, HOT_ITEMS, http_now_ms());

    add(t, "\"hot\":[");
    for (size_t i = 0; i < count; i++)
        add(t, "%s{\"id\":%" PRIu64 ",\"wanted\":%" PRIu64 "}",
            i > 0 ? "," : "", keys[i].id, keys[i].count);
    add(t, "]");
}

void sample_publish(struct sampler *sampler, struct service *s)
{
    struct metrics_items items = metrics_items(&s->metrics);
    struct lane_stats stats;
    struct text t = {0};

    read_lane(sampler, s->lane, &stats);
    add(&t, "event: sample\ndata: {\"lane\":\"%s\",\"pid\":%ld,\"port\":%u,",
        lane_name(s->lane), (long)getpid(), s->port);
    add(&t, "\"time_ms\":%" PRIu64 ",\"requests\":%" PRIu64, unix_ms(),
        items.requests);
    add(&t, ",\"errors\":%" PRIu64 ",", items.errors);
    add_lane(&t, &stats, lane_take_most_waiting(s->lane));
    add_guard(&t, &stats.guard);
    add_latency(&t, sampler, &s->metrics.latency);
    add_hot(&t, s->popular);
    add(&t, "}\n\n");
    sampler->taken++;
    sse_publish(s->events, t.bytes, t.size, true);
}
