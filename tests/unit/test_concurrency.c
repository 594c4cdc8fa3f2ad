/* concurrency: the adaptive limit, over databases in virtual time. */
#include "source/concurrency.h"

#include <string.h>

#include "support/sim_database.h"
#include "support/testing.h"

enum { CEILING = 256 };

static struct sim_database db;

static size_t limit_now(void)
{
    return shed_concurrency_limit(&db.limits[0]);
}

/* -------------------------------------------------------------- the goodput */

/* Offer four times as many calls as the database can answer, each with a
 * deadline of ten load times. Returns: the calls answered in time, as a
 * fraction of what the database can answer. */
static double goodput_of(size_t fixed, double capacity, double thrash)
{
    const double run_s = 20, overload = 4;
    double per_s = capacity * 1e6 / 20000;

    sim_database_init(&db, CEILING);
    db.fixed = fixed;
    db.capacity = capacity;
    db.thrash = thrash;
    db.calls_per_s = overload * per_s;
    db.deadline_us = 10 * db.load_us;
    db.queue_limit = (size_t)capacity;
    sim_database_run(&db, 5); /* to settle */
    sim_database_run(&db, run_s);
    return (double)db.in_time / (per_s * run_s);
}

TEST(a_database_with_four_times_its_load_keeps_its_goodput)
{
    static const double capacities[] = {2, 8, 32};

    for (size_t i = 0; i < 3; i++) {
        double capacity = capacities[i];
        double steady = goodput_of(0, capacity, 0);
        double thrashing = goodput_of(0, capacity, 0.2);
        ck_assert_msg(steady >= 0.9, "capacity %.0f: %.3f", capacity, steady);
        ck_assert_msg(thrashing >= 0.8, "capacity %.0f, thrashing: %.3f",
                      capacity, thrashing);
        ck_assert_double_lt(goodput_of(CEILING, capacity, 0.2), 0.5);
    }
}

/* The same without deadlines: a load begins whenever the limit allows it. */
TEST(the_limit_settles_a_little_above_the_capacity)
{
    for (size_t capacity = 2; capacity <= 64; capacity *= 2) {
        sim_database_init(&db, CEILING);
        db.capacity = (double)capacity;
        sim_database_run(&db, 10);
        sim_database_run(&db, 10);
        ck_assert_msg(db.least_limit >= capacity * 3 / 4 &&
                          db.most_limit <= capacity * 2 + 2,
                      "capacity %zu: from %zu to %zu", capacity, db.least_limit,
                      db.most_limit);
    }
}

TEST(processes_that_share_a_database_do_not_drive_each_other_up)
{
    const double capacity = 16, run_s = 60;

    for (size_t n = 2; n <= SIM_PROCESSES_MAX; n *= 2) {
        double part;
        sim_database_init(&db, CEILING / 4);
        db.capacity = capacity;
        db.thrash = 0.2;
        db.processes = n;
        db.skew_ms = 3;
        sim_database_run(&db, run_s);
        sim_database_run(&db, run_s);
        part = (double)db.ended * db.load_us / 1e6 / capacity / run_s;
        ck_assert_msg(part > 0.8, "%zu processes: %.2f", n, part);
    }
}

TEST(it_falls_when_capacity_is_lost_and_recovers_when_it_is_back)
{
    sim_database_init(&db, CEILING);
    db.capacity = 32;
    sim_database_run(&db, 10);
    ck_assert_uint_ge(limit_now(), 24);
    db.capacity = 2;
    db.thrash = 0.1;
    sim_database_run(&db, 20);
    sim_database_run(&db, 20);
    ck_assert_uint_le(db.most_limit, 8);
    db.capacity = 32;
    sim_database_run(&db, 20);
    sim_database_run(&db, 20);
    ck_assert_uint_ge(db.least_limit, 24);
}

TEST(it_reaches_the_floor_and_leaves_it)
{
    sim_database_init(&db, CEILING);
    db.capacity = 1;
    db.thrash = 2;
    sim_database_run(&db, 10);
    sim_database_run(&db, 10);
    ck_assert_uint_eq(db.least_limit, 1);
    ck_assert_uint_le(db.most_limit, 2);
    db.capacity = 16;
    sim_database_run(&db, 10);
    ck_assert_uint_ge(limit_now(), 12);
}

/* -------------------------------------------------- what must not move it */

TEST(it_grows_to_the_ceiling_where_nothing_slows_down)
{
    sim_database_init(&db, 64);
    db.capacity = 1000;
    sim_database_run(&db, 5);
    ck_assert_uint_eq(limit_now(), 64);
    ck_assert_uint_le(db.most_alive, 64);
}

TEST(batches_of_any_size_do_not_lower_it)
{
    sim_database_init(&db, 32);
    db.capacity = 1000;
    db.load_us = 1000;
    db.key_us = 1000; /* a hundred keys take a hundred times as long */
    db.keys = 1;
    sim_database_run(&db, 5);
    for (size_t i = 0; i < 20; i++) {
        db.keys = i % 2 == 0 ? 100 : 1;
        sim_database_run(&db, 1);
        ck_assert_uint_eq(db.least_limit, 32);
    }
    db.keys = 0;
    sim_database_run(&db, 10);
    ck_assert_uint_eq(db.least_limit, 32);
}

TEST(an_overload_by_batches_of_any_size_lowers_it)
{
    sim_database_init(&db, CEILING);
    db.load_us = 5000;
    db.key_us = 200;
    db.keys = 0;
    sim_database_run(&db, 20);
    sim_database_run(&db, 20);
    ck_assert_uint_le(db.most_limit, 32);
    ck_assert_uint_ge(db.least_limit, 4);
}

TEST(a_slow_key_does_not_lower_it)
{
    sim_database_init(&db, 32);
    db.capacity = 1000;
    db.odd = 10;
    sim_database_run(&db, 5);
    sim_database_run(&db, 60);
    ck_assert_uint_eq(db.least_limit, 32);
}

TEST(a_database_that_is_slower_for_good_does_not_hold_it_down)
{
    sim_database_init(&db, 32);
    db.capacity = 1000;
    sim_database_run(&db, 10);
    ck_assert_uint_eq(limit_now(), 32);
    for (int i = 0; i < 4; i++) {
        db.load_us *= 3;
        sim_database_run(&db, 150);
        sim_database_run(&db, 20);
        ck_assert_uint_eq(db.least_limit, 32);
    }
    db.load_us /= 81;
    sim_database_run(&db, 60);
    sim_database_run(&db, 20);
    ck_assert_uint_eq(db.least_limit, 32);
}

TEST(it_stays_while_fewer_loads_are_alive_than_it_allows)
{
    sim_database_init(&db, CEILING);
    db.capacity = 20;
    sim_database_run(&db, 10);
    db.demand = (size_t)db.limits[0].limit - 5;
    sim_database_run(&db, 1); /* loads that had begun before */
    db.capacity = 4;
    sim_database_run(&db, 60);
    ck_assert_uint_eq(db.least_limit, db.most_limit);
    ck_assert(!db.limits[0].is_probing);
    ck_assert_uint_eq(db.most_alive, db.demand);
}

TEST(loads_that_fail_at_once_neither_raise_nor_lower_it)
{
    size_t before;

    sim_database_init(&db, CEILING);
    db.capacity = 16;
    sim_database_run(&db, 10);
    db.is_failing = true;
    sim_database_run(&db, 0.1); /* loads that had begun before */
    before = limit_now();
    sim_database_run(&db, 0.1);
    ck_assert_uint_eq(db.most_limit, before);
    ck_assert_uint_eq(db.least_limit, before);
    db.is_failing = false;
    sim_database_run(&db, 5);
    ck_assert_uint_ge(db.least_limit, 12);
    ck_assert_uint_le(db.most_limit, 34);
}

/* --------------------------------------------------------------- the probes */

TEST(probes_take_little_of_the_time)
{
    static const double loads_us[] = {500, 20000, 1000000};

    for (size_t i = 0; i < 3; i++) {
        const double run_s = 200;
        double share;
        sim_database_init(&db, 32);
        db.load_us = loads_us[i];
        sim_database_run(&db, 10);
        sim_database_run(&db, run_s);
        share = db.probing_us / run_s / 1e6;
        ck_assert_msg(share > 0 && share < 0.07, "%.0f us: %.3f", loads_us[i],
                      share);
    }
}

TEST(a_ceiling_of_one_is_one)
{
    sim_database_init(&db, 1);
    sim_database_run(&db, 30);
    ck_assert_uint_eq(db.most_limit, 1);
    ck_assert_uint_eq(db.least_limit, 1);
    ck_assert_uint_eq(db.most_alive, 1);
}

int main(void)
{
    return run_tests("concurrency");
}
