/* The history of the database. Its invariant: marks only grow. */
#include "soak/history.h"

#include <stdio.h>

#include "base/clock.h"

const char *const soak_violations[SOAK_VIOLATIONS] = {
    [SOAK_STALE] = "older than an invalidation that was over",
    [SOAK_EXPIRED] = "older than an expiry, and not said to be stale",
    [SOAK_UNKNOWN] = "never written",
    [SOAK_TOO_OLD] = "beyond ttl and windows",
    [SOAK_BAD_AGE] = "of an age beyond ttl and windows",
    [SOAK_FENCE] = "a fencing number that does not grow",
};

void soak_raise(atomic_uint *mark, unsigned to)
{
    unsigned now = atomic_load(mark);

    while (now < to && !atomic_compare_exchange_weak(mark, &now, to))
        ;
}

struct soak_floor soak_floor(const struct soak_history *h, unsigned key)
{
    const struct soak_key *k = &h->key[key];
    struct soak_floor floor = {.told = atomic_load(&k->told),
                               .expired = atomic_load(&k->expired),
                               .begun_ms = shed_now_ms()};

    /* read after the mark, so at worst it is that of a later expiry */
    if (floor.begun_ms < atomic_load(&k->expired_ms) + h->clock_ms)
        floor.expired = 0;
    return floor;
}

void soak_report(struct soak_history *h, enum soak_violation violation,
                 unsigned key, unsigned version, unsigned floor)
{
    /* the first of each kind is enough to read */
    if (atomic_fetch_add(&h->violations[violation], 1) == 0)
        fprintf(stderr, "soak: FOUND: key %u, version %u, at least %u: %s\n",
                key, version, floor, soak_violations[violation]);
}

/* Whether a version had been replaced so long before the call began that no
 * entry made from it could still exist. */
static bool is_too_old(const struct soak_history *h, unsigned key,
                       unsigned version, uint64_t begun_ms)
{
    const struct soak_key *k = &h->key[key];
    uint64_t replaced_ms;

    if (version + 1 > atomic_load(&k->committed))
        return false;
    replaced_ms = atomic_load(&k->committed_ms[(version + 1) % SOAK_VERSIONS]);
    return replaced_ms != 0 && begun_ms > replaced_ms + SOAK_TTL_MS +
                                              SOAK_IF_ERROR_MS + h->slack_ms;
}

void soak_judge(struct soak_history *h, unsigned key,
                const struct soak_floor *floor, unsigned version,
                const struct shed_value *value)
{
    bool is_stale = shed_value_origin(value) == SHED_ORIGIN_STALE;
    uint64_t limit_ms =
        SOAK_TTL_MS + h->slack_ms + (is_stale ? SOAK_IF_ERROR_MS : 0);

    atomic_fetch_add(&h->reads, 1);
    if (is_stale)
        atomic_fetch_add(&h->stale, 1);
    if (version > atomic_load(&h->key[key].begun))
        soak_report(h, SOAK_UNKNOWN, key, version, floor->told);
    if (version < floor->told)
        soak_report(h, SOAK_STALE, key, version, floor->told);
    else if (version < floor->expired && !is_stale)
        soak_report(h, SOAK_EXPIRED, key, version, floor->expired);
    if (is_too_old(h, key, version, floor->begun_ms))
        soak_report(h, SOAK_TOO_OLD, key, version, floor->told);
    if (shed_value_age_ms(value) > limit_ms)
        soak_report(h, SOAK_BAD_AGE, key, version, floor->told);
}
