/* What the service counts of its own, as Prometheus text. */
#ifndef HOTITEMS_METRICS_H
#define HOTITEMS_METRICS_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define METRICS_ROUTES 8
#define METRICS_BUCKETS 12

/* Counters, any thread. Status classes 2xx to 5xx, by route. */
struct metrics {
    _Atomic uint64_t requests[METRICS_ROUTES][6];
    _Atomic uint64_t bucket[METRICS_BUCKETS + 1]; /* the last: slower */
    _Atomic uint64_t took_us;
    _Atomic uint64_t orders, pieces, replays, sold_out;
    _Atomic uint64_t stale; /* writes whose invalidation failed */
};

void metrics_count(struct metrics *m, const char *route, unsigned status,
                   uint64_t took_us);

/* As snprintf: returns the whole length. */
size_t metrics_text(struct metrics *m, char *buffer, size_t capacity);

#endif
