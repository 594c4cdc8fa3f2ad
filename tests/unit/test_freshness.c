/* freshness: jitter shortens a ttl and never prolongs it; whether an entry may
 * be served at each time; and early refresh compared with XFetch's formula. */
#include "entry/freshness.h"

#include <math.h>
#include <stdbool.h>

#include "support/random.h"
#include "support/testing.h"

static const struct {
    uint64_t ttl_ms, jitter_pct, random, expected;
} ttls[] = {
    {60000, 0, UINT64_MAX, 60000},
    {UINT64_MAX, 0, 77, UINT64_MAX},
    {1000, 10, 0, 1000},
    {1000, 10, 100, 900},
    {1000, 10, 101, 1000},
    /* the rest below a hundred is jittered, too */
    {250, 50, 125, 125},
    {99, 90, 89, 10},
    /* one that is not 0 stays so, and so does 0 */
    {1, 100, 1, 1},
    {100, 100, 100, 1},
    {1, 90, 12345, 1},
    {0, 0, 5, 0},
    {0, 90, 5, 0},
    /* any ttl fits */
    {UINT64_MAX, 50, UINT64_MAX / 2, UINT64_MAX - UINT64_MAX / 2},
};

TEST(jitter_shortens_a_ttl_by_up_to_its_part)
{
    for (size_t i = 0; i < COUNT_OF(ttls); i++)
        ck_assert_uint_eq(shed_freshness_ttl_ms(ttls[i].ttl_ms,
                                                ttls[i].jitter_pct,
                                                ttls[i].random),
                          ttls[i].expected);
    for (uint64_t random = 0; random < 1000; random++) {
        uint64_t ttl = shed_freshness_ttl_ms(1000, 10, random * 7919);

        ck_assert_uint_ge(ttl, 900);
        ck_assert_uint_le(ttl, 1000);
    }
    ck_assert_uint_ge(shed_freshness_ttl_ms(UINT64_MAX, 90, UINT64_MAX - 1),
                      UINT64_MAX / 100 * 10);
}

/* -------------------------------------------------------------- judgements */

#define WRITTEN_MS UINT64_C(1700000000000)
#define TTL_MS 10000
#define DUE_MS 8000 /* of lenient_rule */

#define LENIENT                                                                \
    .refresh_after_pct = 80, .revalidate_ms = 500, .if_error_ms = 2000

static const struct shed_freshness_rule strict_rule = {.max_age_ms = 0};
static const struct shed_freshness_rule lenient_rule = {LENIENT};

static enum shed_freshness judge(const struct shed_freshness_rule *rule,
                                 uint64_t age_ms, uint64_t cost_ms,
                                 uint64_t random)
{
    const struct shed_freshness_times times = {.written_ms = WRITTEN_MS,
                                               .until_ms = WRITTEN_MS + TTL_MS,
                                               .cost_ms = cost_ms};

    return shed_freshness_judge(rule, &times, WRITTEN_MS + age_ms, random);
}

#define UNKNOWN (-(int64_t)WRITTEN_MS) /* an age: of an unknown clock */
#define ENDED (-(int64_t)WRITTEN_MS)   /* a ttl: of an entry that has ended */

static const struct shed_freshness_rule aged_5000 = {LENIENT,
                                                     .max_age_ms = 5000};
/* Beyond the ttl, so only the windows are cut to it. */
static const struct shed_freshness_rule aged_10200 = {LENIENT,
                                                      .max_age_ms = 10200};
static const struct shed_freshness_rule any_age = {.max_age_ms = UINT64_MAX};
static const struct shed_freshness_rule allowing = {.revalidate_ms =
                                                        UINT64_MAX};

static const struct {
    const struct shed_freshness_rule *rule;
    int64_t age_ms, ttl_ms;
    uint64_t cost_ms;
    enum shed_freshness expected;
} judgements[] = {
    {&lenient_rule, 0, TTL_MS, 0, SHED_FRESHNESS_FRESH},
    {&lenient_rule, 7999, TTL_MS, 0, SHED_FRESHNESS_FRESH},
    {&lenient_rule, 8000, TTL_MS, 0, SHED_FRESHNESS_DUE},
    {&lenient_rule, 9999, TTL_MS, 0, SHED_FRESHNESS_DUE},
    {&lenient_rule, 10000, TTL_MS, 0, SHED_FRESHNESS_STALE},
    {&lenient_rule, 10499, TTL_MS, 0, SHED_FRESHNESS_STALE},
    {&lenient_rule, 10500, TTL_MS, 0, SHED_FRESHNESS_EXPIRED},
    {&lenient_rule, 11999, TTL_MS, 0, SHED_FRESHNESS_EXPIRED},
    {&lenient_rule, 12000, TTL_MS, 0, SHED_FRESHNESS_OVER},
    {&lenient_rule, 999999, TTL_MS, 0, SHED_FRESHNESS_OVER},
    /* without options an entry is fresh, and then over */
    {&strict_rule, TTL_MS - 1, TTL_MS, 99999, SHED_FRESHNESS_FRESH},
    {&strict_rule, TTL_MS, TTL_MS, 99999, SHED_FRESHNESS_OVER},
    /* an unknown clock leaves entries fresh, unless there is a bound */
    {&lenient_rule, UNKNOWN, TTL_MS, UINT32_MAX, SHED_FRESHNESS_FRESH},
    {&any_age, UNKNOWN, TTL_MS, 0, SHED_FRESHNESS_AGED},
    {&any_age, -3, TTL_MS, 0, SHED_FRESHNESS_FRESH},
    /* what is older than the bound is aged, however fresh */
    {&aged_5000, 5000, TTL_MS, 0, SHED_FRESHNESS_FRESH},
    {&aged_5000, 5001, TTL_MS, 0, SHED_FRESHNESS_AGED},
    {&aged_5000, 10100, TTL_MS, 0, SHED_FRESHNESS_AGED},
    {&aged_10200, 9999, TTL_MS, 0, SHED_FRESHNESS_DUE},
    {&aged_10200, 10200, TTL_MS, 0, SHED_FRESHNESS_STALE},
    {&aged_10200, 10201, TTL_MS, 0, SHED_FRESHNESS_AGED},
    /* an entry from the future is fresh */
    {&lenient_rule, -60000, TTL_MS, 0, SHED_FRESHNESS_FRESH},
    /* one that has ended is given to nobody, one that ended early is stale */
    {&allowing, 100, ENDED, 0, SHED_FRESHNESS_OVER},
    {&allowing, UNKNOWN, ENDED, 0, SHED_FRESHNESS_OVER},
    {&lenient_rule, 100, -1, 0, SHED_FRESHNESS_STALE},
    /* jitter moves the refresh with the end */
    {&lenient_rule, 3999, TTL_MS / 2, 0, SHED_FRESHNESS_FRESH},
    {&lenient_rule, 4000, TTL_MS / 2, 0, SHED_FRESHNESS_DUE},
};

TEST_EACH(an_entry_is_judged_by_its_times_and_the_rule, 0, COUNT_OF(judgements))
{
    const struct shed_freshness_times times = {
        .written_ms = WRITTEN_MS,
        .until_ms = WRITTEN_MS + (uint64_t)judgements[_i].ttl_ms,
        .cost_ms = judgements[_i].cost_ms};

    ck_assert_int_eq(
        shed_freshness_judge(judgements[_i].rule, &times,
                             WRITTEN_MS + (uint64_t)judgements[_i].age_ms, 0),
        judgements[_i].expected);
}

TEST(a_call_can_be_stricter_than_its_cache_and_more_lenient)
{
    struct shed_freshness_rule rule =
        shed_freshness_rule_of_call(&lenient_rule, 7, SHED_STALE_NEVER);

    ck_assert_uint_eq(rule.max_age_ms, 7);
    ck_assert_int_eq(judge(&rule, 7, 0, 0), SHED_FRESHNESS_FRESH);
    rule = shed_freshness_rule_of_call(&lenient_rule, 0, SHED_STALE_NEVER);
    ck_assert_int_eq(judge(&rule, 8000, 0, 0), SHED_FRESHNESS_DUE);
    ck_assert_int_eq(judge(&rule, 10000, 0, 0), SHED_FRESHNESS_OVER);
    rule = shed_freshness_rule_of_call(&strict_rule, 0, SHED_STALE_ALLOWED);
    ck_assert_mem_eq(&rule, &allowing, sizeof(rule));
    ck_assert_int_eq(judge(&rule, TTL_MS - 1, 0, 0), SHED_FRESHNESS_FRESH);
    ck_assert_int_eq(judge(&rule, UINT64_C(1) << 50, 0, 0),
                     SHED_FRESHNESS_STALE);
    rule = shed_freshness_rule_of_call(&lenient_rule, 0, SHED_STALE_DEFAULT);
    ck_assert_mem_eq(&rule, &lenient_rule, sizeof(rule));
}

TEST(no_such_row_has_an_age_and_no_windows)
{
    struct shed_freshness_rule absent =
        shed_freshness_rule_of_kind(&aged_5000, SHED_KIND_ABSENT);
    struct shed_freshness_rule null =
        shed_freshness_rule_of_kind(&aged_5000, SHED_KIND_NULL);

    ck_assert_uint_eq(absent.max_age_ms, 5000);
    ck_assert_uint_eq(absent.refresh_after_pct, 0);
    ck_assert_uint_eq(shed_freshness_kept_ms(&absent, 9000), 9000);
    ck_assert_mem_eq(&null, &aged_5000, sizeof(null));
}

TEST(redis_keeps_an_entry_for_its_longest_window)
{
    struct shed_freshness_rule rule = lenient_rule;

    ck_assert_uint_eq(shed_freshness_kept_ms(&rule, 9000), 11000);
    rule.revalidate_ms = 5000;
    ck_assert_uint_eq(shed_freshness_kept_ms(&rule, 9000), 14000);
    ck_assert_uint_eq(shed_freshness_kept_ms(&strict_rule, 9000), 9000);
    ck_assert_uint_eq(shed_freshness_kept_ms(&rule, 0), 0);
}

TEST(redis_keeps_what_can_be_refreshed_a_moment_longer)
{
    const struct shed_freshness_rule rules[] = {
        {.refresh_after_pct = 1}, {.revalidate_ms = 1}, {.if_error_ms = 1}};

    for (size_t i = 0; i < COUNT_OF(rules); i++) {
        ck_assert_uint_eq(shed_freshness_redis_ms(&rules[i], 9000),
                          9000 + LEEWAY_MS);
        ck_assert_uint_eq(shed_freshness_redis_ms(&rules[i], 0), 0);
    }
    ck_assert_uint_eq(shed_freshness_redis_ms(&strict_rule, 9000), 9000);
}

/* ------------------------------------------------------------------ XFetch */

/* The random number from which freshness.c makes u. */
static uint64_t random_of(double u)
{
    return u >= 1 ? UINT64_MAX : (uint64_t)ldexp(u, 64);
}

TEST(the_gap_is_the_papers_formula)
{
    const double us[] = {1, 0.9, 0.5, 0.36787944117144233, 0.1, 0.001, 1e-9};

    for (size_t i = 0; i < sizeof(us) / sizeof(*us); i++)
        for (uint64_t cost_ms = 1; cost_ms < 100000; cost_ms *= 7) {
            double gap = shed_freshness_early_ms(cost_ms, random_of(us[i]));

            ck_assert_double_eq_tol(gap, -(double)cost_ms * log(us[i]),
                                    (double)cost_ms * 1e-6);
        }
}

TEST(every_random_number_gives_a_gap)
{
    ck_assert(shed_freshness_early_ms(10, UINT64_MAX) == 0);
    ck_assert(isfinite(shed_freshness_early_ms(UINT32_MAX, 0)));
    ck_assert(shed_freshness_early_ms(10, 0) > 300);
    ck_assert(shed_freshness_early_ms(0, 0) == 0);
}

static uint64_t random_state;

/* The age at which looks at fixed intervals first find an entry due. */
static uint64_t first_due_ms(uint64_t cost_ms, uint64_t step_ms)
{
    uint64_t age_ms = 0;

    while (judge(&lenient_rule, age_ms, cost_ms, random_next(&random_state)) ==
           SHED_FRESHNESS_FRESH)
        age_ms += step_ms;
    return age_ms;
}

/* The paper's probability, for independent looks, that none of those at the
 * gaps g, g + step, ... before the expiry has begun a refresh. */
static double none_before(double gap, double longest, double cost, double step)
{
    double chance = 1;

    for (; gap <= longest; gap += step)
        chance *= 1 - exp(-gap / cost);
    return chance;
}

TEST(schedules_of_looks_are_refreshed_as_the_paper_says)
{
    enum { SCHEDULES = 20000, STEP_MS = 5, COST_MS = 200 };
    const uint64_t ages[] = {6800, 7000, 7200, 7400, 7600};
    unsigned later[5] = {0};

    random_state = 1;
    for (unsigned i = 0; i < SCHEDULES; i++) {
        uint64_t age_ms = first_due_ms(COST_MS, STEP_MS);

        ck_assert_uint_le(age_ms, DUE_MS);
        for (size_t k = 0; k < 5; k++)
            later[k] += age_ms > ages[k];
    }
    for (size_t k = 0; k < 5; k++)
        ck_assert_double_eq_tol(
            (double)later[k] / (double)SCHEDULES,
            none_before(8000 - (double)ages[k], 8000, COST_MS, STEP_MS), 0.02);
}

TEST(seldom_looks_never_meet_the_expiry)
{
    random_state = 2;
    for (unsigned i = 0; i < 20000; i++) {
        /* at least one look between DUE_MS and the end */
        uint64_t step_ms = 1 + random_next(&random_state) % 2000;
        uint64_t age_ms =
            first_due_ms(random_next(&random_state) % 3000, step_ms);

        ck_assert_uint_lt(age_ms, TTL_MS);
    }
}

TEST(a_costly_load_begins_earlier)
{
    uint64_t cheap = 0, dear = 0;

    random_state = 3;
    for (unsigned i = 0; i < 2000; i++) {
        cheap += first_due_ms(1, 10);
        dear += first_due_ms(1000, 10);
    }
    ck_assert_uint_lt(dear + UINT64_C(2000) * 1000, cheap);
}

/* Below the cap the paper's formula decides alone, beyond it nothing. */
TEST(no_look_finds_an_entry_due_earlier_than_the_cap)
{
    const uint64_t earliest_ms = 6000; /* three quarters of DUE_MS */
    const struct shed_freshness_times half = {.written_ms = WRITTEN_MS,
                                              .until_ms =
                                                  WRITTEN_MS + TTL_MS / 2,
                                              .cost_ms = UINT32_MAX};

    for (uint64_t cost_ms = 1; cost_ms < 10000000; cost_ms *= 3) {
        ck_assert_int_eq(judge(&lenient_rule, earliest_ms - 1, cost_ms, 0),
                         SHED_FRESHNESS_FRESH);
        for (double u = 1; u > 1e-9; u *= 0.7) {
            bool is_due = judge(&lenient_rule, earliest_ms, cost_ms,
                                random_of(u)) == SHED_FRESHNESS_DUE;
            ck_assert(is_due == (-(double)cost_ms * log(u) >= 2000));
        }
    }
    /* with the part of the lifetime that jitter has left */
    ck_assert_int_eq(
        shed_freshness_judge(&lenient_rule, &half, WRITTEN_MS + 2999, 0),
        SHED_FRESHNESS_FRESH);
    ck_assert_int_eq(
        shed_freshness_judge(&lenient_rule, &half, WRITTEN_MS + 3000, 0),
        SHED_FRESHNESS_DUE);
}

/* Looks at an interval, and one load at a time. Returns: how many loads there
 * are in so many times DUE_MS. */
static unsigned refreshes(uint64_t look_ms, uint64_t load_ms, uint64_t times)
{
    uint64_t written_ms = 0, began_ms = 0;
    bool is_loading = false;
    unsigned count = 0;

    for (uint64_t now_ms = 0; now_ms < times * DUE_MS; now_ms += look_ms) {
        if (is_loading && now_ms >= began_ms + load_ms) {
            is_loading = false;
            written_ms = now_ms;
        }
        if (is_loading ||
            judge(&lenient_rule, now_ms - written_ms, load_ms,
                  random_next(&random_state)) == SHED_FRESHNESS_FRESH)
            continue;
        is_loading = true;
        began_ms = now_ms;
        count++;
    }
    return count;
}

/* However slow the database becomes. */
TEST(slow_loads_are_at_most_a_third_more_frequent)
{
    enum { TIMES = 300 };
    const uint64_t loads_ms[] = {10, 100, 300, 1000, 3000, 8000};

    random_state = 4;
    for (size_t i = 0; i < sizeof(loads_ms) / sizeof(*loads_ms); i++)
        for (uint64_t look_ms = 10; look_ms <= 1000; look_ms *= 10) {
            unsigned count = refreshes(look_ms, loads_ms[i], TIMES);
            /* three quarters of DUE_MS, and the load itself */
            ck_assert_uint_le(count, TIMES * 8000 / (6000 + loads_ms[i]) + 1);
            ck_assert_uint_ge(
                count, TIMES * 8000 / (8000 + loads_ms[i] + 2 * look_ms) - 1);
        }
}

int main(void)
{
    return run_tests("freshness");
}
