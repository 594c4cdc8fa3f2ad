/* The counters behind snowshed/stats.h, as atomics that any thread adds to. */
#ifndef SHED_STATS_H
#define SHED_STATS_H

#include <stdatomic.h>
#include <stdbool.h>

#include <snowshed/stats.h>

struct shed_histogram_atomic {
    _Atomic uint64_t bucket[SHED_BUCKETS];
    _Atomic uint64_t zero; /* a read sets the count to the sum of the buckets */
    _Atomic uint64_t sum;
};

/* As struct shed_stats. */
struct shed_counters {
    struct shed_histogram_atomic hit_us, miss_us, load_us, batch_keys;
#define SHED_FIELD(field, help) _Atomic uint64_t field;
    SHED_COUNTERS(SHED_FIELD)
#undef SHED_FIELD
    struct shed_histogram_atomic fleet_wait_us; /* only in the text */
};

/* As struct shed_lock_stats. */
struct shed_lock_counters {
    struct shed_histogram_atomic wait_us, hold_us;
#define SHED_FIELD(field, help) _Atomic uint64_t field;
    SHED_LOCK_COUNTERS(SHED_FIELD)
#undef SHED_FIELD
};

static inline void shed_count(_Atomic uint64_t *counter, uint64_t n)
{
    atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

uint64_t shed_count_read(const _Atomic uint64_t *counter);

void shed_histogram_add(struct shed_histogram_atomic *h, uint64_t value);

/* Count the failure of a key; SHED_OK and SHED_EMISS are none. */
void shed_count_code(struct shed_counters *counters, enum shed_code code);

/* Check the arguments of a public read: SHED_EINVAL if thing or out is NULL, or
 * if size is larger than known, which is the size of the struct in this
 * version. */
SHED_MUST_CHECK enum shed_code
shed_stats_check(const char *call, const void *thing, const void *out,
                 size_t size, size_t known, struct shed_error *err);

/* Copy a struct of counters, which begins with so many histograms, to the
 * public one of size bytes: each atomically, but not all at the same instant.
 */
void shed_counters_read(const void *counters, size_t histograms, void *out,
                        size_t size);

#endif
