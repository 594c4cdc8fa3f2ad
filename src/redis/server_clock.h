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
#include <stdbool.h>
#include <stdint.h>

struct shed_server_clock {
    uint64_t asked_ms; /* by our clock: when TIME was sent last */
    /* the server's clock minus ours; 0: unknown */
    _Atomic int64_t offset_ms;
};

/* Take the answer server_ms, now_ms being our clock. Of an estimate that is the
 * first, the bounds allow all between them; the one that is never behind the
 * server is taken, because an entry that is past its time must not be held to
 * be fresh. One thread. Returns: whether this is the first answer. */
static inline bool shed_server_clock_note(struct shed_server_clock *clock,
                                          uint64_t server_ms, uint64_t now_ms)
{
    int64_t highest = (int64_t)server_ms - (int64_t)clock->asked_ms;
    int64_t lowest = (int64_t)server_ms - (int64_t)now_ms;
    int64_t offset = atomic_load(&clock->offset_ms);
    bool is_first = offset == 0;

    if (is_first || offset > highest)
        offset = highest;
    if (offset < lowest)
        offset = lowest;
    atomic_store(&clock->offset_ms, offset);
    return is_first;
}

/* The server's clock now, ms since 1970; 0: unknown. Any thread. */
static inline uint64_t
shed_server_clock_ms(const struct shed_server_clock *clock, uint64_t now_ms)
{
    int64_t offset = atomic_load(&clock->offset_ms);

    return offset == 0 ? 0 : (uint64_t)((int64_t)now_ms + offset);
}

#endif
