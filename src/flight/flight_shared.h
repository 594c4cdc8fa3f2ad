/* What all flights of a cache have in common. */
#ifndef SHED_FLIGHT_SHARED_H
#define SHED_FLIGHT_SHARED_H

#include <stdbool.h>

#include "entry/parts.h"
#include "flight/flight.h"
#include "flight/table.h"
#include "redis/reactor.h"
#include "source/load.h"

struct shed_flight_task;

struct shed_flight_shared {
    /* set at creation */
    struct shed_cache *cache;
    struct shed_flight_policy policy;
    /* of the options; record_ms is how long a lease record lives */
    char lease_ms[SHED_DIGITS], record_ms[SHED_DIGITS], grace_ms[SHED_DIGITS];
    struct shed_table *table;
    struct shed_timer *wake;    /* wakes the source after a turn of the loop */
    struct shed_timer *publish; /* and has what was loaded published */
    struct shed_source_watcher watcher;
    /* The flight is over: destroy it, or end the lease that it may have left
     * behind (see shed_flight_redis_leave), after which it is over again. */
    void (*on_over)(struct shed_flight_task *task);
    /* reactor thread only */
    bool is_closing;
    struct shed_list to_publish; /* exchanges (flight_publish.c) */
    bool may_claim; /* Redis has executed a script: a lease that is taken
                       without one can be ended */
    struct shed_pace pace;
};

#endif
