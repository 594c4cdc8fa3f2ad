/* Everything is by the monotonic clock. */
#include "wait.h"

#include <time.h>

#include "common/clock.h"

uint64_t wait_now_ms(void)
{
    return demo_now_us() / 1000;
}

uint64_t wait_left_ms(uint64_t deadline_ms)
{
    uint64_t now_ms = wait_now_ms();

    return deadline_ms > now_ms ? deadline_ms - now_ms : 1;
}

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
