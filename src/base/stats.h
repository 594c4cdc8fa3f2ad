/* The counters behind snowshed/stats.h, as atomics that any thread adds to. */
#ifndef SHED_STATS_H
#define SHED_STATS_H

#include <stdatomic.h>
#include <stdbool.h>

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

struct shed_lock_counters {
#define SHED_FIELD(field, help) _Atomic uint64_t field;
    SHED_LOCK_COUNTERS(SHED_FIELD)
#undef SHED_FIELD
    struct shed_histogram_atomic wait_us;
    struct shed_histogram_atomic hold_us;
};

static inline void shed_count(_Atomic uint64_t *counter, uint64_t n)
{
    atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

void shed_histogram_add(struct shed_histogram_atomic *h, uint64_t value);

/* Count how a key of a call ended: SHED_OK counts nothing. */
void shed_count_code(struct shed_counters *counters, enum shed_code code);

/* Fail with SHED_EINVAL where a public read was called wrongly; thing is NULL,
 * or out, or size is more than known. */
SHED_MUST_CHECK enum shed_code
shed_stats_check(const char *call, const void *thing, const void *out,
                 size_t size, size_t known, struct shed_error *err);

void shed_counters_read(const struct shed_counters *counters,
                        struct shed_stats *out);
void shed_lock_counters_read(const struct shed_lock_counters *counters,
                             struct shed_lock_stats *out);

/* One whose statistics are told; its name is bytes. */
struct shed_subject {
    const void *name;
    size_t name_size;
    const void *counters; /* of the kind that the text is of */
    bool is_redis_up;     /* of a cache */
};

/* The i-th of those that are listed. */
typedef struct shed_subject shed_subject_fn(const void *list, size_t i);

/* As shed_stats_prometheus, of struct shed_counters; and as
 * shed_lock_stats_prometheus, of struct shed_lock_counters. */
size_t shed_stats_text(shed_subject_fn *subject, const void *list, size_t count,
                       char *buffer, size_t capacity);
size_t shed_lock_stats_text(shed_subject_fn *subject, const void *list,
                            size_t count, char *buffer, size_t capacity);

#endif
