/*
 * A latch: one thread waits until a number of things have happened, or until a
 * deadline. It can live on the waiter's stack, because counting does not touch
 * it after the last thing was counted.
 */
#ifndef SHED_LATCH_H
#define SHED_LATCH_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <snowshed/snowshed.h>

#include "base/mutex.h"

struct shed_latch {
    _Atomic uint32_t word;
};

/* Make a condition variable on the monotonic clock, where a latch does not fit.
 * (pthread_cond_clockwait is not in C11's POSIX.)
 * Returns: 0, or an errno. */
SHED_MUST_CHECK int shed_cond_init(pthread_cond_t *cond);

/* Wait, but not beyond the deadline (shed_now_ms). It may return earlier: check
 * the condition again. Returns: false: that had passed, and nothing was waited
 * for. */
bool shed_cond_wait(pthread_cond_t *cond, struct shed_mutex *mu,
                    uint64_t deadline_ms);

/* A latch, as shed_latch_init makes it. It needs no clean-up. */
#define SHED_LATCH_INIT(pending)                                               \
    {                                                                          \
        (pending)                                                              \
    }

/* Make a latch for fewer than 2^31 things. */
void shed_latch_init(struct shed_latch *latch, size_t pending);

/* Count one more thing, while another has not happened; any thread. */
static inline void shed_latch_count_up(struct shed_latch *latch)
{
    atomic_fetch_add_explicit(&latch->word, 1, memory_order_relaxed);
}

/* Count things as having happened (or as never going to); any thread. */
void shed_latch_count_down(struct shed_latch *latch, size_t count);

/* Wait. Returns: true when all have happened, false at the deadline
 * (shed_now_ms; UINT64_MAX waits without one). */
bool shed_latch_wait(struct shed_latch *latch, uint64_t deadline_ms);

/* Sleep until deadline_ms (shed_now_ms). */
void shed_sleep_until(uint64_t deadline_ms);

#endif
