/*
 * Waiting for a number of things. Its one invariant: counting touches the latch
 * only under its lock, and wait looks under the lock too, so the latch may be
 * finished once wait has seen the last thing counted.
 */
#include "base/latch.h"

#include <time.h>

#include "base/clock.h"
#include "base/error.h"

enum { MS_PER_S = 1000, NS_PER_MS = 1000000, NS_PER_S = 1000000000 };

/* Deadlines include the time during which a machine is suspended, condition
 * variables do not. So a sleep ends after this long, and the clock is read
 * again. */
#define LONGEST_SLEEP_MS ((uint64_t)1000)

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

enum shed_code shed_latch_init(struct shed_latch *latch, size_t pending,
                               struct shed_error *err)
{
    latch->pending = pending;
    if (pthread_mutex_init(&latch->mu, NULL) != 0)
        return shed_fail_nomem(err, "a mutex");
    if (shed_cond_init(&latch->cond) != 0) {
        (void)pthread_mutex_destroy(&latch->mu);
        return shed_fail_nomem(err, "a condition variable");
    }
    return SHED_OK;
}

void shed_latch_fini(struct shed_latch *latch)
{
    (void)pthread_cond_destroy(&latch->cond);
    (void)pthread_mutex_destroy(&latch->mu);
}

void shed_latch_count_down(struct shed_latch *latch, size_t count)
{
    (void)pthread_mutex_lock(&latch->mu);
    latch->pending -= count < latch->pending ? count : latch->pending;
    /* under the lock, because the waiter may finish the latch right after it */
    if (latch->pending == 0)
        (void)pthread_cond_signal(&latch->cond);
    (void)pthread_mutex_unlock(&latch->mu);
}

/* The instant ms from now, on the condition variable's clock. */
static struct timespec instant_in(uint64_t ms)
{
    struct timespec at = {0, 0};

    (void)clock_gettime(CLOCK_MONOTONIC, &at);
    at.tv_sec += (time_t)(ms / MS_PER_S);
    at.tv_nsec += (long)(ms % MS_PER_S) * NS_PER_MS;
    if (at.tv_nsec >= NS_PER_S) {
        at.tv_sec++;
        at.tv_nsec -= NS_PER_S;
    }
    return at;
}

void shed_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mu, uint64_t left_ms)
{
    struct timespec until =
        instant_in(left_ms < LONGEST_SLEEP_MS ? left_ms : LONGEST_SLEEP_MS);

    (void)pthread_cond_timedwait(cond, mu, &until);
}

bool shed_latch_wait(struct shed_latch *latch, uint64_t deadline_ms)
{
    bool is_open;
    uint64_t left_ms;

    (void)pthread_mutex_lock(&latch->mu);
    while (latch->pending > 0) {
        if (deadline_ms == UINT64_MAX) {
            (void)pthread_cond_wait(&latch->cond, &latch->mu);
            continue;
        }
        left_ms = shed_left_ms(deadline_ms, shed_now_ms());
        if (left_ms == 0)
            break;
        shed_cond_wait(&latch->cond, &latch->mu, left_ms);
    }
    is_open = latch->pending == 0;
    (void)pthread_mutex_unlock(&latch->mu);
    return is_open;
}
