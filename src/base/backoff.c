/* Back-off. Pure; its one invariant: the result is at least 1 and at most
 * max_ms (or 1), so that no caller spins and none waits for ever. */
#include "base/backoff.h"

static uint64_t bound_ms(unsigned attempt, uint64_t min_ms, uint64_t max_ms)
{
    uint64_t bound = min_ms > 0 ? min_ms : 1;

    while (attempt-- > 0 && bound < max_ms)
        bound = bound > max_ms / 2 ? max_ms : bound * 2;
    return bound < max_ms ? bound : (max_ms > 0 ? max_ms : 1);
}

uint64_t shed_backoff_ms(unsigned attempt, uint64_t min_ms, uint64_t max_ms,
                         uint64_t random)
{
    return 1 + random % bound_ms(attempt, min_ms, max_ms);
}

uint64_t shed_backoff_equal_ms(unsigned attempt, uint64_t min_ms,
                               uint64_t max_ms, uint64_t random)
{
    uint64_t bound = bound_ms(attempt, min_ms, max_ms);

    return bound - random % (bound / 2 + 1);
}
