/* Bounded work: a group begins when the time of the one before it is over. */
#include "cli/rate.h"

#include "base/clock.h"
#include "base/latch.h"

#define US_PER_S 1000000
#define US_PER_MS 1000

uint64_t cli_rate_count(struct cli_rate *rate, uint64_t count, uint64_t now_us)
{
    uint64_t begin_us = rate->due_us > now_us ? rate->due_us : now_us;

    rate->due_us = begin_us + count * US_PER_S / rate->per_s;
    return begin_us - now_us;
}

/* What is cut off from the ms, the next group waits for. */
void cli_rate_keep(struct cli_rate *rate, uint64_t count)
{
    uint64_t wait_us = cli_rate_count(rate, count, shed_now_us());

    shed_sleep_until(shed_now_ms() + wait_us / US_PER_MS);
}
