/* A flight's load: the job, and what is counted and told of it. */
#include "flight/flight_load.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/container.h"
#include "base/error.h"
#include "base/random.h"
#include "base/value.h"
#include "entry/freshness.h"

static void count(struct shed_counters *c, const struct shed_loaded *l)
{
    if (l->batch_keys > 0) {
        shed_count(&c->loads, 1);
        shed_count(&c->loads_failed, l->failed_keys == l->batch_keys);
        shed_histogram_add(&c->load_us, l->cost_us);
        shed_histogram_add(&c->batch_keys, l->batch_keys);
    }
    shed_count(&c->loaded_keys, 1);
    if (l->value == NULL)
        shed_count(&c->load_failures, 1);
    else if (l->is_unmodified)
        shed_count(&c->unmodified, 1);
}

static void tell(const struct shed_flight_load *load)
{
    const struct shed_loaded *l = &load->loaded;
    bool has_failed = l->value == NULL;
    const struct shed_cache *cache = load->shared->cache;
    const struct shed_event event = {
        .kind = SHED_EVENT_LOAD_FINISHED,
        .outcome = has_failed ? l->error.code : SHED_OK,
        .name = shed_str(cache->name),
        .key = load->key,
        .duration_us = l->cost_us,
        .reason = has_failed ? l->error.reason : NULL};

    shed_events_tell_of(cache->client->events, &event,
                        has_failed ? l->failed_keys : 1);
}

static void on_breaker(struct shed_source_watcher *watcher, bool is_open,
                       uint64_t after_ms, const char *reason)
{
    const struct shed_cache *cache =
        shed_container_of(watcher, struct shed_flight_shared, watcher)->cache;
    const struct shed_event event = {.kind = SHED_EVENT_BREAKER,
                                     .outcome =
                                         is_open ? SHED_ESOURCE : SHED_OK,
                                     .name = shed_str(cache->name),
                                     .duration_us = after_ms * 1000,
                                     .reason = reason};

    shed_events_tell(cache->client->events, &event);
}

void shed_flight_load_watch(struct shed_flight_shared *shared)
{
    shared->watcher.on_breaker = on_breaker;
    shed_source_watch(shared->cache->source, &shared->watcher);
}

void shed_flight_load_unwatch(struct shed_flight_shared *shared)
{
    shed_source_unwatch(shared->cache->source, &shared->watcher);
}

uint64_t shed_flight_load_ttl_ms(const struct shed_loaded *l,
                                 const struct shed_cache_options *o)
{
    bool is_absent = l->value->kind == SHED_KIND_ABSENT;

    if (l->has_ttl)
        return l->ttl_ms;
    return shed_freshness_ttl_ms(is_absent ? o->negative_ttl_ms : o->ttl_ms,
                                 o->ttl_jitter_pct, shed_random_jitter());
}

/* "No such row" has none, whatever the source says. */
static struct shed_row_version version_of(const struct shed_loaded *l)
{
    const struct shed_row_version none = {.is_known = false};

    return l->value->kind == SHED_KIND_ABSENT ? none : l->version;
}

/* Whether Redis takes it or not; if it refuses, because the key was
 * invalidated, it is dropped again. */
static void keep(const struct shed_flight_load *load)
{
    const struct shed_cache *cache = load->shared->cache;
    struct shed_local_row row = {.value = load->loaded.value,
                                 .position = load->position};

    if (cache->local == NULL || row.value == NULL || load->loaded.is_unmodified)
        return;
    row.ttl_ms = shed_flight_load_ttl_ms(&load->loaded, &cache->options);
    row.version = version_of(&load->loaded);
    shed_local_keep(cache->local, load->redis_key, load->mark, &row,
                    shed_now_ms());
}

static void drop(struct shed_flight_load *load)
{
    shed_value_unref(load->loaded.value);
    load->loaded.value = NULL;
    free(load->loaded.tags);
    load->loaded.tags = NULL;
}

/* A source that reads a replica which lags: the row in Redis is newer, and a
 * refresh that found an older one has failed. A row without a version, and "no
 * such row", may be newer. SHED_ELOST tells the callers, and by the failure
 * marker those in other processes, what kind of failure it is. */
static void refuse_older(struct shed_flight_load *load)
{
    struct shed_row_version old = load->job.old_version;
    struct shed_loaded *l = &load->loaded;

    if (l->value == NULL || l->is_unmodified ||
        !shed_row_version_is_lower(version_of(l), old))
        return;
    drop(load);
    l->failed_keys = 1;
    (void)shed_fail(&l->error, SHED_ELOST,
                    "the source read version %" PRIu64
                    " of the row, and Redis has version %" PRIu64
                    ": does it read a replica that lags?",
                    l->version.number, old.number);
}

/* As if it had been refused when it came. */
static void on_refused(struct shed_flight_load *load)
{
    shed_count(&load->shared->cache->counters.loads_refused, 1);
    load->on_event(load->arg,
                   (struct shed_flight_event){.type = SHED_EV_LOAD_REFUSED,
                                              .request = load->request});
}

static void on_loaded(struct shed_post *post)
{
    struct shed_flight_load *load =
        shed_container_of(post, struct shed_flight_load, post);

    load->is_busy = false;
    if (load->loaded.is_refused) {
        on_refused(load);
        return;
    }
    refuse_older(load);
    count(&load->shared->cache->counters, &load->loaded);
    tell(load);
    keep(load);
    load->on_event(load->arg,
                   (struct shed_flight_event){
                       .type = load->loaded.value != NULL ? SHED_EV_LOADED
                                                          : SHED_EV_LOAD_FAILED,
                       .is_unmodified = load->loaded.is_unmodified,
                       .request = load->request});
}

static void settle(struct shed_job *job, struct shed_loaded *loaded)
{
    struct shed_flight_load *load =
        shed_container_of(job, struct shed_flight_load, job);

    load->loaded = *loaded;
    load->post.run = on_loaded;
    shed_reactor_post(load->shared->cache->client->reactor, &load->post);
}

static void begin(struct shed_job *job, bool is_first)
{
    struct shed_flight_load *load =
        shed_container_of(job, struct shed_flight_load, job);
    struct shed_counters *c = &load->shared->cache->counters;

    if (is_first)
        shed_count(&c->loads_begun, 1);
    if (job->waited_us > 0) {
        shed_count(&c->fleet_waits, 1);
        shed_histogram_add(&c->fleet_wait_us, job->waited_us);
    }
    atomic_store(&load->waiters->awaited, SHED_AWAITS_LOAD);
}

bool shed_flight_load_start(struct shed_flight_load *load, uint64_t request,
                            struct shed_row_version old, struct shed_error *err)
{
    struct shed_cache *cache = load->shared->cache;

    assert(!load->is_busy);
    drop(load);
    load->request = request;
    load->mark = shed_local_mark(cache->local, load->redis_key);
    load->job = (struct shed_job){
        .key = load->key.data,
        .key_size = load->key.size,
        .deadline_ms = shed_deadline_ms(shed_now_ms(),
                                        load->shared->policy.load_timeout_ms),
        .value_limit_bytes = (size_t)cache->options.value_limit_bytes,
        .group = cache,
        .old_version = old,
        .is_background = load->is_background,
        .settle = settle,
        .begin = begin};
    atomic_store(&load->waiters->awaited, SHED_AWAITS_QUEUE);
    if (shed_source_queue(cache->source, &load->job, err) != SHED_OK) {
        shed_count(&cache->counters.loads_refused, 1);
        return false;
    }
    load->is_busy = true;
    shed_timer_set(load->shared->wake, 0); /* with what else this turn brings */
    return true;
}

void shed_flight_load_hasten(struct shed_flight_load *load)
{
    if (load->is_busy)
        shed_source_hasten(load->shared->cache->source, &load->job);
}

void shed_flight_load_fini(struct shed_flight_load *load)
{
    assert(!load->is_busy);
    drop(load);
}
