/* A hundred thousand schedules of locks, a mode after the other. SHED_SIM_RUNS
 * is how many of each mode, SHED_SIM_SEED one seed to be run alone,
 * SHED_SIM_MODE one mode. */
#include <stdlib.h>
#include <string.h>

#include "lock_sim.h"
#include "testing.h"

#define RUNS 6300 /* of each of the modes */

#define BIT(algorithm) (1U << (algorithm))
#define TOKENS (BIT(SIM_LEASE) | BIT(SIM_FAIR))
#define SINGLE (TOKENS | BIT(SIM_SETNX) | BIT(SIM_EXPIRE) | BIT(SIM_TIMESTAMP))
#define QUORUM BIT(SIM_QUORUM)

static const struct sim_mode modes[] = {
    {.name = "calm",
     .algorithms = SINGLE,
     .calls = 10,
     .latency_ms = 3,
     .short_pct = 50,
     .no_push_pct = 30,
     .push_twice_pct = 10,
     .extend_pct = 20,
     .advance_pct = 5,
     .drift_pm = 5,
     .closes = 1,
     .is_calm = true},
    {.name = "calm-quorum",
     .algorithms = QUORUM,
     .calls = 6,
     .latency_ms = 1,
     .no_push_pct = 30,
     .push_twice_pct = 10,
     .extend_pct = 20,
     .advance_pct = 5,
     .drift_pm = 5,
     .closes = 1,
     .twins_pct = 10,
     .is_calm = true},
    {.name = "prompt",
     .algorithms = TOKENS | BIT(SIM_SETNX) | BIT(SIM_EXPIRE),
     .calls = 10,
     .latency_ms = 2,
     .short_pct = 50,
     .hold_ms = 20,
     .is_calm = true,
     .is_prompt = true},
    {.name = "crowd",
     .algorithms = BIT(SIM_LEASE),
     .calls = 4,
     .latency_ms = 1,
     .short_pct = 100,
     .hold_ms = 2,
     .is_calm = true,
     .is_crowd = true},
    {.name = "network",
     .algorithms = SINGLE,
     .calls = 10,
     .latency_ms = 5,
     .short_pct = 50,
     .no_push_pct = 30,
     .push_lost_pct = 20,
     .push_twice_pct = 20,
     .twice_pct = 20,
     .lost_pct = 10,
     .extend_pct = 20,
     .advance_pct = 5,
     .drift_pm = 5,
     .cuts = 3,
     .closes = 1},
    {.name = "network-quorum",
     .algorithms = QUORUM,
     .calls = 6,
     .latency_ms = 3,
     .no_push_pct = 30,
     .push_lost_pct = 20,
     .push_twice_pct = 20,
     .lost_pct = 5,
     .extend_pct = 20,
     .advance_pct = 5,
     .drift_pm = 5,
     .cuts = 6,
     .closes = 1},
    {.name = "processes",
     .algorithms = SINGLE,
     .calls = 10,
     .latency_ms = 3,
     .short_pct = 50,
     .no_push_pct = 20,
     .extend_pct = 20,
     .forgotten_pct = 10,
     .drift_pm = 5,
     .kills = 2,
     .stalls = 3,
     .closes = 1},
    {.name = "processes-quorum",
     .algorithms = QUORUM,
     .calls = 6,
     .latency_ms = 2,
     .no_push_pct = 20,
     .extend_pct = 20,
     .forgotten_pct = 10,
     .drift_pm = 5,
     .kills = 2,
     .stalls = 3,
     .closes = 1},
    {.name = "servers",
     .algorithms = SINGLE,
     .calls = 10,
     .latency_ms = 3,
     .short_pct = 50,
     .no_push_pct = 20,
     .extend_pct = 20,
     .drift_pm = 5,
     .restarts = 2,
     .freezes = 3,
     .closes = 1},
    {.name = "servers-quorum",
     .algorithms = QUORUM,
     .calls = 6,
     .latency_ms = 2,
     .no_push_pct = 20,
     .extend_pct = 20,
     .drift_pm = 5,
     .restarts = 3,
     .wipes = 3,
     .freezes = 6,
     .closes = 1},
    {.name = "wiped",
     .algorithms = SINGLE,
     .calls = 10,
     .latency_ms = 3,
     .short_pct = 50,
     .no_push_pct = 20,
     .drift_pm = 5,
     .restarts = 1,
     .wipes = 2,
     .breaks_exclusion = true},
    {.name = "clocks",
     .algorithms = SINGLE | QUORUM,
     .calls = 8,
     .latency_ms = 2,
     .short_pct = 50,
     .no_push_pct = 20,
     .extend_pct = 20,
     .drift_pm = 30,
     .skew_ms = 2000,
     .jumps = 3,
     .breaks_exclusion = true},
    {.name = "holds",
     .algorithms = TOKENS | QUORUM,
     .calls = 4,
     .latency_ms = 2,
     .short_pct = 50,
     .extend_pct = 60,
     .forgotten_pct = 20,
     .cuts = 3,
     .drift_pm = 5},
    {.name = "closing",
     .algorithms = SINGLE | QUORUM,
     .calls = 8,
     .latency_ms = 3,
     .short_pct = 30,
     .no_push_pct = 20,
     .lost_pct = 5,
     .cuts = 3,
     .freezes = 2,
     .closes = 6},
    {.name = "all",
     .algorithms = SINGLE,
     .calls = 10,
     .latency_ms = 5,
     .short_pct = 50,
     .no_push_pct = 20,
     .push_lost_pct = 20,
     .push_twice_pct = 20,
     .twice_pct = 10,
     .lost_pct = 5,
     .extend_pct = 20,
     .advance_pct = 5,
     .forgotten_pct = 5,
     .drift_pm = 5,
     .cuts = 2,
     .kills = 1,
     .stalls = 2,
     .restarts = 1,
     .freezes = 2,
     .closes = 1},
    {.name = "all-quorum",
     .algorithms = QUORUM,
     .calls = 6,
     .latency_ms = 2,
     .no_push_pct = 20,
     .push_lost_pct = 20,
     .push_twice_pct = 20,
     .lost_pct = 3,
     .extend_pct = 20,
     .advance_pct = 5,
     .forgotten_pct = 5,
     .drift_pm = 5,
     .cuts = 3,
     .kills = 1,
     .stalls = 2,
     .restarts = 2,
     .wipes = 2,
     .freezes = 3,
     .closes = 1},
};

static uint64_t number_of(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);

    return text != NULL ? strtoull(text, NULL, 10) : otherwise;
}

START_TEST(every_schedule_keeps_what_is_promised)
{
    static struct sim sim;
    const struct sim_mode *mode = &modes[_i];
    const char *only = getenv("SHED_SIM_MODE");
    uint64_t first = number_of("SHED_SIM_SEED", 1);
    uint64_t runs =
        getenv("SHED_SIM_SEED") != NULL ? 1 : number_of("SHED_SIM_RUNS", RUNS);

    if (only != NULL && strcmp(only, mode->name) != 0)
        return;
    for (uint64_t seed = first; seed < first + runs; seed++)
        sim_run(&sim, mode, seed);
}
END_TEST

int main(void)
{
    TCase *tc = tcase_create("sim");

    tcase_set_timeout(tc, 0); /* ctest has one */
    tcase_add_loop_test(tc, every_schedule_keeps_what_is_promised, 0,
                        (int)(sizeof(modes) / sizeof(*modes)));
    return run_tests("lock sim", tc);
}
