/* The monotonic clock, in which this library counts every deadline. It is
 * CLOCK_BOOTTIME, so that leases end while a machine is suspended. */
#ifndef SHED_CLOCK_H
#define SHED_CLOCK_H

#include <stdint.h>

uint64_t shed_now_ms(void);

/* The same clock in microseconds, for durations. */
uint64_t shed_now_us(void);

/* The wall clock, ms since 1970: for times that other programs read, never for
 * a deadline. */
uint64_t shed_wall_ms(void);

/* A clock that does not count suspension, and is read in a quarter of the time:
 * it is at or before shed_awake_by_ms, which is at most 20 ms ahead of it. */
uint64_t shed_awake_ms(void);
uint64_t shed_awake_by_ms(void);

/* now + timeout without overflow. */
static inline uint64_t shed_deadline_ms(uint64_t now_ms, uint64_t timeout_ms)
{
    return timeout_ms > UINT64_MAX - now_ms ? UINT64_MAX : now_ms + timeout_ms;
}

/* The time left until the deadline; 0 when it has passed. */
static inline uint64_t shed_left_ms(uint64_t deadline_ms, uint64_t now_ms)
{
    return deadline_ms > now_ms ? deadline_ms - now_ms : 0;
}

#endif
