/*
 * What a cache is made of. Its parts are given the cache and no more, and use
 * what was made before them; each floor knows the types of its own parts and
 * of those below.
 */
#ifndef SHED_PARTS_H
#define SHED_PARTS_H

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
    struct shed_reads *reads;
    struct shed_local *local;     /* NULL unless redis_down is STALE */
    struct shed_tag_log *tag_log; /* NULL: it has none */
    struct shed_delivery *delivery;
    struct shed_flights *flights;
    struct shed_fleet_link *fleet; /* NULL: the source has no such budget */
    /* atomic */
    struct shed_counters counters;
};

#endif
