/* Every counter of a sample is one of the instance's: nothing is estimated. */
#include "sample.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "service.h"
#include "wait.h"

#define HOT_ITEMS 10
#define WAIT_MAX_MS (2 * SAMPLE_MS)
#define SAMPLES_PER_SECOND (1000 / SAMPLE_MS)

struct sampler {
    /* main thread only */
    uint64_t taken; /* samples so far */
    /* what had been counted at the samples of the last second */
    struct histogram_counts latency[SAMPLES_PER_SECOND];
    struct lane_stats last;
    pthread_mutex_t mu;
    pthread_cond_t changed;
    /* under mu */
    uint64_t time_ms; /* of the newest; 0: there is none */
    char *text;       /* it, as JSON */
};

struct sampler *sample_new(void)
{
    struct sampler *sampler = calloc(1, sizeof(*sampler));

    if (sampler != NULL)
        wait_init(&sampler->mu, &sampler->changed);
    return sampler;
}

void sample_free(struct sampler *sampler)
{
    if (sampler == NULL)
        return;
    (void)pthread_cond_destroy(&sampler->changed);
    (void)pthread_mutex_destroy(&sampler->mu);
    free(sampler->text);
    free(sampler);
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

static void add(json_t *object, const char *name, uint64_t value)
{
    (void)json_object_set_new(object, name, json_integer((json_int_t)value));
}

/* The oldest of the counts is replaced by those of now. */
static void add_latency(json_t *object, struct sampler *sampler,
                        const struct histogram *latency)
{
    struct histogram_counts *then =
        &sampler->latency[sampler->taken % SAMPLES_PER_SECOND];
    struct histogram_counts now;

    histogram_read(latency, &now);
    add(object, "p50_us", histogram_between_us(then, &now, 0.5));
    add(object, "p99_us", histogram_between_us(then, &now, 0.99));
    add(object, "max_us", histogram_between_us(then, &now, 1.0));
    *then = now;
}

static void add_lane(json_t *object, const struct lane_stats *stats,
                     uint64_t most_waiting)
{
    json_t *origins = json_object();

    for (enum lane_origin i = 0; i < LANE_ORIGINS; i++)
        add(origins, lane_origin_name(i), stats->origin[i]);
    add(object, "queries", stats->queries);
    add(object, "queries_alive", stats->queries_alive);
    add(object, "waiting", stats->waiting);
    add(object, "most_waiting", most_waiting);
    (void)json_object_set_new(object, "origins", origins);
}

static const char *breaker_name(enum shed_breaker_state state)
{
    static const char *const names[] = {[SHED_BREAKER_CLOSED] = "closed",
                                        [SHED_BREAKER_HALF_OPEN] = "half-open",
                                        [SHED_BREAKER_OPEN] = "open"};

    return names[state];
}

static json_t *redis_json(const struct lane_redis *redis)
{
    json_t *object =
        json_pack("{s:b,s:s}", "up", redis->is_up, "breaker",
                  redis->has_breaker ? breaker_name(redis->breaker) : "none");

    add(object, "since_ms", redis->since_ms);
    add(object, "retry_ms", redis->retry_ms);
    return object;
}

/* A breaker by what it is before, so that a page shows as many as there are. */
static json_t *guard_json(const struct lane_guard *guard)
{
    json_t *object = json_pack("{s:{s:s},s:o}", "breakers", "database",
                               breaker_name(guard->breaker), "redis",
                               redis_json(&guard->redis));

    add(object, "loads", guard->loads);
    add(object, "loads_limit", guard->loads_limit);
    add(object, "loads_max", guard->loads_max);
    add(object, "refused", guard->refused);
    add(object, "undelivered", guard->undelivered);
    return object;
}

static json_t *hot_json(struct popular *popular)
{
    struct popular_key keys[HOT_ITEMS];
    size_t count = popular_list(popular, keys, HOT_ITEMS, wait_now_ms());
    json_t *list = json_array();

    for (size_t i = 0; i < count; i++) {
        json_t *hot = json_object();
        add(hot, "id", keys[i].id);
        add(hot, "wanted", keys[i].count);
        (void)json_array_append_new(list, hot);
    }
    return list;
}

/* Without memory it lacks something, or there is none. */
static char *make_text(struct sampler *sampler, struct service *s,
                       uint64_t time_ms)
{
    struct metrics_items items = metrics_items(&s->metrics);
    struct lane_stats stats;
    json_t *all = json_object();
    char *text;

    read_lane(sampler, s->lane, &stats);
    (void)json_object_set_new(all, "lane", json_string(lane_name(s->lane)));
    add(all, "pid", (uint64_t)getpid());
    add(all, "port", s->port);
    add(all, "time_ms", time_ms);
    add(all, "requests", items.requests);
    add(all, "errors", items.errors);
    add_lane(all, &stats, lane_take_most_waiting(s->lane));
    if (stats.guard.is_there)
        (void)json_object_set_new(all, "guard", guard_json(&stats.guard));
    add_latency(all, sampler, &s->metrics.latency);
    (void)json_object_set_new(all, "hot", hot_json(&s->popular));
    text = json_dumps(all, JSON_COMPACT);
    json_decref(all);
    return text;
}

void sample_take(struct sampler *sampler, struct service *s)
{
    uint64_t time_ms = unix_ms();
    char *text = make_text(sampler, s, time_ms);

    sampler->taken++;
    if (text == NULL)
        return;
    (void)pthread_mutex_lock(&sampler->mu);
    free(sampler->text);
    sampler->text = text;
    sampler->time_ms = time_ms;
    (void)pthread_cond_broadcast(&sampler->changed);
    (void)pthread_mutex_unlock(&sampler->mu);
}

void sample_reply(struct sampler *sampler, uint64_t after_ms,
                  struct http_reply *reply)
{
    uint64_t until_ms = wait_now_ms() + WAIT_MAX_MS;
    bool is_in_time = true;
    char *text;

    (void)pthread_mutex_lock(&sampler->mu);
    while (sampler->time_ms <= after_ms && is_in_time)
        is_in_time = wait_until(&sampler->changed, &sampler->mu, until_ms);
    text = sampler->text != NULL ? strdup(sampler->text) : NULL;
    (void)pthread_mutex_unlock(&sampler->mu);
    if (text != NULL)
        http_reply_text(reply, 200, "application/json", text);
    else
        http_reply_error(reply, 503, "there is no sample yet");
}
