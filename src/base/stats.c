/* Counters and histograms. Its one invariant: a histogram's count is the sum of
 * its buckets, even while others add to it. */
#include "base/stats.h"

#include <stddef.h>

#include "base/error.h"

_Static_assert(sizeof(struct shed_histogram) ==
                       sizeof(struct shed_histogram_atomic) &&
                   offsetof(struct shed_stats, hits) ==
                       offsetof(struct shed_counters, hits) &&
                   offsetof(struct shed_lock_stats, acquired) ==
                       offsetof(struct shed_lock_counters, acquired),
               "what is counted is laid out as what is read");

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

void shed_count_code(struct shed_counters *c, enum shed_code code)
{
    _Atomic uint64_t *counter = &c->errors_other;

    /* a miss is an answer, to a call that asked for no load */
    if (code == SHED_OK || code == SHED_EMISS)
        return;
    if (code == SHED_ETIMEDOUT)
        counter = &c->errors_timeout;
    else if (code == SHED_EBUSY)
        counter = &c->errors_busy;
    else if (code == SHED_EREDIS)
        counter = &c->errors_redis;
    else if (code == SHED_ESOURCE)
        counter = &c->errors_source;
    shed_count(counter, 1);
}

uint64_t shed_count_read(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

void shed_counters_read(const void *counters, size_t histograms, void *out,
                        size_t size)
{
    const _Atomic uint64_t *from = counters;
    uint64_t *to = out;
    struct shed_histogram *h = out;

    for (size_t i = 0; i < size / sizeof(*to); i++)
        to[i] = shed_count_read(&from[i]);
    for (; histograms > 0; histograms--, h++)
        for (size_t i = 0; i < SHED_BUCKETS; i++)
            h->count += h->bucket[i];
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
