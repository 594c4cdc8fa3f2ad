/* How long entries live. Pure. */
#ifndef SHED_FRESHNESS_H
#define SHED_FRESHNESS_H

#include <stdint.h>

/* A time to live, shortened by up to jitter_pct percent, so that entries which
 * were written together do not expire together; at least 1 ms of a ttl that is
 * not 0. random is any 64 bits. */
uint64_t shed_freshness_ttl_ms(uint64_t ttl_ms, uint64_t jitter_pct,
                               uint64_t random);

#endif
