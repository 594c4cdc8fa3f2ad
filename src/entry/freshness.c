/*
 * Lifetimes. Pure; its invariants: with jitter an entry lives for at least a
 * millisecond, and not longer than its ttl; Redis keeps an entry as long as a
 * reader with the same rule may serve it, and a moment longer if it can be
 * refreshed.
 *
 * Design notes
 *
 * Early refresh is XFetch, of A. Vattani, F. Chierichetti, K. Lowenstein,
 * "Optimal Probabilistic Cache Stampede Prevention", VLDB 2015: each look at an
 * entry draws u from (0, 1] and refreshes if
 *
 *     now - cost * beta * ln(u) >= expiry
 *
 * The gap is exponentially distributed, with the cost of the load as its mean,
 * so a load begins about as long before the expiry as it takes, and different
 * processes seldom start one at the same moment. The paper shows that no other
 * distribution does better, and that beta = 1 is the optimum.
 *
 * The expiry here is refresh_after_pct of the ttl, not the end of freshness:
 * between the two every look finds the entry due. So a key that is read at
 * least once in that time never expires for its readers, however seldom it is
 * read; where reads are frequent, the paper's draw decides when the load
 * begins. Which process loads is not left to chance: the lease of the refresh
 * elects one.
 *
 * The gap has a cap that the paper does not have. Its keys live much longer
 * than a load takes. Where that is not so, the earliest of many draws is of any
 * length: loads would follow each other nearly without a pause, and a database
 * that becomes slower would be asked for more. With a quarter of
 * that time, the next refresh begins no sooner than three quarters of it
 * after the last one was stored: at most a third more loads than without early
 * refresh, however long they take. A draw reaches the cap with probability
 * exp(-cap / cost), so where a load takes a hundredth of it the
 * cap is never noticed.
 *
 * An entry's ttl was shortened by jitter when it was written, so entries which
 * were written together do not become due together.
 */
#include "entry/freshness.h"

#include <math.h>
#include <stdbool.h>

/* XFetch's beta: a value above 1 refreshes earlier. */
#define BETA 1.0

/* The longest gap is this part of the time that it is subtracted from. */
#define EARLY_PART 4

/* So much longer Redis keeps an entry whose refresh may still be under way at
 * its end, so that the refresh is not taken for that of an entry that was
 * invalidated; LEEWAY of entry.lua. Any other entry is gone at its end: who
 * finds nothing takes the lease with one command. */
#define LEEWAY_MS 200

#define RANDOM_BITS 53 /* the precision of a double */

uint64_t shed_freshness_ttl_ms(uint64_t ttl_ms, uint64_t jitter_pct,
                               uint64_t random)
{
    /* divided first, because not every ttl times 100 fits in 64 bits */
    uint64_t span = ttl_ms / 100 * jitter_pct + ttl_ms % 100 * jitter_pct / 100;
    uint64_t ttl = ttl_ms - random % (span + 1);

    return ttl > 0 || ttl_ms == 0 ? ttl : 1;
}

double shed_freshness_early_ms(uint64_t cost_ms, uint64_t random)
{
    double u = ldexp((double)(random >> (64 - RANDOM_BITS)) + 1, -RANDOM_BITS);

    return -(double)cost_ms * BETA * log(u);
}

static bool is_due(const struct shed_freshness_rule *rule,
                   const struct shed_freshness_times *times, uint64_t now_ms,
                   uint64_t random)
{
    uint64_t life_ms = times->until_ms - times->written_ms;
    double age_ms, due_ms, early_ms;

    if (rule->refresh_after_pct == 0 || now_ms < times->written_ms ||
        times->until_ms < times->written_ms)
        return false;
    age_ms = (double)(now_ms - times->written_ms);
    due_ms = (double)life_ms * (double)rule->refresh_after_pct / 100;
    early_ms = due_ms / EARLY_PART;
    if (age_ms + early_ms < due_ms) /* whatever is drawn: the usual case */
        return false;
    early_ms = fmin(shed_freshness_early_ms(times->cost_ms, random), early_ms);
    return age_ms + early_ms >= due_ms;
}

struct shed_freshness_rule
shed_freshness_rule_of_call(const struct shed_freshness_rule *rule,
                            uint64_t max_age_ms, enum shed_stale allow_stale)
{
    struct shed_freshness_rule r = *rule;

    r.max_age_ms = max_age_ms;
    if (allow_stale == SHED_STALE_NEVER) {
        r.revalidate_ms = 0;
        r.if_error_ms = 0;
    } else if (allow_stale == SHED_STALE_ALLOWED) {
        r.revalidate_ms = UINT64_MAX; /* Redis ends it */
    }
    return r;
}

struct shed_freshness_rule
shed_freshness_rule_of_kind(const struct shed_freshness_rule *rule,
                            enum shed_kind kind)
{
    if (kind != SHED_KIND_ABSENT)
        return *rule;
    return (struct shed_freshness_rule){.max_age_ms = rule->max_age_ms};
}

/* An entry from the future is one of a moment ago: the client's idea of the
 * server's clock is a few ms off, or the clock was set back. */
static bool is_aged(const struct shed_freshness_rule *rule,
                    const struct shed_freshness_times *times, uint64_t now_ms)
{
    if (rule->max_age_ms == 0)
        return false;
    return now_ms == 0 || (now_ms > times->written_ms &&
                           now_ms - times->written_ms > rule->max_age_ms);
}

enum shed_freshness
shed_freshness_judge(const struct shed_freshness_rule *rule,
                     const struct shed_freshness_times *times, uint64_t now_ms,
                     uint64_t random)
{
    uint64_t past_ms;

    if (times->until_ms == 0)
        return SHED_FRESHNESS_OVER;
    if (is_aged(rule, times, now_ms))
        return SHED_FRESHNESS_AGED;
    if (now_ms < times->until_ms)
        return is_due(rule, times, now_ms, random) ? SHED_FRESHNESS_DUE
                                                   : SHED_FRESHNESS_FRESH;
    past_ms = now_ms - times->until_ms;
    if (past_ms < rule->revalidate_ms)
        return SHED_FRESHNESS_STALE;
    return past_ms < rule->if_error_ms ? SHED_FRESHNESS_EXPIRED
                                       : SHED_FRESHNESS_OVER;
}

uint64_t shed_freshness_kept_ms(const struct shed_freshness_rule *rule,
                                uint64_t fresh_ms)
{
    uint64_t window_ms = rule->revalidate_ms > rule->if_error_ms
                             ? rule->revalidate_ms
                             : rule->if_error_ms;

    return fresh_ms > 0 ? fresh_ms + window_ms : 0;
}

uint64_t shed_freshness_redis_ms(const struct shed_freshness_rule *rule,
                                 uint64_t kept_ms)
{
    bool is_refreshed = rule->refresh_after_pct > 0 ||
                        rule->revalidate_ms > 0 || rule->if_error_ms > 0;

    return kept_ms > 0 && is_refreshed ? kept_ms + LEEWAY_MS : kept_ms;
}
