/* The text of counters, histograms and gauges for Prometheus. */
#ifndef SHED_STATS_TEXT_H
#define SHED_STATS_TEXT_H

#include <stddef.h>
#include <stdint.h>

/* The current values of a cache: the name, and what it is. */
#define SHED_GAUGES(X)                                                         \
    X(redis_up, "whether the client is connected to Redis")                    \
    X(source_loads, "loads that the cache's source is running now")            \
    X(source_loads_limit, "loads that it may run at once")                     \
    X(source_queue_keys, "keys that wait for a load")                          \
    X(source_queue_limit_keys, "keys that may wait; more are refused")         \
    X(source_breaker, "0: closed, 1: half-open, 2: open")                      \
    X(source_callers, "callers that wait in its caches")                       \
    X(source_callers_limit, "callers that may wait; 0: no bound")              \
    X(undelivered, "keys of which Redis is still to be told")                  \
    X(redis_breaker, "0: closed, 1: half-open, 2: open")                       \
    X(fleet_loads,                                                             \
      "loads of all processes that share its budget, when last seen")          \
    X(fleet_loads_limit, "loads that they may run at once; 0: no such budget") \
    X(local_rows, "local rows, for a time without Redis")                      \
    X(local_bytes, "memory in use for these rows")

/* A cache or lock that the text describes. */
struct shed_subject {
    const void *name;
    size_t name_size;
    const void *counters; /* struct shed_counters or shed_lock_counters */
    /* for a cache */
#define SHED_FIELD(name, help) uint64_t name;
    SHED_GAUGES(SHED_FIELD)
#undef SHED_FIELD
};

/* The caches, or the locks, of one text. */
struct shed_subjects {
    struct shed_subject (*subject)(const void *list, size_t i); /* the i-th */
    const void *list;
    size_t count;
};

/* As shed_stats_prometheus. */
size_t shed_stats_text(const struct shed_subjects *caches,
                       const struct shed_subjects *locks, char *buffer,
                       size_t capacity);

#endif
