/* When the soak takes loads for too many, on a made-up clock. */
#include "soak/fleet.h"
#include "support/testing.h"

enum { SLOT_MS = 100, EVENT_MS = 50, STALL_MS = 1000, MANY = SOAK_FLEET_LOADS };

static struct soak_fleet fleet;
static struct soak_watch watch;

static void set_up(void)
{
    fleet = (struct soak_fleet){
        .slot_ms = SLOT_MS, .event_ms = EVENT_MS, .stall_ms = STALL_MS};
    watch = (struct soak_watch){0};
    soak_fleet_calm(&fleet, 1000);
}

/* Look twice, after which all processes have told what they did. */
static unsigned look(unsigned loads, uint64_t age_ms, uint64_t now_ms)
{
    ck_assert_uint_eq(soak_fleet_look(&fleet, &watch, loads, age_ms, now_ms),
                      0);
    return soak_fleet_look(&fleet, &watch, 0, 0, now_ms + EVENT_MS);
}

TEST(more_than_allowed_are_a_finding_once)
{
    ck_assert_uint_eq(look(MANY, 10, 2000), 0);
    ck_assert_uint_eq(look(MANY + 1, 10, 2100), MANY + 1);
    ck_assert_uint_eq(fleet.bound_most, MANY + 1);
    ck_assert_uint_eq(look(0, 0, 2200), 0);
}

TEST(loads_that_redis_may_have_forgotten_are_no_finding)
{
    ck_assert_uint_eq(look(MANY + 1, 10, 1000 + SLOT_MS + 10), 0);
    ck_assert_uint_eq(look(MANY + 1, 10, 1000 + SLOT_MS + 11), MANY + 1);
    soak_fleet_trouble(&fleet);
    ck_assert_uint_eq(look(MANY + 1, 10, 2000), 0);
    ck_assert_uint_eq(fleet.most, MANY + 1);
}

TEST(nor_are_those_of_a_process_without_slots)
{
    soak_fleet_tell(&fleet, 1, true, 1500);
    ck_assert_uint_eq(look(MANY + 1, 10, 2000), 0);
    soak_fleet_tell(&fleet, 1, false, 2100);
    ck_assert_uint_eq(look(MANY + 1, 10, 2100 + SLOT_MS + 10), 0);
    ck_assert_uint_eq(look(MANY + 1, 10, 2100 + SLOT_MS + 80), MANY + 1);
}

TEST(a_process_may_tell_it_a_little_later)
{
    ck_assert_uint_eq(soak_fleet_look(&fleet, &watch, MANY + 1, 10, 2000), 0);
    soak_fleet_tell(&fleet, 1, true, 2001);
    ck_assert_uint_eq(soak_fleet_look(&fleet, &watch, 0, 0, 2000 + EVENT_MS),
                      0);
    ck_assert_uint_eq(fleet.bound_most, 0);
}

TEST(a_machine_that_stopped_explains_it)
{
    ck_assert_uint_eq(look(0, 0, 2000), 0);
    ck_assert_uint_eq(look(MANY + 1, 10, 2000 + EVENT_MS + STALL_MS + 1), 0);
}

int main(void)
{
    tcase_add_checked_fixture(test_case(), set_up, NULL);
    return run_tests("soak_fleet");
}
