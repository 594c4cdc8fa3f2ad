/*
 * One load: a batch of jobs and the answers to them. A source makes it, the
 * program's function answers it (the shed_load_ functions of source.h), and
 * the source settles it.
 */
#ifndef SHED_LOAD_BATCH_H
#define SHED_LOAD_BATCH_H

#include <stdbool.h>

#include <snowshed/source.h>

#include "base/mutex.h"
#include "source/admission.h"
#include "source/job.h"

struct shed_load_batch {
    struct shed_load load; /* what the program sees; first: a pointer to it is
                              one to the batch */
    struct shed_source *source;
    struct shed_job **jobs; /* one per key, behind keys; their loaded is under
                               mu */
    uint64_t start_us;
    uint64_t deadline_ms;
    struct shed_admitted admitted;

    struct shed_mutex mu;
    struct shed_wanted keys[]; /* the load's */
};

static inline struct shed_load_batch *shed_load_batch_of(struct shed_load *load)
{
    return (struct shed_load_batch *)load;
}

/* A load without jobs yet. Returns: NULL when memory is out. */
struct shed_load_batch *shed_load_batch_create(struct shed_source *source,
                                               size_t capacity);

void shed_load_batch_destroy(struct shed_load_batch *batch);

/* Add a job to a batch that has room for it; the job's key and old version
 * stay where they are. */
void shed_load_batch_add(struct shed_load_batch *batch, struct shed_job *job);

/* Returns: a number for the key of a load of one key; 0 for several. */
uint64_t shed_load_batch_id(const struct shed_load_batch *batch);

/* Settle all jobs, once nobody answers any more; admitted.cost_us is known.
 * Returns: whether the source failed for every key, and then *why is why it did
 * for the first; a row that is too big, or is not there, is an answer. */
bool shed_load_batch_settle(struct shed_load_batch *batch,
                            struct shed_error *why);

#endif
