/* A hundred thousand schedules of locks, one mode after the other.
 * SHED_SIM_RUNS is the number of schedules of each mode; SHED_SIM_SEED runs
 * only one seed, SHED_SIM_MODE only one mode. */

#include <stdio.h>
#include <string.h>

#include "sim/lock_sim.h"
#include "support/testing.h"

#define RUNS 2400 /* of each of the modes; some mutations need 1200 */

#define BIT(algorithm) (1U << (algorithm))
#define TOKENS (BIT(SIM_LEASE) | BIT(SIM_FAIR))
#define SINGLE (TOKENS | BIT(SIM_SETNX) | BIT(SIM_EXPIRE) | BIT(SIM_TIMESTAMP))
#define QUORUM BIT(SIM_QUORUM)

/* A mode is what it sets of struct sim_mode, the rest being 0. */
static const struct {
    const char *name;
    unsigned algorithms;
    const char *fields;
} modes[] = {
    {"calm", SINGLE,
     "calls 10, latency_ms 3, link_pct 50, no_push_pct 30, "
     "push_twice_pct 10, extend_pct 20, advance_pct 5, drift_pm 9, "
     "closes 1, is_calm"},
    {"calm-quorum", QUORUM,
     "calls 6, latency_ms 1, no_push_pct 30, push_twice_pct 10, "
     "extend_pct 20, advance_pct 5, drift_pm 9, closes 1, twins_pct 10, "
     "is_calm"},
    {"prompt", TOKENS | BIT(SIM_SETNX) | BIT(SIM_EXPIRE),
     "calls 10, latency_ms 2, link_pct 50, hold_ms 20, is_calm, is_prompt"},
    {"crowd", BIT(SIM_LEASE),
     "calls 4, latency_ms 1, link_pct 70, extend_pct 50, hold_ms 2, "
     "push_late_ms 1, is_calm, is_crowd"},
    /* by somebody else */
    {"removed", BIT(SIM_LEASE),
     "calls 10, latency_ms 2, link_pct 30, hold_ms 200, flushes 3, "
     "breaks_numbers, breaks_exclusion, is_prompt"},
    /* they keep acquires waiting */
    {"advances", TOKENS, "calls 10, latency_ms 8, advance_pct 80, is_calm"},
    /* each hold ends by its lease, without a release */
    {"leases", TOKENS | BIT(SIM_EXPIRE) | BIT(SIM_TIMESTAMP),
     "calls 5, latency_ms 2, link_pct 50, no_push_pct 100, "
     "forgotten_pct 100, drift_pm 9, is_calm, is_prompt"},
    {"outage", BIT(SIM_SETNX) | TOKENS,
     "calls 60, latency_ms 1, link_pct 30, no_push_pct 20, processes 1, "
     "outage_ms 250"},
    /* renewals come too late to write a record again */
    {"sessions", TOKENS,
     "calls 25, latency_ms 5, link_pct 100, cuts 6, restarts 2, "
     "lease_ms 4000, hold_ms 200"},
    {"network", SINGLE,
     "calls 10, latency_ms 5, link_pct 50, no_push_pct 30, "
     "push_lost_pct 20, push_twice_pct 20, twice_pct 20, lost_pct 10, "
     "extend_pct 20, advance_pct 5, drift_pm 9, cuts 3, closes 1"},
    {"network-quorum", QUORUM,
     "calls 6, latency_ms 3, no_push_pct 30, push_lost_pct 20, "
     "push_twice_pct 20, lost_pct 5, extend_pct 20, advance_pct 5, "
     "drift_pm 9, cuts 6, closes 1"},
    {"half-taken", BIT(SIM_EXPIRE) | BIT(SIM_TIMESTAMP),
     "calls 14, latency_ms 6, no_push_pct 30, hold_ms 60, kills 4, is_quick"},
    {"processes", SINGLE,
     "calls 10, latency_ms 3, link_pct 50, no_push_pct 20, extend_pct 20, "
     "forgotten_pct 10, drift_pm 9, kills 2, stalls 3, closes 1"},
    {"processes-quorum", QUORUM,
     "calls 6, latency_ms 2, no_push_pct 20, extend_pct 20, "
     "forgotten_pct 10, drift_pm 9, kills 2, stalls 3, closes 1"},
    {"servers", SINGLE,
     "calls 10, latency_ms 3, link_pct 50, no_push_pct 20, extend_pct 20, "
     "drift_pm 9, restarts 2, freezes 3, closes 1"},
    {"servers-quorum", QUORUM,
     "calls 6, latency_ms 2, no_push_pct 20, extend_pct 20, drift_pm 9, "
     "restarts 3, wipes 3, freezes 6, closes 1"},
    /* INFO is not answered at first */
    {"ageless", QUORUM,
     "calls 8, latency_ms 2, no_push_pct 20, extend_pct 20, drift_pm 9, "
     "wipes 4, cuts 3, ageless_pct 50"},
    {"wiped", SINGLE,
     "calls 10, latency_ms 3, link_pct 50, no_push_pct 20, drift_pm 9, "
     "restarts 1, wipes 2, breaks_exclusion"},
    {"clocks", SINGLE | QUORUM,
     "calls 8, latency_ms 2, link_pct 50, no_push_pct 20, extend_pct 20, "
     "drift_pm 30, skew_ms 2000, restarts 2, jumps 3, breaks_exclusion"},
    {"holds", TOKENS | QUORUM,
     "calls 4, latency_ms 2, link_pct 50, extend_pct 60, forgotten_pct 20, "
     "cuts 3, drift_pm 9"},
    /* while it waits, asks, and is granted */
    {"cancelled", SINGLE & ~BIT(SIM_TIMESTAMP),
     "calls 16, latency_ms 4, link_pct 30, no_push_pct 20, cancel_pct 50, "
     "hold_ms 60, cuts 2, closes 2"},
    {"cancelled-quorum", QUORUM,
     "calls 10, latency_ms 3, cancel_pct 50, hold_ms 60, cuts 2, closes 2"},
    /* what is extended may end sooner than before */
    {"extended", SINGLE | QUORUM,
     "calls 6, latency_ms 5, lost_pct 5, extend_pct 90, hold_ms 60, stalls 4"},
    {"closing", SINGLE | QUORUM,
     "calls 8, latency_ms 3, link_pct 30, no_push_pct 20, lost_pct 5, "
     "cuts 3, freezes 2, closes 6"},
    {"all", SINGLE,
     "calls 10, latency_ms 5, link_pct 50, no_push_pct 20, "
     "push_lost_pct 20, push_twice_pct 20, twice_pct 10, lost_pct 5, "
     "extend_pct 20, advance_pct 5, forgotten_pct 5, drift_pm 9, cuts 2, "
     "kills 1, stalls 2, restarts 1, freezes 2, closes 1"},
    {"all-quorum", QUORUM,
     "calls 6, latency_ms 2, no_push_pct 20, push_lost_pct 20, "
     "push_twice_pct 20, lost_pct 3, extend_pct 20, advance_pct 5, "
     "forgotten_pct 5, drift_pm 9, cuts 3, kills 1, stalls 2, restarts 2, "
     "wipes 2, freezes 3, closes 1"},
};

#define FIELD(name)                                                            \
    {                                                                          \
#name, offsetof(struct sim_mode, name)                                 \
    }

static const struct {
    const char *name;
    size_t at;
} fields[] = {
    FIELD(calls),          FIELD(latency_ms),
    FIELD(link_pct),       FIELD(no_push_pct),
    FIELD(push_lost_pct),  FIELD(push_twice_pct),
    FIELD(twice_pct),      FIELD(lost_pct),
    FIELD(cuts),           FIELD(kills),
    FIELD(stalls),         FIELD(restarts),
    FIELD(wipes),          FIELD(freezes),
    FIELD(flushes),        FIELD(jumps),
    FIELD(closes),         FIELD(extend_pct),
    FIELD(advance_pct),    FIELD(forgotten_pct),
    FIELD(cancel_pct),     FIELD(ageless_pct),
    FIELD(twins_pct),      FIELD(processes),
    FIELD(lease_ms),       FIELD(push_late_ms),
    FIELD(outage_ms),      FIELD(hold_ms),
    FIELD(drift_pm),       FIELD(skew_ms),
    FIELD(is_calm),        FIELD(is_quick),
    FIELD(is_crowd),       FIELD(breaks_exclusion),
    FIELD(breaks_numbers), FIELD(is_prompt),
};

/* "NAME NUMBER", or "NAME": 1. */
static void set_field(struct sim_mode *mode, const char *text)
{
    char name[32];
    unsigned number = 1;

    ck_assert_int_ge(sscanf(text, "%31[a-z_] %u", name, &number), 1);
    for (size_t i = 0; i < COUNT_OF(fields); i++)
        if (strcmp(name, fields[i].name) == 0) {
            memcpy((char *)mode + fields[i].at, &number, sizeof(number));
            return;
        }
    ck_abort_msg("a mode has no %s", name);
}

TEST_EACH(every_schedule_keeps_what_is_promised, 0, COUNT_OF(modes))
{
    struct sim_mode mode = {.name = modes[_i].name,
                            .algorithms = modes[_i].algorithms};

    for (const char *at = modes[_i].fields; *at != '\0';) {
        set_field(&mode, at);
        at += strcspn(at, ",");
        at += strspn(at, ", ");
    }
    sim_run_mode(&mode, RUNS);
}

int main(void)
{
    tcase_set_timeout(test_case(), 0); /* ctest has one */
    return run_tests("lock sim");
}
