/* Makes entries old at once, so that no test has to wait for it. */
#ifndef AGEING_H
#define AGEING_H

#include <check.h>

#include "support/server.h"

/* A ttl that is long compared with any test, the age from which such an entry
 * is due, and how long after its ttl it may be given out as stale. */
#define AGEING_TTL_MS UINT64_C(36000000)
#define AGEING_DUE_PCT 50
#define AGEING_DUE_MS (AGEING_TTL_MS * AGEING_DUE_PCT / 100)
#define STALE_MS (AGEING_TTL_MS / 10)

/* Ages within that window and beyond it. They are far from its ends, because a
 * client that waited long for the reply to TIME is behind the server's clock.
 */
#define PAST_TTL_MS (AGEING_TTL_MS + STALE_MS / 4)
#define PAST_STALE_MS (AGEING_TTL_MS + 2 * STALE_MS)

/* Move the times of the entry at a key into the past; its time to live in Redis
 * stays as it is. */
static inline void age_entry(const struct server *s, const char *key,
                             uint64_t by_ms)
{
    static const char script[] =
        "local by = tonumber(ARGV[1]) "
        "local t = redis.call('GETRANGE', KEYS[1], 40, 55) "
        "local a, b = struct.unpack('>I8I8', t) "
        "redis.call('SETRANGE', KEYS[1], 40, "
        "struct.pack('>I8I8', a - by, b - by)) return 1";

    ck_assert_int_eq(server_int(s, "EVAL %s 1 %s %llu", script, key,
                                (unsigned long long)by_ms),
                     1);
}

#endif
