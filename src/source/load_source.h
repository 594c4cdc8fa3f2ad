/* The inside of a source: the queue (load.c) and what it learns from its loads
 * (load_learn.c). */
#ifndef SHED_LOAD_SOURCE_H
#define SHED_LOAD_SOURCE_H

#include <pthread.h>
#include <stdbool.h>
#include <sys/types.h>

#include "source/concurrency.h"
#include "source/load.h"
#include "source/load_queue.h"

struct shed_load;

struct shed_source {
    /* set at creation */
    shed_load_fn *load;
    void *user;
    pid_t pid;
    struct shed_source_options options;
    struct shed_callers callers; /* waiting is atomic */
    struct shed_fleet *fleet;    /* NULL: no budget that others share */

    pthread_mutex_t mu;
    pthread_cond_t work;  /* a batch can be taken; wakes one loader */
    pthread_cond_t grown; /* the batch being gathered need not wait longer */
    pthread_cond_t quiet; /* nothing is queued or under way */
    /* under mu */
    size_t refs;
    struct shed_load_queue queue;
    size_t running;                      /* loads under way */
    uint64_t begun;                      /* loads, ever */
    struct shed_concurrency concurrency; /* used if adaptive_loads is set */
    struct shed_breaker breaker;
    char last_failure[SHED_REASON_BYTES]; /* of a load that opened it */
    struct shed_source_watcher *watchers;
    pthread_t *threads;
    size_t thread_count;
    size_t idle;       /* threads without a load */
    bool is_gathering; /* a thread is waiting for its batch to grow */
    bool is_stopping;
};

/* Settle a job that no load answers. No lock may be held. */
void shed_job_fail(struct shed_job *job, enum shed_code code, const char *why,
                   bool is_refused);

/* Say why the breaker refuses a job; with mu held. Returns: SHED_ESOURCE. */
enum shed_code shed_source_fail_open(const struct shed_source *source,
                                     struct shed_error *err);

/* Learn from a load that has ended, with this id (shed_load_id); settle what
 * the breaker refuses from now on. No lock may be held. */
void shed_source_learn(struct shed_source *source, const struct shed_load *load,
                       uint64_t id, bool has_failed, uint64_t now_us);

#endif
