/* A lock whose acquire waits for replicas: what they have survives a failover,
 * and what they have not is given back. */
#include <stdio.h>
#include <string.h>

#include <snowshed/lock.h>

#include "base/clock.h"
#include "support/bare.h"
#include "support/lock_fixture.h"
#include "support/watched.h"

/* Of a client: for so long replicas are waited for. */
enum { TIMEOUT_MS = 600 };

static struct watched watched;
static struct shed_client *client, *other;

static struct shed_client *open_watched(void)
{
    struct shed_client_options o = bare_client();
    struct shed_client *opened;
    struct shed_error err;

    o.command_timeout_ms = TIMEOUT_MS;
    ck_assert_msg(shed_client_open(watched.uri, &o, &opened, &err) == SHED_OK,
                  "%s", err.reason);
    return opened;
}

static struct shed_lock *open_confirmed(struct shed_client *c,
                                        uint64_t replicas)
{
    struct shed_lock_options o = options_of(SHED_LOCK_LEASE);

    o.replicas = replicas;
    return open_kept(c, &o);
}

static void up(void)
{
    watched = (struct watched){0};
    watched_start(&watched);
    client = open_watched();
    other = open_watched();
}

static void down(void)
{
    close_client(client);
    close_client(other);
    watched_stop(&watched);
}

static long long has_lock(size_t i)
{
    return server_int(&watched.server[i], "EXISTS " LEASE_KEY);
}

static void each_replica(void (*act)(struct server *))
{
    act(&watched.server[1]);
    act(&watched.server[2]);
}

/* ---------------------------------------------------- with all replicas up */

TEST(what_is_acquired_is_on_all_of_them)
{
    struct shed_lock *lock = open_confirmed(client, 2);

    for (int i = 0; i < 20; i++) {
        struct outcome out = {0};
        if (i % 2 == 0)
            acquire(lock, PLENTY_MS);
        else {
            acquire_async(lock, PLENTY_MS, &out);
            expect_outcome(&out, SHED_OK);
        }
        ck_assert_int_eq(has_lock(1) + has_lock(2), 2);
        ck_assert_uint_gt(fence_of(lock), 0);
        release(lock);
    }
    server_do(&watched.server[0], "SCRIPT FLUSH");
    acquire(lock, PLENTY_MS);
    release(lock);
    ck_assert_int_eq(has_lock(0), 0);
}

/* One WAIT serves many locks. */
TEST(many_locks_wait_together)
{
    enum { LOCKS = 50 };
    struct shed_lock_options o = options_of(SHED_LOCK_LEASE);
    struct shed_lock *lock[LOCKS];
    struct outcome out[LOCKS];

    o.replicas = 2;
    memset(out, 0, sizeof(out));
    for (int i = 0; i < LOCKS; i++) {
        char name[16];
        snprintf(name, sizeof(name), "many%d", i);
        EXPECT_OK(shed_lock_open(client, shed_str(name), &o, &lock[i], NULL));
        acquire_async(lock[i], PLENTY_MS, &out[i]);
    }
    for (int i = 0; i < LOCKS; i++)
        expect_outcome(&out[i], SHED_OK);
    ck_assert_int_lt(server_calls(&watched.server[0], "wait"), LOCKS);
    for (int i = 0; i < LOCKS; i++)
        shed_lock_close(lock[i]);
}

/* ---------------------------------------------------- without some of them */

TEST(without_enough_of_them_nothing_is_left_behind)
{
    struct shed_lock *lock = open_confirmed(client, 2);
    struct shed_lock *rival = open_confirmed(other, 1);
    struct shed_error err;

    acquire(lock, PLENTY_MS); /* it is connected */
    release(lock);
    server_freeze(&watched.server[2]);
    EXPECT_CODE(shed_lock_acquire(lock, 0, &err), SHED_EREDIS);
    expect_reason(&err,
                  "2 replicas must acknowledge the lock, and 1 did within");
    ck_assert_int_eq(has_lock(0), 0);
    ck_assert(!shed_lock_is_mine(lock));
    acquire(rival, 0);
    release(rival);
    expect_acquire(open_confirmed(client, 3), 0, SHED_EREDIS);
    server_thaw(&watched.server[2]);
}

TEST(an_acquire_goes_on_trying_until_they_are_back)
{
    struct waiter waiter;
    struct shed_lock *lock = open_confirmed(client, 2);
    long long waits;

    each_replica(server_freeze);
    waiter_start(&waiter, lock, PLENTY_MS);
    WAIT_FOR((waits = server_calls(&watched.server[0], "wait")) > 0);
    ck_assert(!atomic_load(&waiter.has_ended));
    each_replica(server_thaw);
    waiter_join(&waiter);
    EXPECT_OK(waiter.code);
    EXPECT_OK(waiter.release_code);
}

/* The connection on which WAIT waits is used for nothing else. */
TEST(others_do_not_wait_meanwhile)
{
    struct shed_lock_options o = options_of(SHED_LOCK_LEASE);
    struct shed_lock *plain;
    struct outcome out = {0}, async = {0};
    uint64_t since_ms;

    EXPECT_OK(shed_lock_open(client, shed_str("plain"), &o, &plain, NULL));
    acquire(plain, PLENTY_MS);
    release(plain);
    each_replica(server_freeze);
    acquire_async(open_confirmed(client, 2), 0, &out);
    WAIT_FOR(server_clients(&watched.server[0], "cmd=wait") == 1);
    since_ms = shed_now_ms();
    acquire_async(plain, PLENTY_MS, &async); /* over the session */
    expect_outcome(&async, SHED_OK);
    release(plain);
    ck_assert_int_eq(out.calls, 0);
    ck_assert_uint_lt(shed_now_ms() - since_ms, TIMEOUT_MS);
    expect_outcome(&out, SHED_EREDIS);
    ck_assert_int_eq(has_lock(0), 0);
    each_replica(server_thaw);
    shed_lock_close(plain);
}

TEST(what_is_cancelled_meanwhile_is_given_back)
{
    struct shed_lock *lock = open_confirmed(client, 2);
    struct outcome out = {0};

    each_replica(server_freeze);
    acquire_async(lock, PLENTY_MS, &out);
    WAIT_FOR(server_clients(&watched.server[0], "cmd=wait") == 1);
    each_replica(server_thaw);
    (void)shed_lock_cancel(lock, &out);
    WAIT_FOR(atomic_load(&out.calls) == 1);
    if (atomic_load(&out.code) == SHED_OK) /* it was too late for that */
        release(lock);
    WAIT_FOR(has_lock(0) == 0);
}

/* --------------------------------------------------------------- failovers */

static void cut_links(void)
{
    server_cut_replica(&watched.server[1], &watched.server[0]);
    server_cut_replica(&watched.server[2], &watched.server[0]);
}

static size_t lose_primary(void)
{
    server_kill(&watched.server[0]);
    server_join_replica(&watched.server[1]);
    server_join_replica(&watched.server[2]);
    return watched_primary(&watched, 0);
}

/* 0: the acquire did not wait for replicas, and another gets the lock after the
 * failover. 1: it did; then it fails, because none has its link. */
TEST_EACH(what_no_replica_has_is_lost_in_a_failover_or_not_acquired, 0, 2)
{
    struct shed_lock *lock = open_confirmed(client, (uint64_t)_i);

    cut_links();
    expect_acquire(lock, 0, _i == 0 ? SHED_OK : SHED_EREDIS);
    ck_assert_int_eq(has_lock(0), _i == 0);
    (void)lose_primary();
    acquire(open_confirmed(other, 0), PLENTY_MS);
    if (_i == 0) /* it has not released it: there were two */
        WAIT_FOR(!shed_lock_is_mine(lock));
}

TEST(what_all_replicas_have_survives_a_failover)
{
    struct shed_lock *lock = open_confirmed(client, 2);
    struct shed_lock *rival = open_confirmed(other, 0);
    uint64_t fence;
    size_t next;

    acquire(lock, PLENTY_MS);
    fence = fence_of(lock);
    cut_links();
    next = lose_primary();
    ck_assert_int_eq(has_lock(next), 1);
    WAIT_FOR(server_clients(&watched.server[next], "flags=t") == 2);
    expect_acquire(rival, 500, SHED_ETIMEDOUT);
    ck_assert(shed_lock_is_mine(lock));
    release(lock);
    acquire(rival, PLENTY_MS);
    ck_assert_uint_gt(fence_of(rival), fence);
}

/* ----------------------------------------------------------- without rights */

TEST(without_the_right_to_wait_it_says_so)
{
    struct shed_lock *lock = open_confirmed(client, 1);
    struct shed_error err;

    server_do(&watched.server[0], "ACL SETUSER default -wait");
    EXPECT_CODE(shed_lock_acquire(lock, PLENTY_MS, &err), SHED_EDENIED);
    ck_assert_ptr_nonnull(strstr(err.reason, "wait"));
    WAIT_FOR(has_lock(0) == 0);
    EXPECT_CODE(shed_lock_probe(lock, 0, &err), SHED_EDENIED);
    ck_assert_str_eq(err.reason, "Redis does not grant: +wait");
}

TEST(only_a_lease_on_one_server_can_wait)
{
    struct shed_client *clients[] = {client, other, client};
    struct shed_lock_options o = options_of(SHED_LOCK_SETNX);
    struct shed_lock *lock;

    o.replicas = 1;
    EXPECT_CODE(shed_lock_open(client, shed_str("x"), &o, &lock, NULL),
                SHED_EINVAL);
    o = options_of(SHED_LOCK_LEASE);
    o.replicas = 101;
    EXPECT_CODE(shed_lock_open(client, shed_str("x"), &o, &lock, NULL),
                SHED_EINVAL);
    o.replicas = 1;
    EXPECT_CODE(
        shed_lock_open_quorum(clients, 3, shed_str("x"), &o, &lock, NULL),
        SHED_EINVAL);
}

int main(void)
{
    tcase_add_checked_fixture(test_case(), up, down);
    return run_tests("replicas");
}
