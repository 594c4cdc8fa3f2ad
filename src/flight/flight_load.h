/*
 * A flight's load: one key, of which the source makes a job, and whose end
 * becomes an event of the machine. Reactor thread only.
 */
#ifndef SHED_FLIGHT_LOAD_H
#define SHED_FLIGHT_LOAD_H

#include <stdbool.h>

#include <snowshed/snowshed.h>

#include "flight/flight_shared.h"
#include "known/local.h"
#include "source/job.h"

struct shed_flight_load {
    /* set by the flight's owner; the rest begins as zero */
    const struct shed_flight_shared *shared;
    struct shed_bytes key; /* as its callers know it */
    struct shed_entry_key redis_key;
    struct shed_waiters *waiters;
    bool is_background; /* no caller waits for it */
    uint64_t position;  /* for each load, see shed_tag_log_position */
    void (*on_event)(void *arg, struct shed_flight_event event);
    void *arg;
    /* for the owner to read, with an event; kept until the next start */
    struct shed_loaded loaded;
    /* its own */
    struct shed_job job;
    struct shed_local_mark mark; /* from before the load */
    struct shed_post post;
    uint64_t request;
    bool is_busy;
};

/* Begin and end to tell of the source's breaker. Any thread. */
void shed_flight_load_watch(struct shed_flight_shared *shared);
void shed_flight_load_unwatch(struct shed_flight_shared *shared);

/* Queue the load; old is the version of the row that Redis has, as far as it is
 * known, for the source to compare. The source is woken after everything else
 * of this turn of the loop. Its end becomes an event with the number of the
 * request, never before the return. Returns: false if the source refused, as
 * err says. */
bool shed_flight_load_start(struct shed_flight_load *load, uint64_t request,
                            struct shed_row_version old,
                            struct shed_error *err);

/* A caller waits now for what is loaded. */
void shed_flight_load_hasten(struct shed_flight_load *load);

/* How long what was loaded is fresh; at random within the cache's jitter. */
uint64_t shed_flight_load_ttl_ms(const struct shed_loaded *loaded,
                                 const struct shed_cache_options *options);

/* Drop what was loaded. It must not be under way. */
void shed_flight_load_fini(struct shed_flight_load *load);

#endif
