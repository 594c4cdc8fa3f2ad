/*
 * The server's clock, as far as answers to TIME tell it. Pure. The server read
 * its clock between the moment when it was asked and that when its answer was
 * read, so the difference of the clocks is within two bounds. The estimate is
 * the higher one: it is never behind the server's clock, so that an entry past
 * its time is not held to be fresh, and ahead of it by about as long as the
 * quickest answers were under way, and 2 ms. Where it is ahead, a caller
 * asks the server, whose scripts judge by its own clock.
 *
 * An answer that was long under way, or found its reader stopped, does not
 * spoil what a quick one has told: it moves the estimate by a millisecond,
 * which makes up for a server's clock that runs faster than ours.
 */
#ifndef SHED_WIRE_SERVER_CLOCK_H
#define SHED_WIRE_SERVER_CLOCK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* {0}: unknown. Any thread. */
struct shed_server_clock {
    /* the server's clock minus ours; 0: unknown */
    _Atomic int64_t offset_ms;
    _Atomic int64_t lowest_ms; /* what it is at least */
};

/* Move a bound by 1 ms, as clocks run at different speeds; to its end of what
 * an answer allows, if it was or would be outside of that. */
static inline void shed_server_clock_move(_Atomic int64_t *bound, bool is_upper,
                                          int64_t lowest, int64_t highest)
{
    int64_t before = atomic_load(bound), low, after;

    do {
        low = is_upper ? before : before - 1;
        after = is_upper ? low + 1 : low;
        if (before == 0 || low < lowest || low >= highest)
            after = is_upper ? highest : lowest;
    } while (!atomic_compare_exchange_weak(bound, &before, after));
}

/* Take the answer server_ms, asked and read at these times by our clock. All
 * three were rounded down, as both clocks are when the estimate is used. */
static inline void shed_server_clock_note(struct shed_server_clock *clock,
                                          uint64_t asked_ms, uint64_t server_ms,
                                          uint64_t now_ms)
{
    int64_t highest = (int64_t)server_ms + 1 - (int64_t)asked_ms;
    int64_t lowest = (int64_t)server_ms - 1 - (int64_t)now_ms;

    shed_server_clock_move(&clock->offset_ms, true, lowest, highest);
    shed_server_clock_move(&clock->lowest_ms, false, lowest, highest);
}

/* The server's clock at now_ms, or a little later; 0: unknown. */
static inline uint64_t
shed_server_clock_ms(const struct shed_server_clock *clock, uint64_t now_ms)
{
    int64_t offset = atomic_load(&clock->offset_ms);

    return offset == 0 ? 0 : (uint64_t)((int64_t)now_ms + offset);
}

/* What the server's clock is at least at now_ms, if it has not been set back
 * since it was last asked; 0: unknown. */
static inline uint64_t
shed_server_clock_lowest_ms(const struct shed_server_clock *clock,
                            uint64_t now_ms)
{
    int64_t lowest = atomic_load(&clock->lowest_ms);

    return lowest == 0 ? 0 : (uint64_t)((int64_t)now_ms + lowest);
}

#endif
