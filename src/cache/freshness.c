/* Lifetimes. Pure; its one invariant: jitter never makes an entry live longer
 * than its ttl, nor for no time at all. */
#include "cache/freshness.h"

uint64_t shed_freshness_ttl_ms(uint64_t ttl_ms, uint64_t jitter_pct,
                               uint64_t random)
{
    /* divided first: a ttl of ten years times 100 fits, any ttl does not */
    uint64_t span = ttl_ms / 100 * jitter_pct + ttl_ms % 100 * jitter_pct / 100;
    uint64_t ttl = ttl_ms - random % (span + 1);

    return ttl > 0 || ttl_ms == 0 ? ttl : 1;
}
