/* Lifetimes. Pure; its one invariant: with jitter an entry lives for at least a
 * millisecond, and not longer than its ttl. */
#include "cache/freshness.h"

uint64_t shed_freshness_ttl_ms(uint64_t ttl_ms, uint64_t jitter_pct,
                               uint64_t random)
{
    /* divided first, because not every ttl times 100 fits in 64 bits */
    uint64_t span = ttl_ms / 100 * jitter_pct + ttl_ms % 100 * jitter_pct / 100;
    uint64_t ttl = ttl_ms - random % (span + 1);

    return ttl > 0 || ttl_ms == 0 ? ttl : 1;
}
