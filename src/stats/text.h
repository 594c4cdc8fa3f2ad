/* The text of counters, histograms and gauges for Prometheus. */
#ifndef SHED_STATS_TEXT_H
#define SHED_STATS_TEXT_H

#include <stddef.h>
#include <stdint.h>

/* A cache or lock that the text describes. */
struct shed_subject {
    const void *name;
    size_t name_size;
    const void *counters; /* struct shed_counters or shed_lock_counters */
    /* for a cache: the current values */
    uint64_t redis_up, source_loads, source_loads_limit, source_queue_keys,
        source_queue_limit_keys, source_breaker, source_callers,
        source_callers_limit, undelivered, redis_breaker, fleet_loads,
        fleet_loads_limit, local_rows, local_bytes;
};

/* Returns: the i-th subject of a list. */
typedef struct shed_subject shed_subject_fn(const void *list, size_t i);

/* The caches, or the locks, of one text. */
struct shed_subjects {
    shed_subject_fn *subject;
    const void *list;
    size_t count;
};

/* As shed_stats_prometheus. */
size_t shed_stats_text(const struct shed_subjects *caches,
                       const struct shed_subjects *locks, char *buffer,
                       size_t capacity);

#endif
