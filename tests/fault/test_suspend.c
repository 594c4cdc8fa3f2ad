/* A machine that was suspended: CLOCK_BOOTTIME has counted the time, and
 * CLOCK_MONOTONIC, by which threads and libuv sleep, has not. And one whose
 * wall clock was set. */
#include <time.h>

#include "support/fixture.h"
#include "support/lock_fixture.h"

/* Linked with --wrap: the machine can have been suspended, its clock set. */
WRAPPED(clock_gettime);

static atomic_long suspended_s, set_s;

int __wrap_clock_gettime(clockid_t clock, struct timespec *now)
{
    int status = __real_clock_gettime(clock, now);

    if (clock != CLOCK_MONOTONIC)
        now->tv_sec += atomic_load(&suspended_s);
    if (clock == CLOCK_REALTIME)
        now->tv_sec += atomic_load(&set_s);
    return status;
}

static void suspend_for(uint64_t ms)
{
    enum { MS_PER_S = 1000 };

    atomic_fetch_add(&suspended_s, (long)(ms / MS_PER_S));
}

#define LEASE_MS PLENTY_MS

/* Redis, on another machine, has given the lock to somebody else. */
TEST(a_hold_is_over_when_its_lease_ended_during_a_suspension)
{
    struct shed_lock_options o = options_of(SHED_LOCK_LEASE);
    struct shed_client *client, *other;
    struct shed_lock *mine, *next;

    server_up();
    client = open_client(&server, SHED_WAIT_AUTO);
    other = open_client(&server, SHED_WAIT_AUTO);
    o.lease_ms = LEASE_MS;
    mine = open_kept(client, &o);
    next = open_kept(other, &o);
    acquire(mine, 0);
    ck_assert_int_eq(shed_lock_is_mine(mine), 1);
    suspend_for(2 * LEASE_MS);
    server_do(&server, "DEL " LEASE_KEY);
    ck_assert_int_eq(shed_lock_is_mine(mine), 0);
    ck_assert_uint_eq(shed_lock_remaining_ms(mine), 0);
    acquire(next, PLENTY_MS);
    EXPECT_CODE(shed_lock_release(mine, NULL), SHED_ELOST);
    ck_assert_int_eq(shed_lock_is_mine(next), 1);
    release(next);
    server_down();
}

TEST(a_call_whose_time_ended_during_a_suspension_ends)
{
    struct getter getter = {0};

    fixture_up(&fixture);
    table_hold(&fixture.table);
    getter.timeout_ms = PLENTY_MS;
    getter_start(&getter, fixture.cache, "k");
    WAIT_FOR(table_running(&fixture.table) == 1);
    suspend_for(2 * PLENTY_MS);
    getter_join(&getter);
    EXPECT_CODE(getter.code, SHED_ETIMEDOUT);
    table_release(&fixture.table);
    WAIT_FOR(table_running(&fixture.table) == 0);
    expect_text(fixture.cache, "other", "other@1");
    fixture_down(&fixture);
}

/* The row and the lease end before the time by which the clock is set. */
TEST(a_wall_clock_that_is_set_changes_nothing)
{
    enum { HOUR_S = 3600 };
    static const long steps_s[] = {HOUR_S, -2 * HOUR_S, HOUR_S};
    struct shed_lock_options o = SHED_LOCK_OPTIONS_INIT;
    struct shed_lock *lock;

    fixture_init(&fixture);
    fixture.cache_options.ttl_ms = LEASE_MS;
    fixture.source_options.adaptive_loads = 1;
    fixture_open(&fixture);
    o.lease_ms = LEASE_MS;
    o.watchdog_ms = 0;
    EXPECT_OK(shed_lock_open(fixture.client, shed_str("l"), &o, &lock, NULL));
    acquire(lock, 0);
    expect_text(fixture.cache, "k", "k@1");
    for (size_t i = 0; i < sizeof(steps_s) / sizeof(*steps_s); i++) {
        const char *keys[] = {"a", "b", "c"}, *rows[] = {"a@1", "b@1", "c@1"};
        atomic_fetch_add(&set_s, steps_s[i]);
        ck_assert_int_eq(shed_lock_is_mine(lock), 1);
        ck_assert_uint_gt(shed_lock_remaining_ms(lock), 0);
        ck_assert_uint_le(shed_lock_remaining_ms(lock), LEASE_MS);
        expect_origin(fixture.cache, "k", "k@1", SHED_ORIGIN_REDIS);
        expect_origin(fixture.cache, keys[i], rows[i], SHED_ORIGIN_LOAD);
        expect_origin(fixture.cache, keys[i], rows[i], SHED_ORIGIN_REDIS);
        EXPECT_OK(shed_lock_extend(lock, 0, NULL));
    }
    release(lock);
    shed_lock_close(lock);
    fixture_down(&fixture);
}

int main(void)
{
    return run_tests("suspend");
}
