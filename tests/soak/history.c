/* The history of the database. Its invariant: marks only grow. */
#include "soak/history.h"

#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"

enum { US_PER_MS = 1000 };

const char *const soak_violations[SOAK_VIOLATIONS] = {
    [SOAK_STALE] = "older than an invalidation that was over",
    [SOAK_OWN] = "older than a write of its own process",
    [SOAK_GROUPED] = "older than an invalidation of its tag",
    [SOAK_EXPIRED] = "older than an expiry, and not said to be stale",
    [SOAK_UNKNOWN] = "never written",
    [SOAK_TOO_OLD] = "beyond max_age, or ttl and windows",
    [SOAK_BAD_AGE] = "of an age beyond ttl and windows",
    [SOAK_REPLACED] = "stored long after it had been replaced",
    [SOAK_FORBIDDEN] = "stale, where the call forbids it",
    [SOAK_LOADED] = "loaded, where the call forbids it",
    [SOAK_FENCE] = "a fencing number that does not grow",
    [SOAK_LOADS] = "more loads at a time than fleet_loads",
    [SOAK_FAILED] = "failed, though no server had a fault",
    [SOAK_OVERDUE] = "returned long after its deadline",
};

/* ------------------------------------------------------------------- puts */

static bool is_doubtful(const struct soak_key *k, uint64_t now_ms)
{
    return now_ms <= atomic_load(&k->doubtful_until_ms);
}

bool soak_begin_put(struct soak_history *h, unsigned key, unsigned version)
{
    struct soak_key *k = &h->key[key];

    if (is_doubtful(k, shed_now_ms()))
        return false;
    atomic_store(&k->doubtful, version);
    atomic_store(&k->doubtful_until_ms, UINT64_MAX);
    return true;
}

void soak_end_put(struct soak_history *h, unsigned key, bool is_done)
{
    uint64_t until_ms = shed_now_ms() + h->slack_ms +
                        h->ttl_ms[soak_cache_of(key)] + SOAK_IF_ERROR_MS;

    atomic_store(&h->key[key].doubtful_until_ms, is_done ? 0 : until_ms);
}

void soak_inherit(struct soak_history *h, unsigned key)
{
    if (atomic_load(&h->key[key].doubtful_until_ms) == UINT64_MAX)
        soak_end_put(h, key, false);
}

/* ----------------------------------------------------------------- tags */

/* Of many in a short time the first alone counts for other processes: with the
 * last one they would never have had the time to hear of it. */
void soak_note_tag(struct soak_history *h, unsigned key, unsigned version)
{
    struct soak_key *k = &h->key[key];
    unsigned before = atomic_load(&k->grouped);
    uint64_t now_ms = shed_now_ms();

    /* read after the mark, so at worst it is that of a later one */
    if (now_ms < atomic_load(&k->grouped_ms) + h->heard_ms)
        return;
    soak_raise(&k->heard, before);
    soak_raise_to(&k->grouped_ms, now_ms);
    soak_raise(&k->grouped, version);
}

/* ------------------------------------------------------------------ reads */

struct soak_floor soak_floor(const struct soak_history *h, unsigned key)
{
    const struct soak_key *k = &h->key[key];
    struct soak_floor floor = {.told = atomic_load(&k->told),
                               .expired = atomic_load(&k->expired),
                               .heard = atomic_load(&k->heard),
                               .begun_ms = shed_now_ms()};
    unsigned grouped = atomic_load(&k->grouped);

    /* read after the mark, so at worst it is that of a later expiry */
    if (floor.begun_ms < atomic_load(&k->expired_ms) + SOAK_CLOCK_MS)
        floor.expired = 0;
    if (floor.begun_ms >= atomic_load(&k->grouped_ms) + h->heard_ms &&
        grouped > floor.heard)
        floor.heard = grouped;
    if (is_doubtful(k, floor.begun_ms))
        floor.doubtful = atomic_load(&k->doubtful);
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

/* When a version was replaced: at the latest, its writer notes it afterwards.
 * 0: it was not. */
static uint64_t replaced_ms(const struct soak_history *h, unsigned key,
                            unsigned version)
{
    const struct soak_key *k = &h->key[key];

    if (version + 1 > atomic_load(&k->committed))
        return 0;
    return atomic_load(&k->committed_ms[(version + 1) % SOAK_VERSIONS]);
}

/* How old an entry may be that answers such a call, as far as its origin tells.
 */
static uint64_t window_ms(const struct soak_history *h, unsigned key,
                          const struct shed_get_options *asked, bool is_stale)
{
    /* SHED_STALE_ALLOWED: what Redis has, for a moment after the windows */
    bool is_any = is_stale && asked->allow_stale == SHED_STALE_ALLOWED;

    return asked->max_age_ms > 0 ? asked->max_age_ms
                                 : h->ttl_ms[soak_cache_of(key)] +
                                       (is_stale ? SOAK_IF_ERROR_MS : 0) +
                                       (is_any ? SOAK_LEEWAY_MS : 0);
}

/* Whether a value was stored, or left its window, so long after it had been
 * replaced that its load cannot have read it before. A time when this machine
 * stood still is noted when it is over. */
static bool is_late(struct soak_history *h, uint64_t from_ms, uint64_t late_ms)
{
    uint64_t trouble_ms;

    if (late_ms > h->load_ms)
        usleep((useconds_t)(h->fleet.stall_ms * US_PER_MS));
    trouble_ms = soak_trouble_ms(&h->troubles, from_ms, from_ms + late_ms);
    soak_raise_to(trouble_ms > 0 ? &h->troubled_ms : &h->late_ms, late_ms);
    return late_ms > h->load_ms + trouble_ms;
}

/* Judge when a value was loaded: by its age, and, in case that is wrong, by the
 * windows alone. */
static void judge_times(struct soak_history *h, unsigned key,
                        const struct soak_floor *floor, unsigned version,
                        uint64_t age_ms, uint64_t limit_ms)
{
    uint64_t from_ms = replaced_ms(h, key, version) + SOAK_CLOCK_MS;
    /* it had that age during the call: at its beginning, at worst */
    uint64_t begun_ms = floor->begun_ms;

    if (from_ms == SOAK_CLOCK_MS)
        return;
    if (begun_ms > from_ms + age_ms &&
        is_late(h, from_ms, begun_ms - age_ms - from_ms))
        soak_report(h, SOAK_REPLACED, key, version, floor->told);
    if (begun_ms > from_ms + limit_ms &&
        is_late(h, from_ms, begun_ms - limit_ms - from_ms))
        soak_report(h, SOAK_TOO_OLD, key, version, floor->told);
}

/* One that could be given out when the call began has aged until it was. */
static void judge_age(struct soak_history *h, unsigned key,
                      const struct soak_floor *floor, unsigned version,
                      uint64_t age_ms, uint64_t limit_ms)
{
    uint64_t waited_ms = shed_now_ms() - floor->begun_ms;
    bool is_young = floor->age_ms < SOAK_YOUNG_MS;

    limit_ms += waited_ms + SOAK_CLOCK_MS;
    if (age_ms <= limit_ms)
        return;
    if (!is_young)
        soak_raise_to(&h->ahead_ms, age_ms - limit_ms);
    if (age_ms > limit_ms + (is_young ? SOAK_AHEAD_MS : SOAK_QUICK_MS))
        soak_report(h, SOAK_BAD_AGE, key, version, (unsigned)age_ms);
}

static void judge_terms(struct soak_history *h, unsigned key,
                        const struct soak_floor *floor,
                        const struct shed_get_options *asked, unsigned version,
                        const struct shed_value *value)
{
    enum shed_origin origin = value->origin;
    bool is_stale = origin == SHED_ORIGIN_STALE;
    uint64_t limit_ms = window_ms(h, key, asked, is_stale);
    uint64_t age_ms = value->age_ms;

    if (is_stale && asked->allow_stale == SHED_STALE_NEVER)
        soak_report(h, SOAK_FORBIDDEN, key, version, floor->told);
    if (!is_stale && origin != SHED_ORIGIN_REDIS && asked->only_cached)
        soak_report(h, SOAK_LOADED, key, version, floor->told);
    judge_times(h, key, floor, version, age_ms, limit_ms);
    judge_age(h, key, floor, version, age_ms, limit_ms);
}

/* Report a value that is older than it may be, and how it came; unless writes
 * may have been lost that are yet to be repeated. */
static void report_old(struct soak_history *h, enum soak_violation violation,
                       unsigned key, unsigned version, unsigned least,
                       const struct soak_floor *floor,
                       const struct shed_value *value)
{
    if (floor->begun_ms <= atomic_load(&h->lacking_until_ms)) {
        atomic_fetch_add(&h->lacked, 1);
        return;
    }
    if (atomic_load(&h->violations[violation]) == 0)
        fprintf(stderr, "soak: origin %s, age %llu ms, call of %llu ms\n",
                shed_origin_name(value->origin),
                (unsigned long long)value->age_ms,
                (unsigned long long)(shed_now_ms() - floor->begun_ms));
    soak_report(h, violation, key, version, least);
}

void soak_judge(struct soak_history *h, unsigned key,
                const struct soak_floor *floor,
                const struct shed_get_options *asked, unsigned version,
                const struct shed_value *value)
{
    bool is_stale = value->origin == SHED_ORIGIN_STALE;
    bool may_miss = is_stale && floor->is_keeper; /* what others have changed */

    if (version > atomic_load(&h->key[key].begun))
        soak_report(h, SOAK_UNKNOWN, key, version, floor->told);
    if (version == floor->doubtful)
        return;
    if (version < floor->told && !may_miss)
        report_old(h, SOAK_STALE, key, version, floor->told, floor, value);
    else if (version < floor->own)
        report_old(h, SOAK_OWN, key, version, floor->own, floor, value);
    else if (version < floor->heard && !may_miss)
        report_old(h, SOAK_GROUPED, key, version, floor->heard, floor, value);
    else if (version < floor->expired && !is_stale)
        report_old(h, SOAK_EXPIRED, key, version, floor->expired, floor, value);
    judge_terms(h, key, floor, asked, version, value);
}
