/* Counters and histograms. Its one invariant: a histogram's count is the sum of
 * its buckets, even while others add to it. */
#include "base/stats.h"

#include <stddef.h>

#include "base/error.h"

/* The histograms come first, and there is no padding, so a new counter moves no
 * field. */
#define NAME(field, help) COUNTER_##field,
enum { SHED_COUNTERS(NAME) COUNTERS };
#undef NAME
#define NAME(field, help) LOCK_COUNTER_##field,
enum { SHED_LOCK_COUNTERS(NAME) LOCK_COUNTERS };
#undef NAME
_Static_assert(sizeof(struct shed_histogram) ==
                   (SHED_BUCKETS + 2) * sizeof(uint64_t),
               "a histogram is its buckets, its count and its sum");
_Static_assert(offsetof(struct shed_stats, hits) ==
                       4 * sizeof(struct shed_histogram) &&
                   sizeof(struct shed_stats) ==
                       4 * sizeof(struct shed_histogram) +
                           COUNTERS * sizeof(uint64_t),
               "a cache's counters follow its four histograms");
_Static_assert(offsetof(struct shed_lock_stats, acquired) ==
                       2 * sizeof(struct shed_histogram) &&
                   sizeof(struct shed_lock_stats) ==
                       2 * sizeof(struct shed_histogram) +
                           LOCK_COUNTERS * sizeof(uint64_t),
               "a lock's counters follow its two histograms");

/* The smallest i with value <= 2^i, or the last bucket. */
static size_t bucket_of(uint64_t value)
{
    const size_t bits = 64;
    size_t i = value > 1 ? bits - (size_t)__builtin_clzll(value - 1) : 0;

    return i < SHED_BUCKETS - 1 ? i : SHED_BUCKETS - 1;
}

void shed_histogram_add(struct shed_histogram_atomic *h, uint64_t value)
{
    shed_count(&h->bucket[bucket_of(value)], 1);
    shed_count(&h->sum, value);
}

void shed_count_code(struct shed_counters *counters, enum shed_code code)
{
    switch (code) {
    case SHED_OK:
    case SHED_EMISS: /* an answer, to a call that asked for no load */
        return;
    case SHED_ETIMEDOUT:
        shed_count(&counters->errors_timeout, 1);
        return;
    case SHED_EBUSY:
        shed_count(&counters->errors_busy, 1);
        return;
    case SHED_EREDIS:
        shed_count(&counters->errors_redis, 1);
        return;
    case SHED_ESOURCE:
        shed_count(&counters->errors_source, 1);
        return;
    case SHED_EINVAL:
    case SHED_ENOMEM:
    case SHED_ETOOBIG:
    case SHED_EDENIED:
    case SHED_ECLOSED:
    case SHED_EFORKED:
    case SHED_ELOST:
        break;
    }
    shed_count(&counters->errors_other, 1);
}

uint64_t shed_count_read(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

void shed_histogram_read(const struct shed_histogram_atomic *h,
                         struct shed_histogram *out)
{
    out->count = 0;
    for (size_t i = 0; i < SHED_BUCKETS; i++) {
        out->bucket[i] = shed_count_read(&h->bucket[i]);
        out->count += out->bucket[i];
    }
    out->sum = shed_count_read(&h->sum);
}

void shed_counters_read(const struct shed_counters *counters,
                        struct shed_stats *out)
{
#define READ_FIELD(field, help) out->field = shed_count_read(&counters->field);
    SHED_COUNTERS(READ_FIELD)
#undef READ_FIELD
    shed_histogram_read(&counters->hit_us, &out->hit_us);
    shed_histogram_read(&counters->miss_us, &out->miss_us);
    shed_histogram_read(&counters->load_us, &out->load_us);
    shed_histogram_read(&counters->batch_keys, &out->batch_keys);
}

void shed_lock_counters_read(const struct shed_lock_counters *counters,
                             struct shed_lock_stats *out)
{
#define READ_FIELD(field, help) out->field = shed_count_read(&counters->field);
    SHED_LOCK_COUNTERS(READ_FIELD)
#undef READ_FIELD
    shed_histogram_read(&counters->wait_us, &out->wait_us);
    shed_histogram_read(&counters->hold_us, &out->hold_us);
}

enum shed_code shed_stats_check(const char *call, const void *thing,
                                const void *out, size_t size, size_t known,
                                struct shed_error *err)
{
    if (thing == NULL || out == NULL)
        return shed_fail(err, SHED_EINVAL, "%s: %s is NULL", call,
                         thing == NULL ? "the handle" : "out");
    if (size > known)
        return shed_fail(err, SHED_EINVAL,
                         "%s: the struct has %zu bytes here, not %zu: the "
                         "program was built for a newer library",
                         call, known, size);
    return SHED_OK;
}
