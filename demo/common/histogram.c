/* Buckets: below 32 us one for each microsecond, then 16 for each power of two.
 */
#include "histogram.h"

#include <stddef.h>

void histogram_raise(_Atomic uint64_t *at, uint64_t value)
{
    uint64_t seen = atomic_load(at);

    while (seen < value && !atomic_compare_exchange_weak(at, &seen, value))
        ;
}

static size_t bucket_of(uint64_t us)
{
    unsigned power = 0;
    size_t bucket;

    while (us >> power >= 32)
        power++;
    /* below 32 us a bucket is one microsecond wide */
    bucket = power == 0 ? (size_t)us : power * 16 + (size_t)(us >> power);
    return bucket < HISTOGRAM_BUCKETS ? bucket : HISTOGRAM_BUCKETS - 1;
}

/* The shortest time that is counted in a bucket. */
static uint64_t bucket_us(size_t bucket)
{
    if (bucket < 32)
        return bucket;
    return (uint64_t)(16 + bucket % 16) << (bucket / 16 - 1);
}

void histogram_add(struct histogram *h, uint64_t us)
{
    atomic_fetch_add(&h->bucket[bucket_of(us)], 1);
    histogram_raise(&h->max_us, us);
}

uint64_t histogram_above(const struct histogram *h, uint64_t us)
{
    uint64_t count = 0;

    for (size_t i = bucket_of(us) + 1; i < HISTOGRAM_BUCKETS; i++)
        count += atomic_load(&h->bucket[i]);
    return count;
}

void histogram_read(const struct histogram *h, struct histogram_counts *out)
{
    for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++)
        out->bucket[i] = atomic_load(&h->bucket[i]);
}

uint64_t histogram_between_us(const struct histogram_counts *from,
                              const struct histogram_counts *to, double part)
{
    uint64_t count = 0, seen = 0, wanted;

    for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++)
        count += to->bucket[i] - from->bucket[i];
    wanted = (uint64_t)((double)count * part);
    wanted -= wanted > 0 && wanted == count;
    for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++) {
        seen += to->bucket[i] - from->bucket[i];
        if (seen > wanted)
            return bucket_us(i + 1) - 1;
    }
    return 0;
}

double histogram_ms(const struct histogram *h, double part)
{
    static const struct histogram_counts none;
    uint64_t max_us = atomic_load(&h->max_us), us;
    struct histogram_counts now;

    histogram_read(h, &now);
    us = histogram_between_us(&none, &now, part);
    return (double)(us < max_us ? us : max_us) / 1000;
}
