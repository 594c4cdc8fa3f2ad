/*
 * One load: a batch of jobs and the answers to them. A source makes it, the
 * program's function answers it (the shed_load_ functions of snowshed.h), and
 * the source settles it.
 */
#ifndef SHED_LOAD_BATCH_H
#define SHED_LOAD_BATCH_H

#include <pthread.h>
#include <stdbool.h>

#include "source/admission.h"
#include "source/job.h"

struct shed_load {
    struct shed_source *source;
    size_t count;
    struct shed_job **jobs;
    uint64_t start_us;
    uint64_t deadline_ms;
    struct shed_admitted admitted;

    pthread_mutex_t mu;
    /* under mu */
    struct shed_loaded *answers; /* one per job; all zero: none yet */
};

/* A load without jobs yet. Returns: NULL when memory is out. */
struct shed_load *shed_load_create(struct shed_source *source, size_t capacity);

void shed_load_destroy(struct shed_load *load);

/* Returns: a number for the key of a load of one key; 0 for several. */
uint64_t shed_load_id(const struct shed_load *load);

/* Settle all jobs with their answers, once nobody answers any more.
 * Returns: whether the source failed for every key; a row that is too big, or
 * is not there, is an answer. */
bool shed_load_settle(struct shed_load *load, uint64_t cost_us);

#endif
