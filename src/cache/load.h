/*
 * The load queue of a source: keys that wait for a load are gathered into
 * batches; a bounded number of loads runs at a time, on threads of the source.
 *
 * A job is one key's wish to be loaded. Its memory is the submitter's until it
 * settles, exactly once, on whatever thread finished the load.
 */
#ifndef SHED_LOAD_H
#define SHED_LOAD_H

#include <snowshed/snowshed.h>

struct shed_loaded {
    /* the loaded value, a reference for the receiver: kind and payload, its
     * origin SHED_ORIGIN_UNPUBLISHED; NULL: failed as error says */
    struct shed_value *value;
    struct shed_error error;
    uint64_t cost_us;  /* how long the load took */
    size_t batch_keys; /* the size of its batch in the first job that settles
                          of it, 0 in the others: so that loads are counted
                          once; 0 too if the job was never passed to a load */
};

struct shed_job {
    /* set by the submitter */
    const void *key;
    size_t key_size;
    uint64_t deadline_ms;     /* shed_now_ms; a job that is still queued then
                                 fails with SHED_ETIMEDOUT */
    size_t value_limit_bytes; /* a longer value fails with SHED_ETOOBIG */
    void (*settle)(struct shed_job *job, struct shed_loaded *loaded);
    /* the queue's */
    struct shed_job *next;
};

/* Take and give back a cache's hold on a source. */
void shed_source_ref(struct shed_source *source);
void shed_source_unref(struct shed_source *source);

uint64_t shed_source_load_timeout_ms(const struct shed_source *source);

/* Queue a job, and let a load begin. Never blocks, never settles the job
 * before it returns.
 * Returns: SHED_OK: it will settle. SHED_EBUSY (queue_limit), SHED_ENOMEM (no
 * thread could be started): it will not. */
SHED_MUST_CHECK enum shed_code shed_source_submit(struct shed_source *source,
                                                  struct shed_job *job,
                                                  struct shed_error *err);

/* The same in two steps, so that jobs which come together share a batch: queue
 * each, then wake once. */
SHED_MUST_CHECK enum shed_code shed_source_queue(struct shed_source *source,
                                                 struct shed_job *job,
                                                 struct shed_error *err);
void shed_source_wake(struct shed_source *source);

#endif
