/* How long to wait before the next try. Pure. */
#ifndef SHED_BACKOFF_H
#define SHED_BACKOFF_H

#include <stdint.h>

/*
 * Exponential back-off with full jitter: a time in [1, min(max, min * 2^n)] ms,
 * n being attempt (0 for the first) and random any 64 bits.
 *
 * Source: M. Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog,
 * 2015: of the ways to jitter, the full one spreads callers best.
 */
uint64_t shed_backoff_ms(unsigned attempt, uint64_t min_ms, uint64_t max_ms,
                         uint64_t random);

/* The same with equal jitter: never less than half of the bound, for where a
 * try that comes too early is wasted. */
uint64_t shed_backoff_equal_ms(unsigned attempt, uint64_t min_ms,
                               uint64_t max_ms, uint64_t random);

#endif
