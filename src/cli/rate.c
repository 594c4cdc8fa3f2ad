/* Bounded work: a group begins when the time of the one before it is over. */
#include "cli/rate.h"

#include <time.h>

#include "base/clock.h"

#define US_PER_S 1000000
#define US_PER_MS 1000
#define NS_PER_US 1000

uint64_t cli_rate_count(struct cli_rate *rate, uint64_t count, uint64_t now_us)
{
    uint64_t begin_us = rate->due_us > now_us ? rate->due_us : now_us;

    rate->due_us = begin_us + count * US_PER_S / rate->per_s;
    return begin_us - now_us;
}

static void sleep_us(uint64_t us)
{
    struct timespec left = {.tv_sec = (time_t)(us / US_PER_S),
                            .tv_nsec = (long)(us % US_PER_S * NS_PER_US)};

    (void)nanosleep(&left, NULL);
}

void cli_rate_keep(struct cli_rate *rate, uint64_t count)
{
    sleep_us(cli_rate_count(rate, count, shed_now_us()));
}

void cli_sleep_ms(uint64_t ms)
{
    sleep_us(ms * US_PER_MS);
}
