/*
 * The monotonic clock. Its one invariant: it never goes back, and it counts
 * the time that the machine was suspended.
 */
#include "base/clock.h"

#include <time.h>

/* It counts suspension. */
#define DEADLINE_CLOCK CLOCK_BOOTTIME

enum {
    MS_PER_S = 1000,
    US_PER_S = 1000000,
    NS_PER_US = 1000,
    NS_PER_MS = 1000000
};

/* clock_gettime fails only for an unknown clock or a bad pointer: neither can
 * happen here. */
static struct timespec read_clock(clockid_t clock)
{
    struct timespec now = {0, 0};

    (void)clock_gettime(clock, &now);
    return now;
}

static uint64_t to_ms(struct timespec now)
{
    return (uint64_t)now.tv_sec * MS_PER_S + (uint64_t)now.tv_nsec / NS_PER_MS;
}

uint64_t shed_now_ms(void)
{
    return to_ms(read_clock(DEADLINE_CLOCK));
}

uint64_t shed_awake_ms(void)
{
    return to_ms(read_clock(CLOCK_MONOTONIC));
}

/* The coarse clock is that of the last tick, of which there are 100 per second
 * or more. */
#define TICK_MS 10

uint64_t shed_awake_by_ms(void)
{
    return to_ms(read_clock(CLOCK_MONOTONIC_COARSE)) + TICK_MS + 1;
}

uint64_t shed_wall_ms(void)
{
    return to_ms(read_clock(CLOCK_REALTIME));
}

uint64_t shed_now_us(void)
{
    struct timespec now = read_clock(DEADLINE_CLOCK);

    return (uint64_t)now.tv_sec * US_PER_S + (uint64_t)now.tv_nsec / NS_PER_US;
}
