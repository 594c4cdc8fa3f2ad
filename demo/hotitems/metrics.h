/* What the service counts of its own, as Prometheus text. */
#ifndef HOTITEMS_METRICS_H
#define HOTITEMS_METRICS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>

#include <snowshed/stats.h>

#include "common/histogram.h"
#include "lane.h"

#define METRICS_ROUTES 8
#define METRICS_BUCKETS 12

/* Counters, any thread. Status classes 2xx to 5xx, by route. */
struct metrics { /* {.mu = PTHREAD_MUTEX_INITIALIZER} at first */
    _Atomic uint64_t requests[METRICS_ROUTES][6];
    _Atomic uint64_t bucket[METRICS_BUCKETS + 1]; /* the last: slower */
    _Atomic uint64_t took_us;
    struct histogram latency; /* of answers about items, without failures */
    _Atomic uint64_t orders, pieces, replays, sold_out;
    _Atomic uint64_t stale; /* writes whose invalidation failed */
    pthread_mutex_t mu;
    struct shed_lock_stats locks; /* under mu */
};

void metrics_count(struct metrics *m, const char *route, unsigned status,
                   uint64_t took_us);

/* Of requests for items so far. */
struct metrics_items {
    uint64_t requests, errors; /* with 5xx */
};
struct metrics_items metrics_items(const struct metrics *m);

/* Write what the service counts. */
void metrics_write(FILE *t, struct metrics *m);

/* Write what a lane counts. */
void metrics_lane_text(FILE *t, const char *lane,
                       const struct lane_stats *stats);

/* Add the statistics of a lock that is going to be closed; write the sum under
 * a name for them all. */
void metrics_locks_add(struct metrics *m, const struct shed_lock_stats *stats);
void metrics_locks_text(FILE *t, const char *lock, struct metrics *m);

#endif
