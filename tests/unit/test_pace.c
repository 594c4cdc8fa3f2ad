/* pace: when a waiter looks, for loads that are all alike, of two kinds, spread
 * out, or suddenly slower. wait_for() simulates one waiter until a load ends.
 */
#include "flight/pace.h"

#include "support/testing.h"

#define LOOP_MS 10
#define LOADS 32 /* enough to learn from */

static struct shed_pace pace;
static uint64_t seed;

static uint64_t draw(void)
{
    return seed = seed * 6364136223846793005u + 1442695040888963407u;
}

/* The outcome of a wait for a load. */
struct outcome {
    unsigned looks; /* including the first, and the one that finds the value */
    uint64_t late_ms;
};

/* Await a load of load_ms that was begun age_ms before the first look. */
static struct outcome wait_for(uint64_t load_ms, uint64_t age_ms)
{
    struct shed_pace_wait wait = {.age_ms = age_ms, .looks = 1};

    while (wait.age_ms < load_ms) {
        uint64_t delay = shed_pace_look_ms(&pace, &wait, draw() >> 32);

        ck_assert_uint_ge(delay, 1);
        ck_assert_uint_le(delay, SHED_PACE_LONGEST_MS);
        wait.age_ms += delay;
        wait.waited_ms += delay;
        ck_assert_uint_le(wait.looks, (wait.waited_ms + 5) / LOOP_MS);
        wait.looks++;
    }
    return (struct outcome){wait.looks, wait.age_ms - load_ms};
}

/* How many times such a loop looks, including the first and the last time. */
static unsigned looks_of_loop(uint64_t load_ms, uint64_t age_ms)
{
    return 1 + (unsigned)((load_ms - age_ms + LOOP_MS - 1) / LOOP_MS);
}

static void learn(uint64_t from_ms, uint64_t to_ms)
{
    pace = (struct shed_pace){0};
    for (unsigned i = 0; i < LOADS; i++)
        shed_pace_note(&pace, from_ms + draw() % (to_ms - from_ms + 1));
}

TEST(a_load_like_the_last_ones_is_met_by_one_look)
{
    learn(50, 50);
    for (uint64_t age = 0; age < 50; age++) {
        struct outcome o = wait_for(50, age);

        ck_assert_uint_eq(o.looks, 2);
        ck_assert_uint_le(o.late_ms, age < 45 ? 2 : 4);
    }
}

TEST(a_load_that_may_end_at_any_time_is_looked_for_every_10_ms)
{
    pace = (struct shed_pace){0};
    for (unsigned i = 0; i < LOADS; i++)
        shed_pace_note(&pace, i % 2 == 0 ? 30 : 70);
    for (uint64_t load = 35; load < 40; load++) {
        ck_assert_uint_le(wait_for(load, 0).late_ms, LOOP_MS);
        ck_assert_uint_le(wait_for(load, 0).looks, looks_of_loop(load, 0) + 1);
    }
}

/* Compare with the loop: a waiter is late in at most late_pct of the waits, and
 * looks at most this many times more than the loop for each. */
static void compare(uint64_t from_ms, uint64_t to_ms, double more,
                    unsigned late_pct)
{
    unsigned looks = 0, loop = 0, late = 0, waits = 2000;

    learn(from_ms, to_ms);
    for (unsigned i = 0; i < waits; i++) {
        uint64_t load = from_ms + draw() % (to_ms - from_ms + 1);
        uint64_t age = draw() % load;
        struct outcome o = wait_for(load, age);

        shed_pace_note(&pace, load);
        looks += o.looks;
        loop += looks_of_loop(load, age);
        late += o.late_ms > LOOP_MS;
    }
    ck_assert_double_le(looks, loop + more * waits);
    ck_assert_uint_le(late, waits / 100 * late_pct);
}

TEST(a_waiter_is_seldom_late_and_looks_less_than_a_loop)
{
    compare(48, 52, -1.5, 1);
    compare(40, 60, -0.5, 1);
    compare(15, 100, 0.5, 10);
}

TEST(a_slower_load_is_looked_for_soon_and_then_in_proportion)
{
    learn(50, 50);
    for (uint64_t load = 51; load < 3000; load += 7) {
        struct outcome o = wait_for(load, 0);

        ck_assert_uint_le(o.late_ms, (load - 50) / 4 + LOOP_MS);
        ck_assert_uint_le(o.looks, looks_of_loop(load, 0) + 1);
        if (load > 1000)
            ck_assert_uint_le(o.looks, looks_of_loop(load, 0) / 2);
    }
}

TEST(a_load_of_which_nothing_is_known_is_looked_for_in_proportion)
{
    pace = (struct shed_pace){0};
    for (uint64_t load = 1; load < 3000; load += 7) {
        struct outcome o = wait_for(load, 0);

        ck_assert_uint_le(o.late_ms, load / 4 + LOOP_MS);
        ck_assert_uint_le(o.looks, looks_of_loop(load, 0) + 1);
    }
}

TEST(during_a_slow_load_there_is_a_look_every_100_ms)
{
    learn(5000, 5000);
    /* it fails long before it would have ended */
    for (uint64_t load = 1; load < 5000; load += 97)
        ck_assert_uint_lt(wait_for(load, 0).late_ms, SHED_PACE_LONGEST_MS);
    ck_assert_uint_le(wait_for(5000, 0).looks, 5000 / 50 + 1);
}

TEST(what_took_longer_before_is_forgotten)
{
    learn(400, 400);
    for (unsigned i = 0; i < LOADS; i++)
        shed_pace_note(&pace, 50);
    ck_assert_uint_le(wait_for(50, 0).late_ms, LOOP_MS);
}

TEST(times_without_bounds_do_not_overflow)
{
    learn(UINT64_MAX, UINT64_MAX);
    for (unsigned looks = 0; looks < 3; looks++) {
        const struct shed_pace_wait waits[] = {
            {0, 0, looks}, {UINT64_MAX, 0, looks}, {0, UINT64_MAX, looks}};

        for (size_t i = 0; i < 3; i++)
            ck_assert_uint_le(shed_pace_look_ms(&pace, &waits[i], UINT64_MAX),
                              SHED_PACE_LONGEST_MS);
    }
}

int main(void)
{
    return run_tests("pace");
}
