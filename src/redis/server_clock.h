/*
 * The server's clock, as far as answers to TIME tell it. Pure. The server read
 * its clock between the moment when it was asked and that when its answer was
 * read, so the difference of the clocks is within two bounds. Each answer moves
 * the estimate only as far as its bounds demand: one that was long under way,
 * or found its reader stopped, does not spoil what a quick one has told.
 */
#ifndef SHED_SERVER_CLOCK_H
#define SHED_SERVER_CLOCK_H

#include <stdatomic.h>
#include <stdint.h>

/* {0}: unknown. Any thread. */
struct shed_server_clock {
    _Atomic int64_t offset_ms; /* the server's clock minus ours; 0: unknown */
};

/* Take the answer server_ms, asked and read at these times by our clock. Of an
 * estimate that is the first, the bounds allow all between them; the one that
 * is never behind the server is taken, because an entry that is past its time
 * must not be held to be fresh. */
static inline void shed_server_clock_note(struct shed_server_clock *clock,
                                          uint64_t asked_ms, uint64_t server_ms,
                                          uint64_t now_ms)
{
    int64_t highest = (int64_t)server_ms - (int64_t)asked_ms;
    int64_t lowest = (int64_t)server_ms - (int64_t)now_ms;
    int64_t before = atomic_load(&clock->offset_ms), offset;

    do {
        offset = before;
        if (before == 0 || before > highest)
            offset = highest;
        else if (before < lowest)
            offset = lowest;
    } while (!atomic_compare_exchange_weak(&clock->offset_ms, &before, offset));
}

/* The server's clock now, ms since 1970; 0: unknown. */
static inline uint64_t
shed_server_clock_ms(const struct shed_server_clock *clock, uint64_t now_ms)
{
    int64_t offset = atomic_load(&clock->offset_ms);

    return offset == 0 ? 0 : (uint64_t)((int64_t)now_ms + offset);
}

#endif
