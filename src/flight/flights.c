/*
 * Flights under way. Its invariant: a flight is in the table before it is
 * started, and counted until it is freed.
 *
 * A flight is made and put into the table by a caller's thread, and started by
 * a post. Those that one call has made are posted together; a load that a step
 * wants is queued, and the source is woken by a timer of 0 ms, after everything
 * else of this turn of the loop. So keys that were asked for together, or whose
 * leases were granted together, are loaded in one batch.
 */
#include "flight/flights.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/container.h"
#include "base/error.h"
#include "base/mutex.h"
#include "flight/flight_publish.h"
#include "known/near.h"

/* A lease record outlives the longest load, by as much as it takes to publish
 * what was loaded. */
#define RECORD_MARGIN_MS 5000

/* After a refresh that failed the process tries again once the failure marker
 * is gone, and not at each hit while Redis refuses the lease. */
#define PAUSE_MIN_MS 200

struct shed_flights {
    struct shed_flight_shared shared;
    /* set at creation */
    struct shed_listener listener; /* of the cache's keys */
    char prefix[SHED_NAME_MAX_BYTES + 2];

    struct shed_mutex mu;
    pthread_cond_t idle;
    /* under mu */
    size_t tasks; /* not freed yet */
};

/* ----------------------------------------------------------------- changes */

static struct shed_flights *flights_of(struct shed_listener *listener)
{
    return shed_container_of(listener, struct shed_flights, listener);
}

static void on_change(struct shed_listener *listener, const char *key,
                      size_t key_size)
{
    struct shed_table *table = flights_of(listener)->shared.table;
    size_t size = shed_entry_key_size(key, key_size);
    struct shed_waiters *waiters = shed_table_next_of(table, NULL, key, size);

    shed_near_change(flights_of(listener)->shared.cache->near, key, key_size);
    while (waiters != NULL) {
        struct shed_waiters *next =
            shed_table_next_of(table, waiters, key, size);
        shed_flight_task_push(
            shed_container_of(waiters, struct shed_flight_task, waiters));
        waiters = next;
    }
}

static void tell_epoch(struct shed_waiters *waiters)
{
    shed_flight_task_epoch(
        shed_container_of(waiters, struct shed_flight_task, waiters));
}

static void on_epoch(struct shed_listener *listener)
{
    shed_near_epoch(flights_of(listener)->shared.cache->near);
    shed_table_each(flights_of(listener)->shared.table, tell_epoch);
}

/* ------------------------------------------------------------ the flights */

static struct shed_flight_task *create_task(struct shed_flights *fs,
                                            const struct shed_key *key)
{
    struct shed_flight_task *task = shed_flight_task_create(&fs->shared, key);

    if (task == NULL)
        return NULL;
    shed_mutex_lock(&fs->mu);
    fs->tasks++;
    shed_mutex_unlock(&fs->mu);
    return task;
}

static void destroy_task(struct shed_flight_task *task)
{
    struct shed_flights *fs =
        shed_container_of(task->shared, struct shed_flights, shared);

    shed_flight_task_destroy(task);
    shed_mutex_lock(&fs->mu);
    assert(fs->tasks > 0);
    if (--fs->tasks == 0)
        pthread_cond_broadcast(&fs->idle);
    shed_mutex_unlock(&fs->mu);
}

enum shed_code
shed_flights_join(struct shed_flights *fs, const struct shed_key *key,
                  struct shed_seen seen, struct shed_caller *caller,
                  struct shed_post **starts, struct shed_error *err)
{
    enum shed_join join =
        shed_table_join(fs->shared.table, key->redis, key->redis_size, caller);
    struct shed_flight_task *task;

    if (join == SHED_JOIN_NONE) {
        task = create_task(fs, key);
        if (task == NULL)
            return shed_fail_nomem(err, "a flight");
        task->flight.first = seen.first;
        if (seen.aged != NULL) {
            task->waiters.is_forced = true;
            task->is_revoked = seen.is_revoked;
            memcpy(task->exchange.due, seen.aged, sizeof(task->exchange.due));
        }
        join = shed_table_insert(fs->shared.table, &task->waiters, caller);
        if (join == SHED_JOIN_ADDED) {
            task->post.next = *starts;
            *starts = &task->post;
            return SHED_OK;
        }
        destroy_task(task);
    }
    shed_count(join == SHED_JOIN_JOINED
                   ? &fs->shared.cache->counters.joins
                   : &fs->shared.cache->counters.callers_refused,
               1);
    return shed_table_code(join, err);
}

void shed_flights_refresh(struct shed_flights *fs, const struct shed_key *key,
                          const unsigned char *identity)
{
    struct shed_flight_task *task;

    if (shed_table_is_busy(fs->shared.table, key->redis, key->redis_size) ||
        shed_source_ask_breaker(fs->shared.cache->source, NULL) != SHED_OK)
        return;
    task = create_task(fs, key);
    if (task == NULL)
        return;
    task->is_background = true;
    if (identity != NULL)
        memcpy(task->exchange.due, identity, sizeof(task->exchange.due));
    if (shed_table_insert_background(fs->shared.table, &task->waiters))
        shed_reactor_post(fs->shared.cache->client->reactor, &task->post);
    else
        destroy_task(task);
}

void shed_flights_start(struct shed_flights *fs, struct shed_post *starts)
{
    shed_reactor_post_all(fs->shared.cache->client->reactor, starts);
}

bool shed_flights_has(struct shed_flights *fs, const struct shed_key *key)
{
    return shed_table_has(fs->shared.table, key->redis, key->redis_size);
}

bool shed_flights_leave(struct shed_flights *fs, struct shed_caller *caller,
                        enum shed_leave how)
{
    return shed_table_leave(fs->shared.table, caller, how);
}

void shed_flights_detach(struct shed_flights *fs, const struct shed_key *key)
{
    shed_table_detach(fs->shared.table, key->redis, key->redis_size);
}

/* -------------------------------------------------------- begin and end */

/* What belongs to the reactor. */
struct opening {
    struct shed_flights *flights;
    enum shed_code code;
    struct shed_error *err;
};

static void open_on_reactor(void *arg)
{
    struct opening *o = arg;
    struct shed_flights *fs = o->flights;

    if (!shed_listeners_add(fs->shared.cache->client->listeners, &fs->listener))
        o->code = shed_fail(o->err, SHED_EINVAL,
                            "cache name: this client already has an open cache "
                            "of that name: use its handle, or another name");
}

static void hurry(struct shed_waiters *waiters)
{
    struct shed_flight_task *task =
        shed_container_of(waiters, struct shed_flight_task, waiters);

    shed_table_forget(task->shared->table, waiters);
    shed_flight_task_hurry(task);
}

/* End those that only watch or pause. */
static void hurry_on_reactor(void *arg)
{
    struct shed_flights *fs = arg;

    fs->shared.is_closing = true;
    shed_table_each(fs->shared.table, hurry);
}

static void close_on_reactor(void *arg)
{
    struct shed_flights *fs = arg;

    shed_listeners_remove(fs->shared.cache->client->listeners, &fs->listener);
    shed_timer_destroy(fs->shared.wake);
    shed_timer_destroy(fs->shared.publish);
}

static void wake_source(void *source)
{
    shed_source_wake(source);
}

static enum shed_code open_parts(struct shed_flights *fs,
                                 struct shed_error *err)
{
    struct opening o = {fs, SHED_OK, err};

    if (shed_mutex_init(&fs->mu, SHED_RANK_FLIGHTS) != 0)
        return shed_fail_nomem(err, "a cache");
    if (shed_cond_init(&fs->idle) != 0) {
        o.code = shed_fail_nomem(err, "a cache");
        goto fail_mutex;
    }
    fs->shared.table =
        shed_table_create(shed_source_callers(fs->shared.cache->source));
    fs->shared.wake = shed_timer_create(fs->shared.cache->client->reactor,
                                        wake_source, fs->shared.cache->source);
    fs->shared.publish =
        shed_timer_create(fs->shared.cache->client->reactor,
                          shed_flight_publish_all, &fs->shared);
    if (fs->shared.table == NULL || fs->shared.wake == NULL ||
        fs->shared.publish == NULL) {
        o.code = shed_fail_nomem(err, "a cache");
        goto fail;
    }
    shed_reactor_run(fs->shared.cache->client->reactor, open_on_reactor, &o);
    if (o.code == SHED_OK) {
        shed_flight_load_watch(&fs->shared);
        return SHED_OK;
    }
fail:
    shed_timer_destroy(fs->shared.wake);
    shed_timer_destroy(fs->shared.publish);
    shed_table_destroy(fs->shared.table);
    pthread_cond_destroy(&fs->idle);
fail_mutex:
    shed_mutex_destroy(&fs->mu);
    return o.code;
}

enum shed_code shed_flights_create(struct shed_cache *cache,
                                   struct shed_flights **out,
                                   struct shed_error *err)
{
    const struct shed_cache_options *o = &cache->options;
    struct shed_flights *fs = calloc(1, sizeof(*fs));
    uint64_t load_timeout_ms = shed_source_load_timeout_ms(cache->source);
    enum shed_code code;

    *out = NULL;
    if (fs == NULL)
        return shed_fail_nomem(err, "a cache");
    fs->shared.cache = cache;
    fs->shared.on_over = destroy_task;
    fs->shared.policy = (struct shed_flight_policy){
        .lease_ms = o->lease_ms,
        .load_timeout_ms = load_timeout_ms,
        .load_when_down = o->redis_down != SHED_REDIS_DOWN_FAIL,
        .refresh_when_down = shed_cache_takes_local(cache),
        .pause_ms = o->failure_ttl_ms > PAUSE_MIN_MS ? o->failure_ttl_ms
                                                     : PAUSE_MIN_MS};
    shed_write_digits(fs->shared.lease_ms, o->lease_ms);
    shed_write_digits(fs->shared.grace_ms, SHED_LEASE_GRACE_MS);
    shed_write_digits(fs->shared.record_ms,
                      load_timeout_ms + o->lease_ms + RECORD_MARGIN_MS);
    (void)snprintf(fs->prefix, sizeof(fs->prefix), "%s:", cache->name);
    fs->listener = (struct shed_listener){.key = fs->prefix,
                                          .key_size = strlen(fs->prefix),
                                          .is_prefix = true,
                                          .on_change = on_change,
                                          .on_epoch = on_epoch};
    code = open_parts(fs, err);
    if (code == SHED_OK)
        *out = fs;
    else
        free(fs);
    return code;
}

void shed_flights_close(struct shed_flights *fs)
{
    if (fs == NULL)
        return;
    shed_reactor_run(fs->shared.cache->client->reactor, hurry_on_reactor, fs);
    shed_mutex_lock(&fs->mu);
    while (fs->tasks > 0)
        pthread_cond_wait(&fs->idle, &fs->mu.mutex);
    shed_mutex_unlock(&fs->mu);
    shed_flight_load_unwatch(&fs->shared);
    shed_reactor_run(fs->shared.cache->client->reactor, close_on_reactor, fs);
    shed_table_destroy(fs->shared.table);
    pthread_cond_destroy(&fs->idle);
    shed_mutex_destroy(&fs->mu);
    free(fs);
}
