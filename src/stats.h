/* The counters behind snowshed/stats.h, as atomics that any thread adds to. */
#ifndef SHED_STATS_H
#define SHED_STATS_H

#include <stdatomic.h>

#include <snowshed/stats.h>

struct shed_histogram_atomic {
    _Atomic uint64_t bucket[SHED_BUCKETS];
    _Atomic uint64_t sum;
};

struct shed_counters {
#define SHED_FIELD(field, help) _Atomic uint64_t field;
    SHED_COUNTERS(SHED_FIELD)
#undef SHED_FIELD
    struct shed_histogram_atomic hit_us;
    struct shed_histogram_atomic miss_us;
    struct shed_histogram_atomic load_us;
    struct shed_histogram_atomic batch_keys;
};

static inline void shed_count(_Atomic uint64_t *counter, uint64_t n)
{
    atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

void shed_histogram_add(struct shed_histogram_atomic *h, uint64_t value);

/* Count how a key of a call ended: SHED_OK counts nothing. */
void shed_count_code(struct shed_counters *counters, enum shed_code code);

void shed_counters_read(const struct shed_counters *counters,
                        struct shed_stats *out);

/* As shed_stats_prometheus; cache is the label's value. */
size_t shed_stats_text(const struct shed_stats *stats, const char *cache,
                       char *buffer, size_t capacity);

#endif
