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
#include "source/fleet.h"
#include "source/job.h"

/* Take a hold on a source. Any thread. */
void shed_source_ref(struct shed_source *source);

/* Give a hold up; the last one waits for loads under way and frees the source.
 * Any thread: one of the library's leaves that to another. */
void shed_source_unref(struct shed_source *source);

/* The option. */
uint64_t shed_source_load_timeout_ms(const struct shed_source *source);

/* The bound on the callers that wait, for the tables of the source's caches. */
struct shed_callers {
    size_t limit; /* 0: none */
    atomic_size_t waiting;
};

/* It lives as long as the source. Any thread. */
struct shed_callers *shed_source_callers(struct shed_source *source);

/* For its caches to join; it lives as long as the source. Returns: NULL if the
 * source has no budget that others share. */
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

/* Told when the source's breaker opens or closes. */
struct shed_source_watcher {
    /* is_open: else it has closed. after_ms: how long it had been closed
     * before; where it was half-open, how long it has not been closed. reason:
     * for people. Called with the source's lock held, on any thread. */
    void (*on_breaker)(struct shed_source_watcher *watcher, bool is_open,
                       uint64_t after_ms, const char *reason);
    struct shed_source_watcher *next; /* the source's */
};

/* Begin or end to watch; watcher is not called after the latter. Any thread. */
void shed_source_watch(struct shed_source *source,
                       struct shed_source_watcher *watcher);
void shed_source_unwatch(struct shed_source *source,
                         struct shed_source_watcher *watcher);

/* Whether the breaker would let one more job be queued. Any thread.
 * Returns: SHED_OK; SHED_ESOURCE: it refuses all jobs now, and err says why. */
SHED_MUST_CHECK enum shed_code
shed_source_ask_breaker(struct shed_source *source, struct shed_error *err);

/* Queue jobs, by their nodes: they share batches. Never blocks.
 * Those that cannot be queued settle before it returns, as refused: SHED_EBUSY
 * (queue_limit), SHED_ESOURCE (the breaker is open), SHED_ENOMEM (no thread
 * could be started). Where the queue is full, a job for which callers wait
 * takes the place of a background one, which settles so. */
void shed_source_submit(struct shed_source *source, struct shed_list *jobs);

/* A caller waits now for a job that has not settled: it is no longer in the
 * background. */
void shed_source_hasten(struct shed_source *source, struct shed_job *job);

#endif
