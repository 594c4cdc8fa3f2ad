/* A flight's load: the job, and what is counted and told of it. */
#include "flight/flight_task.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/container.h"
#include "base/error.h"
#include "base/random.h"
#include "base/value.h"

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

static void tell(const struct shed_flight_task *t)
{
    const struct shed_loaded *l = &t->job.loaded;
    bool has_failed = l->value == NULL;
    const struct shed_cache *cache = t->flights->cache;
    const struct shed_event event = {
        .kind = SHED_EVENT_LOAD_FINISHED,
        .outcome = has_failed ? l->error.code : SHED_OK,
        .name = shed_str(cache->name),
        .key = t->user_key,
        .duration_us = l->cost_us,
        .reason = has_failed ? l->error.reason : NULL};

    shed_events_tell_of(cache->client->events, &event,
                        has_failed ? l->failed_keys : 1);
}

/* How long what was loaded is fresh; at random within the cache's jitter. */
static uint64_t ttl_ms(const struct shed_flight_task *t)
{
    const struct shed_cache_options *o = &t->flights->cache->options;
    const struct shed_loaded *l = &t->job.loaded;
    bool is_absent = l->value->kind == SHED_KIND_ABSENT;

    if (l->has_ttl)
        return l->ttl_ms;
    return shed_freshness_ttl_ms(is_absent ? o->negative_ttl_ms : o->ttl_ms,
                                 o->ttl_jitter_pct, shed_random_jitter());
}

/* Whether Redis takes it or not; if it refuses, because the key was
 * invalidated, it is dropped again. */
static void keep(struct shed_flight_task *t)
{
    const struct shed_cache *cache = t->flights->cache;
    struct shed_local_row row = {.value = t->job.loaded.value,
                                 .position = t->position};

    if (row.value == NULL)
        return;
    t->fresh_ms = ttl_ms(t);
    if (cache->local == NULL || t->job.loaded.is_unmodified)
        return;
    row.ttl_ms = t->fresh_ms;
    row.version = t->job.loaded.version;
    shed_local_keep(cache->local, t->key, t->load_mark, &row, shed_now_ms());
}

void shed_flight_load_drop(struct shed_flight_task *t)
{
    shed_value_unref(t->job.loaded.value);
    t->job.loaded.value = NULL;
    free(t->job.loaded.tags);
    t->job.loaded.tags = NULL;
}

/* A source that reads a replica which lags: the row in Redis is newer, and a
 * refresh that found an older one has failed. A row without a version, and "no
 * such row", may be newer. */
static void refuse_older(struct shed_flight_task *t)
{
    struct shed_row_version old = t->job.old_version;
    struct shed_loaded *l = &t->job.loaded;

    if (l->value == NULL || l->is_unmodified ||
        !shed_row_version_is_lower(l->version, old))
        return;
    shed_flight_load_drop(t);
    l->failed_keys = 1;
    (void)shed_fail(&l->error, SHED_ESOURCE,
                    "the source read version %" PRIu64
                    " of the row, and Redis has version %" PRIu64
                    ": the source reads a replica that lags, or the row was "
                    "restored, and its key must be invalidated",
                    l->version.number, old.number);
}

static void on_loaded(struct shed_post *post)
{
    struct shed_flight_task *t =
        shed_container_of(post, struct shed_flight_task, post);
    struct shed_flight_event event = {0};

    t->is_loading = false;
    if (t->job.loaded.is_refused) {
        shed_count(&t->flights->cache->counters.loads_refused, 1);
        event.type = SHED_EV_LOAD_REFUSED;
    } else {
        refuse_older(t);
        count(&t->flights->cache->counters, &t->job.loaded);
        tell(t);
        keep(t);
        event.type =
            t->job.loaded.value != NULL ? SHED_EV_LOADED : SHED_EV_LOAD_FAILED;
        event.is_unmodified = t->job.loaded.is_unmodified;
    }
    if (event.type != SHED_EV_LOADED)
        t->error = t->job.loaded.error;
    shed_flight_task_drive(t, event);
}

static void settle(struct shed_job *job)
{
    struct shed_flight_task *t =
        shed_container_of(job, struct shed_flight_task, job);

    t->post.run = on_loaded;
    shed_reactor_post(t->flights->cache->client->reactor, &t->post);
}

static void begin(struct shed_job *job, bool is_first, uint64_t waited_us)
{
    struct shed_flight_task *t =
        shed_container_of(job, struct shed_flight_task, job);
    struct shed_counters *c = &t->flights->cache->counters;

    if (is_first)
        shed_count(&c->loads_begun, 1);
    if (is_first && waited_us > 0) {
        shed_count(&c->fleet_waits, 1);
        shed_histogram_add(&c->fleet_wait_us, waited_us);
    }
    atomic_store(&t->has_begun, true);
}

/* The position comes before the load, so that the row has all that was
 * committed before that invalidation. The source is not told the version of a
 * revoked row: "unmodified" would renew the entry, and not its position. */
void shed_flight_load_start(struct shed_flight_task *t)
{
    struct shed_flights *flights = t->flights;
    struct shed_cache *cache = flights->cache;

    assert(!t->is_loading);
    shed_flight_load_drop(t);
    if (cache->tag_log != NULL) {
        t->position = shed_tag_log_position(cache->tag_log);
        t->news = shed_tag_log_news(cache->tag_log);
    }
    t->load_mark = shed_local_mark(cache->local, t->key);
    t->job = (struct shed_job){
        .key = t->user_key.data,
        .key_size = t->user_key.size,
        .deadline_ms =
            shed_deadline_ms(shed_now_ms(), flights->policy.load_timeout_ms),
        .value_limit_bytes = (size_t)cache->options.value_limit_bytes,
        .group = cache,
        .is_background = t->flight.is_background,
        .settle = settle,
        .begin = begin};
    if (!t->is_revoked)
        t->job.old_version = t->old_version;
    atomic_store(&t->has_begun, false);
    t->is_loading = true;
    shed_list_append(&flights->to_load, &t->job.node);
    shed_timer_set(flights->turn, 0);
}

void shed_flight_load_hasten(struct shed_flight_task *t)
{
    if (t->is_loading)
        shed_source_hasten(t->flights->cache->source, &t->job);
}
