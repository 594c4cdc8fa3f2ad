/* Waiting on a condition variable, by the monotonic clock. */
#include "wait.h"

#include <time.h>

void wait_init(pthread_mutex_t *mu, pthread_cond_t *changed)
{
    pthread_condattr_t attr;

    (void)pthread_mutex_init(mu, NULL);
    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void)pthread_cond_init(changed, &attr);
    (void)pthread_condattr_destroy(&attr);
}

bool wait_until(pthread_cond_t *changed, pthread_mutex_t *mu, uint64_t until_ms)
{
    struct timespec until = {(time_t)(until_ms / 1000),
                             (long)(until_ms % 1000) * 1000000};

    return pthread_cond_timedwait(changed, mu, &until) == 0;
}
