/*
 * The flights of a cache: opened and closed, and what they hear. Its invariant:
 * a flight is counted until it is freed.
 *
 * A flight is started by a post: a refresh is made by the thread that has found
 * the row, and those of one turn of the loop begin together. What their steps
 * want to load, and to publish, begins by a timer of 0 ms, after everything
 * else of this turn. So keys that were asked for together, or whose
 * leases were granted together, are loaded in one batch.
 */
#include "flight/flights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/container.h"
#include "base/error.h"
#include "flight/flight_task.h"
#include "known/local.h"

/* A lease record outlives the longest load, by as much as it takes to publish
 * what was loaded. */
#define RECORD_MARGIN_MS 5000

/* After a refresh that failed the process tries again once the failure marker
 * is gone, and not at each hit while Redis refuses the lease. */
#define PAUSE_MIN_MS 200

/* ----------------------------------------------------------------- changes */

static struct shed_flights *flights_of(struct shed_listener *listener)
{
    return shed_container_of(listener, struct shed_flights, listener);
}

static void on_change(struct shed_listener *listener, struct shed_bytes key)
{
    struct shed_flights *fs = flights_of(listener);
    const struct shed_map_key wanted = shed_map_key(shed_entry_key_of(key));

    if (wanted.size == key.size) /* else it is the lease of a refresh */
        shed_local_change(fs->cache->local, key);
    shed_table_each(fs, &wanted, shed_flight_task_push);
}

static void on_epoch(struct shed_listener *listener)
{
    struct shed_flights *fs = flights_of(listener);

    shed_local_change_all(fs->cache->local);
    shed_table_each(fs, NULL, shed_flight_task_epoch);
}

/* -------------------------------------------------------- begin and end */

static void open_on_reactor(void *arg)
{
    struct shed_flights *fs = arg;

    (void)shed_listeners_add(fs->cache->client->listeners, &fs->listener);
}

/* End those that only watch or pause. */
static void hurry_on_reactor(void *arg)
{
    struct shed_flights *fs = arg;

    fs->is_closing = true;
    shed_table_each(fs, NULL, shed_flight_task_hurry);
}

/* It may be half made. */
static void destroy(struct shed_flights *fs)
{
    shed_timer_destroy(fs->turn);
    shed_mutex_destroy(&fs->mu);
    free(fs);
}

static void close_on_reactor(void *arg)
{
    struct shed_flights *fs = arg;

    shed_listeners_remove(fs->cache->client->listeners, &fs->listener);
    destroy(fs);
}

static void end_turn(void *arg)
{
    struct shed_flights *fs = arg;

    if (fs->to_load.first != NULL)
        shed_source_submit(fs->cache->source, &fs->to_load);
    shed_flight_publish_all(fs);
}

/* What can fail. */
static enum shed_code open_parts(struct shed_flights *fs,
                                 struct shed_error *err)
{
    struct shed_reactor *reactor = fs->cache->client->reactor;

    fs->turn = shed_timer_create(reactor, end_turn, fs);
    if (fs->turn == NULL)
        return shed_fail_nomem(err, "a cache");
    shed_reactor_run(reactor, open_on_reactor, fs);
    if (!fs->listener.is_added)
        return shed_fail(err, SHED_EINVAL,
                         "cache name: this client already has an open cache "
                         "of that name: use its handle, or another name");
    return SHED_OK;
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
    if (fs == NULL || shed_mutex_init(&fs->mu, SHED_RANK_TABLE) != 0) {
        free(fs);
        return shed_fail_nomem(err, "a cache");
    }
    shed_map_init(&fs->table, fs->chains, SHED_FLIGHT_CHAINS);
    fs->cache = cache;
    fs->callers = shed_source_callers(cache->source);
    shed_latch_init(&fs->end, 1);
    fs->policy = (struct shed_flight_policy){
        .lease_ms = o->lease_ms,
        .load_timeout_ms = load_timeout_ms,
        .load_when_down = o->redis_down != SHED_REDIS_DOWN_FAIL,
        .refresh_when_down = shed_cache_takes_local(cache),
        .pause_ms = o->failure_ttl_ms > PAUSE_MIN_MS ? o->failure_ttl_ms
                                                     : PAUSE_MIN_MS};
    shed_write_digits(fs->lease_ms, o->lease_ms);
    shed_write_digits(fs->grace_ms, SHED_LEASE_GRACE_MS);
    shed_write_digits(fs->record_ms,
                      load_timeout_ms + o->lease_ms + RECORD_MARGIN_MS);
    (void)snprintf(fs->prefix, sizeof(fs->prefix), "%s:", cache->name);
    fs->listener = (struct shed_listener){.key = shed_str(fs->prefix),
                                          .is_prefix = true,
                                          .on_change = on_change,
                                          .on_epoch = on_epoch};
    code = open_parts(fs, err);
    if (code == SHED_OK)
        *out = fs;
    else
        destroy(fs);
    return code;
}

void shed_flights_close(struct shed_flights *fs)
{
    if (fs == NULL)
        return;
    shed_reactor_run(fs->cache->client->reactor, hurry_on_reactor, fs);
    shed_latch_count_down(&fs->end, 1);
    (void)shed_latch_wait(&fs->end, UINT64_MAX);
    shed_reactor_run(fs->cache->client->reactor, close_on_reactor, fs);
}
