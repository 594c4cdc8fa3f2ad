/* Callers of one key that share a GET, on a real Redis that is stopped while
 * they come: one caller has a GET of its own, one or more share the first that
 * may be shared, and all others wait for the next. */
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "base/latch.h"
#include "support/fixture.h"

enum { GETTERS = 8, ALONE = 1 };

static struct getter getters[GETTERS];
static atomic_uint waits; /* of callers */

WRAPPED(shed_latch_wait);

bool __wrap_shed_latch_wait(struct shed_latch *latch, uint64_t deadline_ms)
{
    atomic_fetch_add(&waits, 1);
    return __real_shed_latch_wait(latch, deadline_ms);
}

/* With the row in Redis, and more callers than links. */
static void open_with(struct proxy *proxy)
{
    fixture.client_options.links = ALONE;
    if (proxy != NULL)
        fixture_add_proxy(&fixture, proxy);
    fixture_open(&fixture);
    expect_text(fixture.cache, "k", "k@1");
}

/* All but the one that has the link wait for the loop. */
static void start_getters(void)
{
    atomic_store(&waits, 0);
    for (int i = 0; i < GETTERS; i++) {
        getters[i] = (struct getter){.timeout_ms = 0};
        getter_start(&getters[i], fixture.cache, "k");
    }
    WAIT_UNTIL(atomic_load(&waits) >= GETTERS - 1, "all getters wait");
}

static void expect_all(const char *text, enum shed_origin origin)
{
    for (int i = 0; i < GETTERS; i++)
        getter_expect(&getters[i], text, origin);
}

TEST(a_caller_that_has_a_link_waits_for_nobody)
{
    open_with(NULL);
    atomic_store(&waits, 0);
    expect_text(fixture.cache, "k", "k@1");
    ck_assert_uint_eq(atomic_load(&waits), 0);
}

TEST(many_callers_cost_three_gets_at_most)
{
    long long before, gets;

    open_with(NULL);
    before = server_calls(&fixture.server, "get");
    server_freeze(&fixture.server);
    start_getters();
    server_thaw(&fixture.server);
    expect_all("k@1", SHED_ORIGIN_REDIS);
    gets = server_calls(&fixture.server, "get") - before;
    ck_assert(gets == 2 || gets == 3);
    ck_assert_uint_eq(stats_of(fixture.cache).hits, GETTERS);
}

TEST(a_connection_that_dies_costs_the_callers_nothing)
{
    static struct proxy proxy;

    open_with(&proxy);
    proxy_set(&proxy, PROXY_DROP, 0, NULL);
    start_getters();
    proxy_set(&proxy, PROXY_PASS, 0, NULL);
    server_do(&fixture.server, "CLIENT KILL TYPE normal");
    expect_all("k@1", SHED_ORIGIN_REDIS);
}

TEST(a_damaged_entry_is_given_to_none_and_loaded_once)
{
    open_with(NULL);
    server_do(&fixture.server, "SETRANGE t:{k} 64 X");
    table_update(&fixture.table);
    server_freeze(&fixture.server);
    start_getters();
    server_thaw(&fixture.server);
    for (int i = 0; i < GETTERS; i++) {
        getter_join(&getters[i]);
        check_text(getters[i].value, "k@2");
        shed_value_unref(getters[i].value);
    }
    ck_assert_uint_eq(table_loads(&fixture.table), 2);
}

TEST(a_refusal_reaches_all_with_its_reason)
{
    open_with(NULL);
    server_do(&fixture.server, "ACL SETUSER default -get");
    server_freeze(&fixture.server);
    start_getters();
    server_thaw(&fixture.server);
    for (int i = 0; i < GETTERS; i++) {
        getter_join(&getters[i]);
        EXPECT_CODE(getters[i].code, SHED_EDENIED);
        ck_assert_ptr_nonnull(strstr(getters[i].error.reason, "refused GET"));
    }
    server_do(&fixture.server, "ACL SETUSER default +get");
}

/* ---------------------------------------------------- rows that have ended */

/* Long enough that both processes have it before it ends. */
enum { TTL_MS = 500 };

static struct peer peer;

static void open_both(void)
{
    fixture.cache_options.ttl_ms = scaled_ms(TTL_MS);
    fixture.cache_options.ttl_jitter_pct = 0;
    fixture_open(&fixture);
    peer_open(&peer, &fixture);
    expect_text(fixture.cache, "other", "other@1"); /* both are connected */
    expect_text(peer.cache, "other", "other@1");
}

/* Scripts that take leases look into the key as well. */
static long long looks(void)
{
    return server_calls(&fixture.server, "get") +
           server_calls(&fixture.server, "evalsha");
}

/* Both processes want the row, of which Redis has none; the first one loads it.
 * Returns: how often they have looked before the load ended. */
static long long miss_in_both(void)
{
    long long count = looks();
    unsigned long long before = stats_of(peer.cache).waits;

    getter_hold(&getters[0], &fixture, "k");
    getter_start(&getters[1], peer.cache, "k");
    WAIT_FOR(stats_of(peer.cache).waits > before);
    count = looks() - count;
    table_release(&fixture.table);
    getter_expect(&getters[0], "k@1", SHED_ORIGIN_LOAD);
    getter_expect(&getters[1], "k@1", SHED_ORIGIN_WAITED);
    return count;
}

static bool has_ended(void)
{
    return server_int(&fixture.server, "EXISTS t:{k}") == 0;
}

/* The first time a caller looks, and the flight of one that has found a lease
 * looks again, to hear when that ends. Then only flights look. */
TEST(once_a_row_has_ended_each_process_asks_for_it_with_one_get)
{
    getters[0] = getters[1] = (struct getter){.timeout_ms = 0};
    open_both();
    ck_assert_int_eq(miss_in_both(), 3);
    for (int i = 0; i < 3; i++) {
        WAIT_FOR(has_ended());
        usleep(50000); /* by their clocks, too */
        ck_assert_int_eq(miss_in_both(), 2);
    }
    peer_close(&peer);
}

/* The process has not heard of it. 0: it reads the row just after the end of
 * the former one; 1: long after. */
TEST_EACH(a_row_that_was_replaced_before_its_end_is_read_as_ever, 0, 2)
{
    enum { LONG_MS = 1500 };
    struct shed_put_options o = SHED_PUT_OPTIONS_INIT;
    uint64_t begin_ms = shed_now_ms();
    unsigned long long misses;

    getters[0] = getters[1] = (struct getter){.timeout_ms = 0};
    o.ttl_ms = scaled_ms(100 * TTL_MS);
    open_both();
    (void)miss_in_both();
    EXPECT_OK(
        shed_put(fixture.cache, shed_str("k"), shed_str("k@1"), &o, NULL));
    misses = stats_of(peer.cache).misses;
    expect_text(peer.cache, "k", "k@1");
    if (shed_now_ms() - begin_ms < scaled_ms(TTL_MS)) /* before the end */
        ck_assert_uint_eq(stats_of(peer.cache).misses, misses);
    usleep((unsigned)(scaled_ms(TTL_MS) + (_i == 1 ? LONG_MS : 0)) * 1000);
    if (_i == 0)
        expect_text(peer.cache, "k", "k@1"); /* perhaps by a flight */
    misses = stats_of(peer.cache).misses;
    expect_origin(peer.cache, "k", "k@1", SHED_ORIGIN_REDIS);
    ck_assert_uint_eq(stats_of(peer.cache).misses, misses);
    ck_assert_uint_eq(table_loads(&fixture.table), 2);
    peer_close(&peer);
}

int main(void)
{
    return run_fixture_tests("shared_reads");
}
