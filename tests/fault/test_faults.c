/* Faults, on a real Redis that is killed, stopped, out of memory or made to
 * refuse commands, and behind a proxy that spoils its replies. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "entry/entry.h"
#include "support/fixture.h"

static struct proxy proxy;

static void up_behind_proxy(void)
{
    fixture_hurry(&fixture, 100);
    fixture_add_proxy(&fixture, &proxy);
    fixture_open(&fixture);
}

/* Wait until gets go through Redis again. */
static void wait_for_redis(void)
{
    uint64_t before = stats_of(fixture.cache).hits;

    WAIT_FOR((expect_text(fixture.cache, "back", "back@1"),
              stats_of(fixture.cache).hits > before));
}

/* --------------------------------------------------------- Redis goes away */

TEST(a_server_that_was_killed_and_came_back_empty_is_used_again)
{
    fixture_hurry(&fixture, 100);
    fixture_open(&fixture);
    expect_text(fixture.cache, "k", "k@1");
    server_kill(&fixture.server);
    table_update(&fixture.table);
    expect_origin(fixture.cache, "k", "k@2", SHED_ORIGIN_UNPUBLISHED);
    server_start_again(&fixture.server);
    WAIT_FOR((expect_text(fixture.cache, "k", "k@2"),
              server_int(&fixture.server, "EXISTS t:{k}") == 1));
    expect_origin(fixture.cache, "k", "k@2", SHED_ORIGIN_REDIS);
}

TEST(with_the_fail_policy_a_dead_server_is_an_error)
{
    struct shed_error err = {0};

    fixture_hurry(&fixture, 100);
    fixture.cache_options.redis_down = SHED_REDIS_DOWN_FAIL;
    fixture_open(&fixture);
    server_kill(&fixture.server);
    expect_code(fixture.cache, "k", SHED_EREDIS, &err);
    ck_assert_uint_eq(table_loads(&fixture.table), 0);
    ck_assert_uint_eq(stats_of(fixture.cache).errors_redis, 1);
    EXPECT_CODE(invalidate_code(fixture.cache, "k"), SHED_EREDIS);
    EXPECT_CODE(
        shed_put(fixture.cache, shed_str("k"), shed_str("v"), NULL, &err),
        SHED_EREDIS);
    server_start_again(&fixture.server);
}

/* Whatever the policy. */
TEST_EACH(a_server_that_hangs_holds_nobody_beyond_the_deadline,
          SHED_REDIS_DOWN_SOURCE, SHED_REDIS_DOWN_STALE + 1)
{
    const uint64_t timeout_ms = 60;
    struct shed_value *value = NULL;

    fixture.cache_options.redis_down = (uint64_t)_i;
    fixture_open(&fixture);
    expect_text(fixture.cache, "k", "k@1");
    server_freeze(&fixture.server);
    for (int i = 0; i < 5; i++) {
        uint64_t start_ms = shed_now_ms();
        enum shed_code code = shed_get(fixture.cache, shed_str("k"),
                                       WITHIN(timeout_ms), &value, NULL);
        ck_assert(code == SHED_ETIMEDOUT || code == SHED_OK);
        shed_value_unref(value);
        ck_assert_uint_lt(shed_now_ms() - start_ms,
                          timeout_ms + scaled_ms(500));
        start_ms = shed_now_ms();
        code = shed_invalidate(fixture.cache, shed_str("k"), timeout_ms, NULL);
        ck_assert(code == SHED_ETIMEDOUT || code == SHED_EREDIS);
        ck_assert_uint_lt(shed_now_ms() - start_ms,
                          timeout_ms + scaled_ms(500));
    }
    server_thaw(&fixture.server);
    wait_for_redis();
}

TEST(after_a_failed_invalidation_nobody_here_joins_the_older_load)
{
    struct getter before = {0}, after = {0};

    fixture_hurry(&fixture, 100);
    fixture_open(&fixture);
    server_kill(&fixture.server);
    getter_hold(&before, &fixture, "k");
    table_update(&fixture.table);
    EXPECT_CODE(invalidate_code(fixture.cache, "k"), SHED_EREDIS);
    EXPECT_CODE(
        shed_put(fixture.cache, shed_str("other"), shed_str("row"), NULL, NULL),
        SHED_EREDIS);
    ck_assert_uint_eq(stats_of(fixture.cache).invalidations, 0);
    ck_assert_uint_eq(stats_of(fixture.cache).puts, 0);
    getter_start(&after, fixture.cache, "k");
    WAIT_FOR(table_running(&fixture.table) == 2);
    table_release(&fixture.table);
    getter_expect(&before, "k@1", SHED_ORIGIN_UNPUBLISHED);
    getter_expect(&after, "k@2", SHED_ORIGIN_UNPUBLISHED);
    server_start_again(&fixture.server);
}

/* --------------------------------------------------------- Redis refuses */

TEST(out_of_memory_a_load_is_answered_and_its_lease_ended)
{
    struct getter getter = {0}, failed = {0};

    fixture_open(&fixture);
    getter_hold(&getter, &fixture, "k");
    getter_start(&failed, fixture.cache, "fail");
    WAIT_FOR(table_running(&fixture.table) == 2);
    server_do(&fixture.server, "CONFIG SET maxmemory 1");
    table_release(&fixture.table);
    getter_expect(&getter, "k@1", SHED_ORIGIN_UNPUBLISHED);
    getter_join(&failed);
    EXPECT_CODE(failed.code, SHED_ESOURCE);
    WAIT_FOR(server_int(&fixture.server, "EXISTS t:{k} t:{fail}") == 0);
    ck_assert_uint_eq(stats_of(fixture.cache).unpublished, 1);
    expect_origin(fixture.cache, "l", "l@1", SHED_ORIGIN_UNPUBLISHED);
    server_do(&fixture.server, "CONFIG SET maxmemory 0");
    expect_origin(fixture.cache, "l", "l@1", SHED_ORIGIN_LOAD);
}

TEST(a_pause_of_writes_lets_hits_pass_and_ends_no_call_late)
{
    fixture_hurry(&fixture, 100);
    fixture_open(&fixture);
    expect_text(fixture.cache, "k", "k@1");
    server_do(&fixture.server, "CLIENT PAUSE 100000 WRITE");
    expect_origin(fixture.cache, "k", "k@1", SHED_ORIGIN_REDIS);
    expect_origin(fixture.cache, "l", "l@1", SHED_ORIGIN_UNPUBLISHED);
    server_do(&fixture.server, "CLIENT UNPAUSE");
    wait_for_redis();
}

TEST(flushes_under_load_lose_only_entries)
{
    enum { ROUNDS = 100 };
    fixture_open(&fixture);
    for (int i = 0; i < ROUNDS; i++) {
        struct getter getters[4] = {0};
        for (size_t j = 0; j < 4; j++)
            getter_start(&getters[j], fixture.cache, j % 2 ? "a" : "b");
        server_do(&fixture.server, "FLUSHALL");
        for (size_t j = 0; j < 4; j++) {
            getter_join(&getters[j]);
            EXPECT_OK(getters[j].code);
            check_text(getters[j].value, j % 2 ? "a@1" : "b@1");
            shed_value_unref(getters[j].value);
        }
    }
}

/* All that can evict a key with a time to live. */
static const char *const policies[] = {
    "allkeys-random", "allkeys-lru",  "allkeys-lfu", "volatile-random",
    "volatile-lru",   "volatile-lfu", "volatile-ttl"};

/* An evicted lease is a lease that was revoked: its load answers its callers
 * and is not stored. */
TEST_EACH(a_lease_that_was_evicted_costs_a_second_load_and_nothing_old, 0,
          COUNT_OF(policies))
{
    struct getter before = {0};

    fixture_open(&fixture);
    getter_hold(&before, &fixture, "k");
    server_do(&fixture.server, "CONFIG SET maxmemory-policy %s", policies[_i]);
    server_do(&fixture.server, "CONFIG SET maxmemory 1");
    WAIT_FOR((freeReplyObject(server_run(&fixture.server, "SET x y PX 1")),
              server_int(&fixture.server, "EXISTS t:{k}") == 0));
    server_do(&fixture.server, "CONFIG SET maxmemory 0");
    table_update(&fixture.table);
    table_release(&fixture.table);
    getter_expect(&before, "k@1", SHED_ORIGIN_UNPUBLISHED);
    ck_assert_uint_eq(stats_of(fixture.cache).publishes_invalidated, 1);
    expect_origin(fixture.cache, "k", "k@2", SHED_ORIGIN_LOAD);
}

/* Redis then announces keys that have not changed, and waiters look again. */
TEST(a_tracking_table_that_overflows_costs_looks_and_no_load)
{
    enum { KEYS = 8, TEXT_BYTES = 80 };
    struct getter leaders[KEYS] = {0}, waiters[KEYS] = {0};
    char keys[KEYS][8], text[TEXT_BYTES];
    struct peer peer;

    fixture_open(&fixture);
    peer_open(&peer, &fixture);
    WAIT_FOR(server_clients(&fixture.server, "flags=t") == 2);
    table_hold(&fixture.table);
    for (size_t i = 0; i < KEYS; i++) {
        snprintf(keys[i], sizeof(keys[i]), "k%zu", i);
        getter_start(&leaders[i], fixture.cache, keys[i]);
    }
    WAIT_FOR(stats_of(fixture.cache).leases_won == KEYS);
    for (size_t i = 0; i < KEYS; i++)
        getter_start(&waiters[i], peer.cache, keys[i]);
    WAIT_FOR(stats_of(peer.cache).waits >= KEYS);
    server_do(&fixture.server, "CONFIG SET tracking-table-max-keys 1");
    WAIT_FOR(stats_of(peer.cache).pushes > 0);
    table_release(&fixture.table);
    for (size_t i = 0; i < KEYS; i++) {
        snprintf(text, sizeof(text), "%s@1", keys[i]);
        getter_expect(&leaders[i], text, SHED_ORIGIN_LOAD);
        getter_expect(&waiters[i], text, SHED_ORIGIN_WAITED);
    }
    ck_assert_uint_eq(stats_of(fixture.cache).loaded_keys, KEYS);
    ck_assert_uint_eq(stats_of(peer.cache).loaded_keys, 0);
    peer_close(&peer);
}

/* The server lets the lease lie until somebody looks at it, and the leader does
 * not renew it in that time. */
TEST(a_lease_whose_end_nobody_announces_is_replaced)
{
    enum { LEFT_MS = 300 };
    struct getter leader = {0}, waiter = {0};
    struct peer peer;

    fixture.cache_options.lease_ms = FIXTURE_TIMEOUT_MS;
    fixture_open(&fixture);
    server_do(&fixture.server, "DEBUG SET-ACTIVE-EXPIRE 0");
    peer_open(&peer, &fixture);
    WAIT_FOR(server_clients(&fixture.server, "flags=t") == 2);
    getter_hold(&leader, &fixture, "k");
    server_do(&fixture.server, "PEXPIRE t:{k} %d", LEFT_MS);
    getter_start(&waiter, peer.cache, "k");
    WAIT_FOR(table_running(&fixture.table) == 2);
    table_release(&fixture.table);
    getter_expect(&waiter, "k@1", SHED_ORIGIN_LOAD);
    getter_join(&leader);
    check_text(leader.value, "k@1");
    shed_value_unref(leader.value);
    peer_close(&peer);
}

/* -------------------------------------------------------- replies go wrong */

TEST(a_late_reply_never_answers_another_call)
{
    enum { DELAY_MS = 5, ONE_IN = 3 };
    struct readers readers = {
        .threads = 8, .gets = 150, .keys = 40, .timeout_max_ms = 4};

    up_behind_proxy();
    readers.cache = fixture.cache;
    atomic_store(&proxy.every, ONE_IN);
    proxy_set(&proxy, PROXY_DELAY, DELAY_MS, NULL);
    readers_run(&readers);
    ck_assert_uint_gt(stats_of(fixture.cache).errors_timeout, 0);
    proxy_set(&proxy, PROXY_PASS, 0, NULL);
    wait_for_redis();
}

static const struct spoilt {
    const char *name;
    enum proxy_mode mode;
    unsigned delay_ms;
    const char *text;
} spoilt[] = {
    {"a reply that is cut", PROXY_CUT, 0, NULL},
    {"what is not RESP", PROXY_ANSWER, 0, "HTTP/1.1 400 Bad Request\r\n\r\n"},
    {"replies that do not come", PROXY_DROP, 0, NULL},
    {"a reply that is dripped, which does not stretch the timeout", PROXY_DRIP,
     10, NULL},
};

TEST_EACH(while_replies_are_spoilt_gets_do_without_redis, 0, COUNT_OF(spoilt))
{
    const struct spoilt *s = &spoilt[_i];

    up_behind_proxy();
    expect_text(fixture.cache, "k", "k@1");
    proxy_set(&proxy, s->mode, s->delay_ms, s->text);
    expect_origin(fixture.cache, "k", "k@1", SHED_ORIGIN_UNPUBLISHED);
    proxy_set(&proxy, PROXY_PASS, 0, NULL);
    wait_for_redis();
}

/* The first miss waits until it is known whether pushes will come: at most for
 * the command timeout, not until the session's next PING after 3 s. */
TEST(a_subscription_without_an_answer_holds_up_no_miss_for_long)
{
    const uint64_t timeout_ms = 2500;
    struct shed_value *value = NULL;
    struct shed_error err = {0};

    fixture_hurry(&fixture, 100);
    fixture_add_proxy(&fixture, &proxy);
    proxy_set(&proxy, PROXY_SWALLOW_SUBSCRIBE, 0, NULL);
    fixture_open(&fixture);
    ck_assert_msg(shed_get(fixture.cache, shed_str("k"), WITHIN(timeout_ms),
                           &value, &err) == SHED_OK,
                  "%s", err.reason);
    check_text(value, "k@1");
    shed_value_unref(value);
    proxy_set(&proxy, PROXY_PASS, 0, NULL);
    wait_for_pushes(&fixture); /* the subscription is tried again */
}

/* ---------------------------------------------------------- a good citizen */

TEST(no_signal_is_raised_and_no_disposition_changed)
{
    struct sigaction before, after;

    ck_assert(signal(SIGPIPE, SIG_DFL) != SIG_ERR);
    ck_assert_int_eq(sigaction(SIGPIPE, NULL, &before), 0);
    fixture_hurry(&fixture, 100);
    fixture_open(&fixture);
    for (int i = 0; i < 20; i++) {
        expect_text(fixture.cache, "k", "k@1");
        server_do(&fixture.server, "CLIENT KILL TYPE normal SKIPME yes");
        server_do(&fixture.server, "CLIENT KILL TYPE pubsub");
    }
    server_kill(&fixture.server);
    expect_text(fixture.cache, "k", "k@1");
    ck_assert_int_eq(sigaction(SIGPIPE, NULL, &after), 0);
    ck_assert(after.sa_handler == before.sa_handler);
    server_start_again(&fixture.server);
}

int main(void)
{
    return run_fixture_tests("faults");
}
