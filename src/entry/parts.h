/*
 * What a cache is made of. Its parts are given the cache and no more, and use
 * what was made before them; each floor knows the types of its own parts and
 * of those below.
 */
#ifndef SHED_PARTS_H
#define SHED_PARTS_H

#include <stdatomic.h>
#include <stdbool.h>

#include <snowshed/snowshed.h>

#include "base/stats.h"
#include "client/client.h"
#include "entry/freshness.h"

struct shed_cache {
    /* set at creation, in this order */
    struct shed_client *client;
    struct shed_source *source;
    struct shed_cache_options options;
    struct shed_freshness_rule rule; /* of the options */
    char name[SHED_NAME_MAX_BYTES + 1];
    struct shed_local *local;     /* NULL: it keeps no rows */
    struct shed_tag_log *tag_log; /* NULL: it has none */
    struct shed_delivery *delivery;
    struct shed_flights *flights;
    struct shed_fleet_link *fleet; /* NULL: the source has no such budget */
    struct shed_async_reads *async_reads;
    struct shed_async *async;
    struct shed_node in_source; /* under the source's mutex */
    /* atomic */
    struct shed_counters counters;
    atomic_size_t readers; /* calls of threads that have a GET, or wait for one;
                              not beside what hits only read */
};

/* Whether it gives out near rows in place of GETs. */
static inline bool shed_cache_takes_near(const struct shed_cache *cache)
{
    return cache->options.near_bytes > 0;
}

/* Whether it gives out local rows while Redis cannot be read. */
static inline bool shed_cache_takes_local(const struct shed_cache *cache)
{
    return cache->options.redis_down == SHED_REDIS_DOWN_STALE;
}

#endif
