/*
 * The load queue of a source: keys that wait for a load are gathered into
 * batches; a bounded number of loads runs at a time, on threads of the source.
 */
#ifndef SHED_LOAD_H
#define SHED_LOAD_H

#include <stdatomic.h>
#include <stdbool.h>

#include <snowshed/snowshed.h>
#include <snowshed/source.h>

#include "base/breaker.h"
#include "entry/parts.h"
#include "source/fleet.h"
#include "source/job.h"

/* Take a hold on a source for a cache, which tells its client when the breaker
 * opens or closes. Any thread. */
void shed_source_ref(struct shed_source *source, struct shed_cache *cache);

/* Give up that hold, or the program's if cache is NULL; the last one waits for
 * loads under way and frees the source. Any thread: one of the library's leaves
 * that to another. */
void shed_source_unref(struct shed_source *source, struct shed_cache *cache);

/* The option. */
uint64_t shed_source_load_timeout_ms(const struct shed_source *source);

/* The bound on the callers that wait, for the tables of the source's caches. */
struct shed_callers {
    size_t limit; /* 0: none */
    atomic_size_t waiting;
};

/* It lives as long as the source. Any thread. */
struct shed_callers *shed_source_callers(struct shed_source *source);

/* For its caches to join; it lives as long as the source. */
struct shed_fleet *shed_source_fleet(struct shed_source *source);

/* What is under way at a source, and its bounds. */
struct shed_source_state {
    size_t loads, loads_limit;  /* the limit is the adaptive one, if it is on */
    size_t queued, queue_limit; /* keys */
    struct shed_breaker_status breaker;
    size_t callers, callers_limit; /* that wait */
    struct shed_fleet_state fleet;
};

/* Any thread. */
struct shed_source_state shed_source_look(struct shed_source *source);

/* Whether the breaker would let one more job be queued. Any thread.
 * Returns: SHED_OK; SHED_ESOURCE: it refuses all jobs now, and err says why. */
SHED_MUST_CHECK enum shed_code
shed_source_ask_breaker(struct shed_source *source, struct shed_error *err);

/* Queue jobs, by their nodes: they share batches. Never blocks.
 * A job that cannot be queued settles before it returns, as refused: SHED_EBUSY
 * (queue_limit), SHED_ESOURCE (the breaker is open), SHED_ENOMEM (no thread
 * could be started). Where the queue is full, a job for which callers wait
 * takes the place of a background one, which settles so. */
void shed_source_submit(struct shed_source *source, struct shed_list *jobs);

/* A caller waits now for a job that has not settled: it is no longer in the
 * background. */
void shed_source_hasten(struct shed_source *source, struct shed_job *job);

#endif
