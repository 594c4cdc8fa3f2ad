/* Times in buckets whose width grows with the time. Histograms of several
 * threads can be added, those of two instants subtracted. */
#ifndef DEMO_HISTOGRAM_H
#define DEMO_HISTOGRAM_H

#include <stdatomic.h>
#include <stdint.h>

/* A bucket is a sixteenth of a power of two of microseconds: 6 % wide. */
#define HISTOGRAM_BUCKETS (40 * 16)

struct histogram {
    _Atomic uint64_t bucket[HISTOGRAM_BUCKETS];
    _Atomic uint64_t max_us;
};

/* Raise a number to a value, if that is higher. Any thread. */
void histogram_raise(_Atomic uint64_t *at, uint64_t value);

/* Any thread. */
void histogram_add(struct histogram *h, uint64_t us);

/* The time below which this part (0.5, 0.99) of the values is, too long by at
 * most a bucket; 0 if empty. */
double histogram_ms(const struct histogram *h, double part);

/* How many values are above this many microseconds, exact to one bucket. */
uint64_t histogram_above(const struct histogram *h, uint64_t us);

/* The counts of a histogram at some instant. */
struct histogram_counts {
    uint64_t bucket[HISTOGRAM_BUCKETS];
};

void histogram_read(const struct histogram *h, struct histogram_counts *out);

/* As histogram_ms, in microseconds, for the values that were added between two
 * reads. */
uint64_t histogram_between_us(const struct histogram_counts *from,
                              const struct histogram_counts *to, double part);

#endif
