/*
 * A job: one key that is to be loaded. Its memory is the submitter's, and must
 * stay until the job settles: exactly once, on the thread that finishes the
 * load.
 */
#ifndef SHED_JOB_H
#define SHED_JOB_H

#include <stdbool.h>

#include <snowshed/snowshed.h>

#include "base/list.h"
#include "entry/entry.h"

/* The longest time to live, of the options and of a source's own. */
#define SHED_TTL_MAX_MS ((uint64_t)10 * 366 * 24 * 3600 * 1000)

struct shed_loaded {
    /* the loaded value, a reference for the receiver: kind and payload, its
     * origin SHED_ORIGIN_UNPUBLISHED; NULL: failed as error says */
    struct shed_value *value;
    struct shed_error error;
    struct shed_row_version version;
    uint64_t ttl_ms; /* the source's own, if has_ttl */
    bool has_ttl;
    bool is_unmodified; /* the row is what it was in the job's old version;
                           value is a row without its payload */
    unsigned char
        *tags; /* as in an entry, for the receiver to free; NULL: none */
    size_t tags_size;
    uint64_t cost_us;   /* how long the load took */
    size_t batch_keys;  /* in the first job of a batch: its size; in the others
                           0, so that a load is counted once; also 0 if the job
                           was never passed to a load */
    size_t failed_keys; /* in the first of the keys that failed alike in one
                           load: how many they are; in the others 0 */
    bool is_refused;    /* it never left the queue, or was not let in: for lack
                           of room or a thread, or because of the breaker */
};

struct shed_job {
    /* set by the submitter */
    const void *key;
    size_t key_size;
    uint64_t deadline_ms;     /* shed_now_ms; a job that is still queued then
                                 fails with SHED_ETIMEDOUT */
    size_t value_limit_bytes; /* a longer value fails with SHED_ETOOBIG */
    const void *group;        /* jobs of different ones do not fail alike */
    struct shed_row_version old_version; /* of the value that Redis has */
    bool is_background; /* no caller waits for it; shed_source_hasten clears it
                         */
    void (*settle)(struct shed_job *job); /* loaded is what came of it */
    /* Called when a load begins that the job is part of, with a lock held;
     * is_first for one job of each load, and waited_us is how long that has
     * waited for the fleet. May be NULL. */
    void (*begin)(struct shed_job *job, bool is_first, uint64_t waited_us);
    /* the source's until it settles, then the submitter's; all zero at first */
    struct shed_loaded loaded;
    /* the source's queue */
    struct shed_node node;
    bool is_queued;
};

#endif
