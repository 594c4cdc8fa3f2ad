/* Locks whose connections or servers die, stop, forget or run out of memory. */
#include <hiredis/hiredis.h>
#include <stdio.h>
#include <string.h>

#include <snowshed/stats.h>

#include "support/bare.h"
#include "support/lock_fixture.h"

/* Longer than anything in these tests hangs. */
#define PATIENCE_MS ((uint64_t)600000)

/* How long to wait for a stopped server: longer than a working one is silent on
 * a busy machine. */
enum { SILENCE_MS = 1000 };

TEST(a_server_that_restarts_with_its_data_costs_no_lock)
{
    struct shed_lock_options o = options_of(SHED_LOCK_LEASE);
    struct shed_client *a, *b;
    struct shed_lock *held, *wanted;
    struct waiter w;

    server_stop(&server);
    server = (struct server){
        .options = {"--appendonly", "yes", "--appendfsync", "always"}};
    server_start(&server);
    a = open_client(&server, SHED_WAIT_AUTO);
    b = open_client(&server, SHED_WAIT_AUTO);
    held = open_kept(a, &o);
    wanted = open_kept(b, &o);
    WAIT_FOR(server_clients(&server, "sub=4") == 2);
    acquire(held, 0);
    waiter_start(&w, wanted, PLENTY_MS);
    wait_until_asked(&server, 2);
    server_kill(&server);
    server_start_again(&server);
    wait_until_asked(&server, 8); /* longer than the grace */
    ck_assert(!atomic_load(&w.has_ended));
    ck_assert_int_eq(shed_lock_is_mine(held), 1);
    release(held);
    waiter_join(&w);
    EXPECT_OK(w.code);
}

TEST(a_server_that_forgets_is_found_out)
{
    struct shed_lock_options o = options_of(SHED_LOCK_LEASE);
    struct shed_lock *lock;

    o.on_lost = count_loss;
    lock = open_alone(&o);
    WAIT_FOR(server_clients(&server, "sub=4") == 1);
    acquire(lock, 0);
    server_kill(&server);
    server_start_again(&server);
    /* long before a third of the lease */
    WAIT_FOR(atomic_load(&losses) == 1);
    ck_assert_int_eq(shed_lock_is_mine(lock), 0);
    EXPECT_CODE(shed_lock_release(lock, NULL), SHED_ELOST);
    acquire(lock, PLENTY_MS);
    release(lock);
}

/* Only the first of the waiters of one handle asks. */
TEST(without_redis_all_waiters_are_told_so)
{
    enum { WAITERS = 3, WAIT_MS = 300 };
    struct shed_client *client = open_client(&server, SHED_WAIT_AUTO);
    struct shed_lock *lock = open_kept(client, NULL);
    struct waiter waiters[WAITERS];

    acquire(lock, PLENTY_MS);
    release(lock);
    server_kill(&server);
    for (unsigned i = 0; i < WAITERS; i++)
        waiter_start(&waiters[i], lock, WAIT_MS);
    for (unsigned i = 0; i < WAITERS; i++) {
        waiter_join(&waiters[i]);
        EXPECT_CODE(waiters[i].code, SHED_EREDIS);
    }
}

TEST_EACH(without_a_server_a_call_ends_and_says_so, 0, SINGLES)
{
    struct shed_lock *lock = open_of(singles[_i]);

    acquire(lock, PLENTY_MS);
    server_kill(&server);
    EXPECT_CODE(shed_lock_extend(lock, 0, NULL), SHED_EREDIS);
    ck_assert_int_eq(shed_lock_is_mine(lock), 1); /* its lease still runs */
    EXPECT_CODE(shed_lock_release(lock, NULL), SHED_EREDIS);
    ck_assert_int_eq(shed_lock_is_mine(lock), 0);
    expect_acquire(lock, 0, SHED_EREDIS);
    expect_acquire(lock, 50, SHED_EREDIS);
    server_start_again(&server);
    acquire(lock, PLENTY_MS);
    release(lock);
}

TEST_EACH(a_silent_server_is_left_after_the_command_timeout, 0, SINGLES)
{
    struct shed_lock_options o = options_of(singles[_i]);
    struct shed_client *client = open_timed(server.uri, 100);
    struct shed_lock *lock = open_kept(client, &o);

    acquire(lock, PLENTY_MS);
    server_freeze(&server);
    ck_assert_int_ne(shed_lock_release(lock, NULL), SHED_OK);
    ck_assert_int_ne(shed_lock_acquire(lock, 0, NULL), SHED_OK);
    server_thaw(&server);
    acquire(lock, PLENTY_MS);
}

/* Neither the first call, which waits for the answer, nor those after it, while
 * there is no connection. */
TEST_EACH(an_extension_without_an_answer_ends_no_hold, LEASED, SINGLES)
{
    enum { SHORTER_MS = 600000 };
    struct shed_lock_options o = options_of(singles[_i]);
    struct shed_client *client = open_timed(server.uri, SILENCE_MS);
    struct shed_lock *lock;

    o.lease_ms = 3600000;
    o.watchdog_ms = 0;
    lock = open_kept(client, &o);
    acquire(lock, PLENTY_MS);
    server_freeze(&server);
    for (unsigned i = 0; i < 3; i++) {
        EXPECT_CODE(shed_lock_extend(lock, 0, NULL), SHED_EREDIS);
        ck_assert_uint_gt(shed_lock_remaining_ms(lock), SHORTER_MS);
    }
    EXPECT_CODE(shed_lock_extend(lock, SHORTER_MS, NULL), SHED_EREDIS);
    ck_assert_uint_le(shed_lock_remaining_ms(lock), SHORTER_MS);
    ck_assert_int_eq(shed_lock_is_mine(lock), 1);
    server_thaw(&server);
    WAIT_FOR(shed_lock_extend(lock, 0, NULL) == SHED_OK);
    ck_assert_uint_gt(shed_lock_remaining_ms(lock), SHORTER_MS);
}

/* The command waits in the server's socket, and is executed when nobody wants
 * it any longer. */
TEST_EACH(a_lock_that_a_silent_server_grants_late_is_released, 0, 3)
{
    static const enum shed_lock_algorithm undone[] = {
        SHED_LOCK_SETNX, SHED_LOCK_EXPIRE, SHED_LOCK_LEASE};
    struct shed_lock_options o = options_of(undone[_i]);
    struct shed_client *client = open_timed(server.uri, SILENCE_MS);
    struct shed_lock *lock, *free;

    o.lease_ms = 3600000;
    lock = open_kept(client, &o);
    free = open_alone(&o);
    acquire(lock, PLENTY_MS);
    release(lock);
    for (unsigned i = 0; i < 3; i++) {
        server_freeze(&server);
        expect_acquire(lock, 0, SHED_EREDIS);
        server_thaw(&server);
        acquire(free, PLENTY_MS);
        release(free);
    }
}

/* Redis is away for longer than the lease of the options, but the hold was
 * extended. */
TEST_EACH(an_extended_lock_is_released_however_late, 0, 2)
{
    static const enum shed_lock_algorithm undone[] = {SHED_LOCK_EXPIRE,
                                                      SHED_LOCK_LEASE};
    struct shed_lock_options o = options_of(undone[_i]);
    redisContext *admin = redisConnectUnix(server.socket);
    char away[SERVER_PATH_BYTES + 8];
    struct shed_lock *lock;

    ck_assert(admin != NULL && admin->err == 0);
    o.lease_ms = 500;
    lock = open_alone(&o);
    do
        acquire(lock, PLENTY_MS);
    while (shed_lock_extend(lock, 3600000, NULL) == SHED_ELOST); /* too slow */
    ck_assert_int_eq(shed_lock_is_mine(lock), 1);
    snprintf(away, sizeof(away), "%s.away", server.socket);
    ck_assert_int_eq(rename(server.socket, away), 0);
    freeReplyObject(redisCommand(admin, "CLIENT KILL TYPE normal SKIPME yes"));
    freeReplyObject(redisCommand(admin, "CLIENT KILL TYPE pubsub"));
    EXPECT_CODE(shed_lock_release(lock, NULL), SHED_EREDIS);
    usleep(1000 * 1000);
    ck_assert_int_eq(rename(away, server.socket), 0);
    WAIT_FOR(server_int(&server, "EXISTS %s %s", LOCK_NAME, LEASE_KEY) == 0);
    redisFree(admin);
}

/* Two tries would take two command timeouts. */
TEST(an_acquire_without_a_wait_tries_a_silent_server_once)
{
    struct shed_lock_options o = options_of(SHED_LOCK_LEASE);
    struct shed_client *client = open_timed(server.uri, SILENCE_MS);
    struct shed_lock *lock = open_kept(client, &o);
    struct shed_lock_stats stats;

    acquire(lock, PLENTY_MS);
    release(lock);
    server_freeze(&server);
    expect_acquire(lock, 0, SHED_EREDIS);
    EXPECT_OK(shed_lock_stats_read(lock, &stats, sizeof(stats), NULL));
    ck_assert_uint_eq(stats.tries, 2);
    server_thaw(&server);
}

/* A try that does not wait need not ask, and must not wait for the renewal. */
TEST(an_acquire_without_a_wait_does_not_wait_for_a_hanging_renewal)
{
    struct shed_lock_options o = options_of(SHED_LOCK_LEASE);
    struct shed_client *client = open_timed(server.uri, PATIENCE_MS);
    struct shed_lock *lock = open_kept(client, &o);
    struct shed_lock_stats stats;
    struct waiter w;

    acquire_for_all(lock);
    server_freeze(&server);
    extender_start(&w, lock, 0);
    usleep(50000);
    expect_acquire(lock, 0, SHED_ETIMEDOUT);
    ck_assert(!atomic_load(&w.has_ended));
    EXPECT_OK(shed_lock_stats_read(lock, &stats, sizeof(stats), NULL));
    ck_assert_uint_eq(stats.timeouts, 1);
    server_thaw(&server);
    waiter_join(&w);
    EXPECT_OK(w.code);
}

/* TIMESTAMP compares with the value that it has set. If a renewal was not
 * answered, it does not know which of its two times is at the key. */
TEST_EACH(a_renewal_whose_reply_is_lost_is_no_loss, 0, SINGLES)
{
    enum { LOST_REPLIES = 5 };
    struct shed_lock_options o = options_of(singles[_i]);
    struct proxy proxy = {0};
    struct shed_client *client;
    struct shed_lock *lock;
    unsigned unheard = 0;

    proxy_start(&proxy, &server);
    client = open_timed(proxy.uri, PATIENCE_MS);
    o.watchdog_ms = 0;
    lock = open_kept(client, &o);
    acquire(lock, PLENTY_MS);
    while (unheard < LOST_REPLIES) {
        enum shed_code code;
        proxy_set(&proxy, PROXY_CUT_ONE, 0, NULL);
        code = shed_lock_extend(lock, 0, NULL);
        unheard += code == SHED_EREDIS;
        while (code == SHED_EREDIS) /* until it has reconnected */
            code = shed_lock_extend(lock, 0, NULL);
        EXPECT_OK(code);
    }
    release(lock);
    acquire(lock, PLENTY_MS);
    close_client(client);
    proxy_stop(&proxy);
}

TEST_EACH(with_no_memory_it_is_refused_and_can_be_released, 0, SINGLES)
{
    struct shed_lock *lock = open_of(singles[_i]);

    acquire(lock, 0);
    server_do(&server, "CONFIG SET maxmemory 1");
    release(lock);
    expect_acquire(lock, 0, SHED_EREDIS);
    server_do(&server, "CONFIG SET maxmemory 0");
    acquire(lock, PLENTY_MS);
    release(lock);
}

TEST_EACH(with_no_memory_a_held_lock_is_kept, 0, SINGLES - 1)
{
    static const enum shed_lock_algorithm leased[] = {
        SHED_LOCK_EXPIRE, SHED_LOCK_TIMESTAMP, SHED_LOCK_LEASE};
    struct shed_lock_options o = options_of(leased[_i]);
    struct shed_lock *lock;

    o.on_lost = count_loss;
    lock = open_alone(&o);
    acquire(lock, PLENTY_MS);
    server_do(&server, "CONFIG SET maxmemory 1");
    EXPECT_OK(shed_lock_extend(lock, 0, NULL));
    EXPECT_OK(shed_lock_extend(lock, 0, NULL));
    WAIT_FOR(server_clients(&server, "sub=4") == 1);
    server_do(&server, "CLIENT KILL TYPE pubsub"); /* LEASE names the session */
    WAIT_FOR(server_clients(&server, "sub=4") == 1);
    EXPECT_OK(shed_lock_extend(lock, 0, NULL));
    ck_assert_uint_eq(atomic_load(&losses), 0);
    release(lock);
}

TEST(with_no_memory_a_waiter_is_told_why_it_gets_no_lock)
{
    struct shed_lock *held = open_of(SHED_LOCK_LEASE),
                     *wanted = open_of(SHED_LOCK_LEASE);
    struct shed_error err;

    acquire(held, PLENTY_MS);
    server_do(&server, "CONFIG SET maxmemory 1");
    expect_acquire(wanted, 0, SHED_ETIMEDOUT);
    expect_acquire(wanted, 50, SHED_ETIMEDOUT);
    release(held);
    EXPECT_CODE(shed_lock_acquire(wanted, 50, &err), SHED_EREDIS);
    ck_assert_msg(strstr(err.reason, "OOM") != NULL, "%s", err.reason);
}

/* The release was executed and its reply was lost. When it is sent again, Redis
 * says that the lock is not ours, which does not mean that we had lost it. */
TEST(a_release_whose_reply_is_lost_is_no_loss)
{
    struct shed_lock_options o = options_of(SHED_LOCK_LEASE);
    struct proxy proxy = {0};
    struct shed_client *client;
    struct shed_lock *lock;
    enum shed_code code;

    proxy_start(&proxy, &server);
    EXPECT_OK(shed_client_open(proxy.uri, BARE_CLIENT, &client, NULL));
    lock = open_kept(client, &o);
    do { /* another reply may be cut instead */
        acquire(lock, PLENTY_MS);
        proxy_set(&proxy, PROXY_CUT_ONE, 0, NULL);
        code = shed_lock_release(lock, NULL);
    } while (code == SHED_OK);
    EXPECT_CODE(code, SHED_EREDIS);
    WAIT_FOR(server_int(&server, "EXISTS " LEASE_KEY) == 0);
    acquire(lock, PLENTY_MS);
    server_do(&server, "DEL " LEASE_KEY);
    EXPECT_CODE(shed_lock_release(lock, NULL), SHED_ELOST);
    close_client(client);
    proxy_stop(&proxy);
}

/* The lock is granted, but the answer comes too late. */
TEST(an_acquire_whose_answer_was_late_is_undone)
{
    struct shed_lock_options o = options_of(SHED_LOCK_LEASE);
    struct proxy proxy = {0};
    struct shed_client *client;
    struct shed_lock *lock;

    proxy_start(&proxy, &server);
    client = open_timed(proxy.uri, SILENCE_MS);
    lock = open_kept(client, &o);
    acquire(lock, PLENTY_MS);
    release(lock);
    proxy_set(&proxy, PROXY_DROP, 0, NULL);
    expect_acquire(lock, 50, SHED_EREDIS);
    proxy_set(&proxy, PROXY_PASS, 0, NULL);
    WAIT_FOR(server_int(&server, "EXISTS " LEASE_KEY) == 0);
    close_client(client);
    proxy_stop(&proxy);
}

/* A callback that blocks, which callbacks must not do. */
static void block_for(void *ms, struct shed_lock *lock, enum shed_code code,
                      const struct shed_error *reason)
{
    (void)lock;
    (void)code;
    (void)reason;
    usleep(*(useconds_t *)ms * 1000);
}

/* Both replies arrive at once; when the second is read, the lease is over.
 * Without pushes: one of the change by the extension would be dealt with before
 * the first reply, and the second reply together with it, in time. */
TEST(an_answer_that_was_read_too_late_revives_nothing)
{
    struct shed_lock_options o = options_of(SHED_LOCK_LEASE);
    struct shed_client *client = open_client(&server, SHED_WAIT_POLL);
    useconds_t block_ms;
    struct shed_lock *lock, *other;
    struct waiter w;

    o.lease_ms = scaled_ms(2000);
    o.watchdog_ms = 0;
    block_ms = (useconds_t)o.lease_ms;
    lock = open_kept(client, &o);
    EXPECT_OK(shed_lock_open(client, shed_str("b"), &o, &other, NULL));
    acquire_for_all(lock);
    server_freeze(&server);
    EXPECT_OK(shed_lock_acquire_async(other, 0, block_for, &block_ms, NULL));
    usleep(50000);
    extender_start(&w, lock, 0);
    usleep(50000);
    server_thaw(&server);
    waiter_join(&w);
    EXPECT_CODE(w.code, SHED_ELOST);
}

/* The renewal hangs for longer than the lease; when it is executed at last, it
 * revives nothing. */
TEST_EACH(the_end_of_a_lease_is_told_while_redis_is_silent, 0, 2)
{
    struct shed_lock_options o = options_of(SHED_LOCK_LEASE);
    struct shed_client *client = open_timed(server.uri, PATIENCE_MS);
    struct shed_lock *lock;
    struct waiter w;

    o.lease_ms = 500;
    o.on_lost = count_loss;
    if (_i == 0)
        o.watchdog_ms = 0;
    lock = open_kept(client, &o);
    acquire_for_all(lock);
    server_freeze(&server);
    extender_start(&w, lock, 0);
    WAIT_FOR(atomic_load(&losses) == 1);
    server_thaw(&server);
    waiter_join(&w);
    EXPECT_CODE(w.code, SHED_ELOST);
    WAIT_FOR(server_int(&server, "EXISTS " LEASE_KEY) == 0);
}

/* Redis words this in two ways, depending on the number of arguments. */
TEST_EACH(a_missing_password_is_denied_however_long_one_would_wait, 0,
          SINGLES + 1)
{
    struct shed_lock_options o =
        options_of(_i < SINGLES ? singles[_i] : SHED_LOCK_LEASE);
    struct shed_client *client;
    struct shed_lock *lock;

    o.fair = _i == SINGLES; /* a fair lock uses the reactor's connection */
    server_do(&server, "CONFIG SET requirepass hunter2");
    server.password = "hunter2";
    client = open_client(&server, SHED_WAIT_AUTO);
    lock = open_kept(client, &o);
    for (unsigned i = 0; i < 10; i++) {
        struct shed_error err;
        EXPECT_CODE(
            shed_lock_acquire(lock, i < 5 ? 0 : SHED_LOCK_WAIT_MAX_MS, &err),
            SHED_EDENIED);
        EXPECT_CODE((int)err.code, SHED_EDENIED);
    }
}

TEST(a_client_that_may_not_ask_for_its_id_need_not_wait)
{
    struct shed_lock_options o = options_of(SHED_LOCK_LEASE);
    struct shed_client *client;
    struct shed_lock *lock;

    server_do(&server, "ACL SETUSER default -client|id");
    client = open_client(&server, SHED_WAIT_AUTO);
    lock = open_kept(client, &o);
    acquire(lock, scaled_ms(1000)); /* the fallback timer is slower */
    release(lock);
}

TEST(scripts_that_are_lost_are_sent_again)
{
    struct shed_lock *lock = open_of(SHED_LOCK_LEASE);
    struct waiter w;

    acquire(lock, 0);
    waiter_start(&w, lock, PLENTY_MS);
    for (unsigned i = 0; i < 10; i++) {
        server_do(&server, "SCRIPT FLUSH");
        EXPECT_OK(shed_lock_extend(lock, 0, NULL));
    }
    server_do(&server, "SCRIPT FLUSH");
    release(lock);
    waiter_join(&w);
    EXPECT_OK(w.code);
    EXPECT_OK(w.release_code);
}

TEST(a_child_can_do_nothing_with_it)
{
    struct shed_lock_options o = options_of(SHED_LOCK_LEASE);
    struct shed_client *client = open_client(&server, SHED_WAIT_AUTO);
    struct shed_lock *lock = open_kept(client, &o);
    pid_t pid;

    acquire(lock, 0);
    pid = fork();
    if (pid == 0) {
        struct shed_fence fence;
        if (shed_lock_acquire(lock, 0, NULL) != SHED_EFORKED ||
            shed_lock_release(lock, NULL) != SHED_EFORKED ||
            shed_lock_is_mine(lock) ||
            shed_lock_fence(lock, &fence, NULL) != SHED_EFORKED)
            _exit(1);
        close_kept(lock);
        close_client(client);
        _exit(0);
    }
    expect_success(pid);
    EXPECT_OK(shed_lock_extend(lock, 0, NULL));
    release(lock);
}

int main(void)
{
    tcase_add_checked_fixture(test_case(), server_up, server_down);
    return run_tests("lock faults");
}
