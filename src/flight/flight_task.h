/*
 * A flight with what it is driven by: its callers (table.h), its calls to Redis
 * (flight_redis.h), its load (flight_load.h) and its timer. What its machine
 * wants becomes calls of these, and what comes back its events. Reactor thread
 * only, but for create and destroy.
 */
#ifndef SHED_FLIGHT_TASK_H
#define SHED_FLIGHT_TASK_H

#include <snowshed/snowshed.h>

#include "flight/flight.h"
#include "flight/flight_load.h"
#include "flight/flight_redis.h"
#include "flight/flight_shared.h"
#include "flight/table.h"
#include "entry/key.h"
#include "redis/reactor.h"

struct shed_flight_task {
    struct shed_waiters waiters; /* its key is behind this struct */
    struct shed_flight_shared *shared;
    struct shed_post post; /* its start; to be posted by the owner */
    /* reactor thread only */
    struct shed_flight flight;
    struct shed_flight_exchange exchange; /* with Redis */
    struct shed_flight_load load;
    struct shed_timer *timer;
    uint64_t news; /* of the log of tags, when the load began */
    /* set by the owner before the start */
    bool is_background;
    bool is_revoked; /* the value in Redis is a miss by one of its tags */
};

/* Make a flight that is in no table yet. Any thread. Returns: NULL when out of
 * memory. */
struct shed_flight_task *
shed_flight_task_create(struct shed_flight_shared *shared,
                        const struct shed_key *key);

/* The key may have changed in Redis. */
void shed_flight_task_push(struct shed_flight_task *task);

/* An epoch of the session has ended or begun. */
void shed_flight_task_epoch(struct shed_flight_task *task);

/* The cache is being closed: do not wait, nor pause. */
void shed_flight_task_hurry(struct shed_flight_task *task);

/* It must be over, or not have been started. */
void shed_flight_task_destroy(struct shed_flight_task *task);

#endif
