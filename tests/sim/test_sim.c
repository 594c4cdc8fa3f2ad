/* Thousands of schedules, one mode after the other. SHED_SIM_RUNS is the number
 * of schedules of each mode; SHED_SIM_SEED runs only one seed, SHED_SIM_MODE
 * only one mode. */
#include <stdlib.h>
#include <string.h>

#include "sim/sim_world.h"
#include "support/testing.h"

#define RUNS 10000
#define REFRESH_PART 10 /* schedules with refreshes run a tenth as often */
#define LONG_TTL_MS 100000

/* Some of everything that can go wrong. */
#define ALL_FAULTS                                                             \
    .lost_pct = 15, .late_pct = 30, .no_push_pct = 20, .twice_pct = 20,        \
    .slow_pct = 20, .overdue_pct = 5, .fail_pct = 10, .refuse_pct = 5,         \
    .leave_pct = 10, .kills = 5, .stalls = 5, .epochs = 5, .downs = 3,         \
    .fulls = 3, .flushes = 2, .jumps = 2, .corruptions = 3, .foreigners = 2

static const struct sim_mode modes[] = {
    {.name = "calm",
     .calls = 60,
     .latency_ms = 5,
     .ttl_ms = 500,
     .slow_pct = 20,
     .leave_pct = 5,
     .is_strict = true},
    {.name = "prompt",
     .calls = 60,
     .latency_ms = 10,
     .ttl_ms = LONG_TTL_MS,
     .slow_pct = 20,
     .twice_pct = 20,
     .is_strict = true,
     .is_prompt = true},
    {.name = "looks", /* loads end before a waiter with pushes polls */
     .calls = 80,
     .latency_ms = 3,
     .ttl_ms = 300,
     .fixed_load_ms = 10,
     .is_strict = true,
     .looks_max = 3},
    {.name = "polls", /* looks only, when loads are likely to end */
     .calls = 120,
     .latency_ms = 1,
     .ttl_ms = 300,
     .fixed_load_ms = 50,
     .fixed_lease_ms = 20000,
     .no_pushes = true,
     .told_max_ms = 13,
     .is_strict = true},
    {.name = "polls-slow",
     .calls = 120,
     .latency_ms = 5,
     .ttl_ms = 300,
     .slow_pct = 20,
     .fixed_lease_ms = 1000,
     .no_pushes = true,
     .is_strict = true},
    {.name = "writers",
     .calls = 80,
     .writes = 40,
     .latency_ms = 20,
     .ttl_ms = 500,
     .slow_pct = 20,
     .twice_pct = 10,
     .leave_pct = 5,
     .is_strict = true},
    {.name = "network",
     .calls = 80,
     .writes = 20,
     .latency_ms = 20,
     .ttl_ms = 500,
     .lost_pct = 20,
     .late_pct = 30,
     .no_push_pct = 30,
     .twice_pct = 20,
     .slow_pct = 20,
     .epochs = 6},
    {.name = "replies",
     .calls = 60,
     .latency_ms = 5,
     .ttl_ms = 500,
     .lost_pct = 15,
     .fixed_load_ms = 30,
     .fixed_lease_ms = 20000,
     .answer_max_ms = 3000},
    {.name = "processes",
     .calls = 80,
     .writes = 20,
     .latency_ms = 10,
     .ttl_ms = 500,
     .slow_pct = 20,
     .overdue_pct = 10,
     .fail_pct = 20,
     .refuse_pct = 10,
     .leave_pct = 10,
     .kills = 6,
     .stalls = 8},
    {.name = "store",
     .calls = 80,
     .writes = 20,
     .latency_ms = 10,
     .ttl_ms = 500,
     .lost_pct = 5,
     .downs = 4,
     .fulls = 4,
     .flushes = 4,
     .corruptions = 6,
     .foreigners = 4},
    {.name = "clocks",
     .calls = 80,
     .writes = 20,
     .latency_ms = 10,
     .ttl_ms = 500,
     .lost_pct = 5,
     .kills = 3,
     .stalls = 4,
     .jumps = 6},
    {.name = "all",
     .calls = 100,
     .writes = 30,
     .latency_ms = 30,
     .ttl_ms = 500,
     ALL_FAULTS},
    {.name = "failing",
     .calls = 100,
     .latency_ms = 5,
     .ttl_ms = LONG_TTL_MS,
     .fail_pct = 100,
     .fixed_load_ms = 50,
     .is_burst = true,
     .is_strict = true},
    {.name = "failing-polls",
     .calls = 100,
     .latency_ms = 5,
     .ttl_ms = LONG_TTL_MS,
     .fail_pct = 100,
     .fixed_load_ms = 800,
     .fixed_lease_ms = 2000,
     .no_pushes = true,
     .is_burst = true,
     .is_strict = true},
    {.name = "refresh", /* one load per refresh, and nobody waits for it */
     .calls = 300,
     .latency_ms = 5,
     .ttl_ms = 400,
     .refresh_pct = 50,
     .stale_ms = 1500,
     .fixed_load_ms = 30,
     .served_max_ms = 1000,
     .is_never_late = true,
     .is_strict = true},
    {.name = "refresh-writers",
     .calls = 250,
     .writes = 40,
     .latency_ms = 20,
     .ttl_ms = 300,
     .expire_pct = 50,
     .refresh_pct = 50,
     .stale_ms = 500,
     .slow_pct = 20,
     .twice_pct = 10,
     .leave_pct = 5,
     .is_strict = true},
    {.name = "refresh-killed",
     .calls = 300,
     .latency_ms = 5,
     .ttl_ms = 300,
     .refresh_pct = 50,
     .stale_ms = 6000,
     .fixed_load_ms = 30,
     .served_max_ms = 2200,
     .is_never_late = true,
     .lost_pct = 5,
     .kills = 8},
    {.name = "refresh-all",
     .calls = 250,
     .writes = 30,
     .latency_ms = 20,
     .ttl_ms = 300,
     .expire_pct = 50,
     .refresh_pct = 50,
     .stale_ms = 400,
     ALL_FAULTS},
    {.name = "killed",
     .calls = 40,
     .latency_ms = 5,
     .ttl_ms = LONG_TTL_MS,
     .fixed_load_ms = 2000,
     .fixed_lease_ms = 10000,
     .is_burst = true,
     .is_holder_killed = true},
    {.name = "killed-silently",
     .calls = 40,
     .latency_ms = 5,
     .ttl_ms = LONG_TTL_MS,
     .fixed_load_ms = 400,
     .fixed_lease_ms = 1000,
     .is_burst = true,
     .no_channels = true,
     .is_holder_killed = true},
};

START_TEST(every_schedule_keeps_what_is_promised)
{
    static struct sim sim;
    const struct sim_mode *mode = &modes[_i];
    const char *only = getenv("SHED_SIM_MODE");
    uint64_t first = number_in("SHED_SIM_SEED", 1);
    unsigned part = mode->refresh_pct > 0 ? REFRESH_PART : 1;
    uint64_t runs = getenv("SHED_SIM_SEED") != NULL
                        ? 1
                        : number_in("SHED_SIM_RUNS", RUNS / part);

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
    return run_tests("sim", tc);
}
