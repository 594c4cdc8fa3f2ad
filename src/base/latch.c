/*
 * Waiting for a number of things, with one word that Linux' futex waits at. Its
 * one invariant: the store that counts the last thing is the last access to the
 * latch, so the latch may go as soon as wait has seen it. Waking goes by the
 * address alone; a thread that is woken for a latch which is gone looks again.
 *
 * With a mutex and a condition variable, the waiter has to be woken while the
 * mutex is held, because the latch may go right after it. The waiter often
 * preempts the thread that wakes it, runs into the mutex, and both switch once
 * more: three switches for each wait instead of two.
 */
#include "base/latch.h"

#include <assert.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

enum { MS_PER_S = 1000, NS_PER_MS = 1000000 };

/* A thread sleeps at the latch; the other bits are the pending things. */
#define ASLEEP ((uint32_t)1 << 31)

/* Deadlines include the time during which a machine is suspended, sleeps do
 * not. So a sleep ends after this long, and the clock is read again. */
#define LONGEST_SLEEP_MS ((uint64_t)1000)

/* ------------------------------------------------------------------ futex */

/* Where time_t may have 32 bits, the call with 64 bits has a number of its own.
 */
#ifdef SYS_futex_time64
#define FUTEX_CALL SYS_futex_time64
#else
#define FUTEX_CALL SYS_futex
#endif

/* Sleep while *word is value, for at most left_ms. */
static void sleep_at(_Atomic uint32_t *word, uint32_t value, uint64_t left_ms)
{
    /* as the call has it, whatever the C library's timespec is */
    const struct {
        int64_t s;
        int64_t ns;
    } left = {(int64_t)(left_ms / MS_PER_S),
              (int64_t)(left_ms % MS_PER_S) * NS_PER_MS};

    (void)syscall(FUTEX_CALL, word, FUTEX_WAIT_PRIVATE, value, &left, NULL, 0);
}

/* ------------------------------------------------------------------ latch */

void shed_latch_init(struct shed_latch *latch, size_t pending)
{
    assert(pending < ASLEEP);
    atomic_init(&latch->word, (uint32_t)pending);
}

void shed_latch_count_down(struct shed_latch *latch, size_t count)
{
    uint32_t before = atomic_load_explicit(&latch->word, memory_order_relaxed);
    uint32_t after;

    /* Release: what was done before is seen by the waiter. */
    do {
        after = (before & ~ASLEEP) > count ? before - (uint32_t)count : 0;
    } while (!atomic_compare_exchange_weak_explicit(&latch->word, &before,
                                                    after, memory_order_acq_rel,
                                                    memory_order_relaxed));
    if (after == 0 && (before & ASLEEP) != 0)
        (void)syscall(FUTEX_CALL, &latch->word, FUTEX_WAKE_PRIVATE, 1, NULL,
                      NULL, 0);
}

/* How long a wait that ends at deadline_ms may sleep now. */
static uint64_t sleep_ms(uint64_t deadline_ms)
{
    uint64_t left_ms = shed_left_ms(deadline_ms, shed_now_ms());

    return left_ms < LONGEST_SLEEP_MS ? left_ms : LONGEST_SLEEP_MS;
}

bool shed_latch_wait(struct shed_latch *latch, uint64_t deadline_ms)
{
    uint32_t seen = atomic_load_explicit(&latch->word, memory_order_acquire);

    while ((seen & ~ASLEEP) > 0) {
        uint64_t left_ms = sleep_ms(deadline_ms);
        if (left_ms == 0)
            return false;
        /* a failed exchange looks again at once */
        if ((seen & ASLEEP) != 0 ||
            atomic_compare_exchange_strong_explicit(
                &latch->word, &seen, seen | ASLEEP, memory_order_relaxed,
                memory_order_relaxed))
            sleep_at(&latch->word, seen | ASLEEP, left_ms);
        seen = atomic_load_explicit(&latch->word, memory_order_acquire);
    }
    return true;
}

void shed_sleep_until(uint64_t deadline_ms)
{
    struct shed_latch never = SHED_LATCH_INIT(1);

    (void)shed_latch_wait(&never, deadline_ms);
}

/* --------------------------------------------------- condition variables */

int shed_cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t attr;
    int rc = pthread_condattr_init(&attr);

    if (rc != 0)
        return rc;
    rc = pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    if (rc == 0)
        rc = pthread_cond_init(cond, &attr);
    (void)pthread_condattr_destroy(&attr);
    return rc;
}

bool shed_cond_wait(pthread_cond_t *cond, struct shed_mutex *mu,
                    uint64_t deadline_ms)
{
    uint64_t left_ms = sleep_ms(deadline_ms);
    uint64_t until_ms = shed_awake_ms() + left_ms;
    const struct timespec until = {(time_t)(until_ms / MS_PER_S),
                                   (long)(until_ms % MS_PER_S) * NS_PER_MS};

    if (left_ms == 0)
        return false;
    (void)pthread_cond_timedwait(cond, &mu->mutex, &until);
    return true;
}
