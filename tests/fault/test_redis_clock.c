/* A Redis whose clock is set forward, and back again, under a cache: what it
 * has expires at once, nothing older than it may be is given out, loads go on,
 * and an invalidation holds whatever the clock says. */
#include "client/client.h"
#include "redis/session.h"
#include "support/fixture.h"

/* The step is far longer than a row lives, which is longer than a test. */
enum { STEP_S = 7200, STEP_MS = 1000 * STEP_S, TTL_MS = 1800000 };

static struct peer peer;

static void up(uint64_t stale_if_error_ms)
{
    server_stop(&fixture.server);
    fixture.server = (struct server){.has_clock = true};
    server_start(&fixture.server);
    fixture.cache_options.ttl_ms = TTL_MS;
    fixture.cache_options.stale_if_error_ms = stale_if_error_ms;
    fixture_open(&fixture);
    peer_open(&peer, &fixture);
}

static void down(void)
{
    peer_close(&peer);
    fixture_down(&fixture);
}

/* The server's clock, as the client knows it; it asks every few seconds. */
static uint64_t known_ms(void)
{
    return shed_client_server_ms(fixture.client, shed_str("k"));
}

/* Both clients use the cache, and a row that has been invalidated is gone. */
static void expect_all_well(const char *before, const char *after)
{
    unsigned loads = table_loads(&fixture.table);

    expect_text(fixture.cache, "k", before);
    expect_text(peer.cache, "k", before);
    ck_assert_uint_eq(table_loads(&fixture.table), loads);
    table_update(&fixture.table);
    invalidate(fixture.cache, "k");
    expect_text(peer.cache, "k", after);
    expect_text(fixture.cache, "k", after);
    ck_assert_uint_eq(table_loads(&fixture.table), loads + 1);
}

/* Redis itself removes what is past its time to live. */
TEST(what_redis_has_expires_with_the_jump_and_loads_go_on)
{
    up(0);
    expect_text(fixture.cache, "k", "k@1");
    expect_origin(peer.cache, "k", "k@1", SHED_ORIGIN_REDIS);
    table_update(&fixture.table);
    server_skew(&fixture.server, STEP_S);
    expect_origin(fixture.cache, "k", "k@2", SHED_ORIGIN_LOAD);
    expect_all_well("k@2", "k@3");
    server_skew(&fixture.server, 0);
    expect_all_well("k@3", "k@4");
    expect_origin(fixture.cache, "new", "new@4", SHED_ORIGIN_LOAD);
    expect_origin(peer.cache, "new", "new@4", SHED_ORIGIN_REDIS);
}

/* Redis keeps the row for stale_if_error_ms, so it is the clients that have to
 * find it too old: as soon as they have heard of the jump. */
TEST(a_row_that_redis_keeps_is_past_its_ttl_when_the_jump_is_known)
{
    uint64_t before_ms;

    up((uint64_t)2 * STEP_MS);
    WAIT_FOR(knows_the_clock(fixture.cache));
    expect_text(fixture.cache, "k", "k@1");
    table_update(&fixture.table);
    before_ms = known_ms();
    server_skew(&fixture.server, STEP_S);
    WAIT_FOR(known_ms() > before_ms + TTL_MS);
    expect_origin(fixture.cache, "k", "k@2", SHED_ORIGIN_LOAD);
    expect_all_well("k@2", "k@3");
    before_ms = known_ms();
    server_skew(&fixture.server, 0);
    expect_all_well("k@3", "k@4"); /* most likely not known yet */
    WAIT_FOR(known_ms() < before_ms - TTL_MS);
    expect_all_well("k@4", "k@5");
}

/* The lease is over with the jump, so the load is not stored. */
TEST(a_load_from_before_the_jump_is_not_stored)
{
    struct getter getter = {0};

    up(0);
    getter_hold(&getter, &fixture, "k");
    server_skew(&fixture.server, STEP_S);
    ck_assert_int_eq(server_int(&fixture.server, "EXISTS t:{k}"), 0);
    table_update(&fixture.table);
    table_release(&fixture.table);
    getter_expect(&getter, "k@1", SHED_ORIGIN_UNPUBLISHED);
    expect_origin(peer.cache, "k", "k@2", SHED_ORIGIN_LOAD);
    expect_all_well("k@2", "k@3");
}

/* What was stored while the clock was ahead lasts longer by the step, for
 * Redis and by its times: this is the limit of ttl_ms. */
TEST(a_row_from_the_future_lasts_longer_by_the_step)
{
    long long left_ms;

    up(0);
    server_skew(&fixture.server, STEP_S);
    expect_text(fixture.cache, "k", "k@1");
    server_skew(&fixture.server, 0);
    left_ms = server_int(&fixture.server, "PTTL t:{k}");
    ck_assert_int_gt(left_ms, TTL_MS + LEEWAY_MS);
    ck_assert_int_le(left_ms, TTL_MS + LEEWAY_MS + STEP_MS);
    expect_all_well("k@1", "k@2");
    left_ms = server_int(&fixture.server, "PTTL t:{k}");
    ck_assert_int_le(left_ms, TTL_MS + LEEWAY_MS);
}

int main(void)
{
    tcase_add_checked_fixture(test_case(), fixture_set_up, down);
    return run_tests("redis_clock");
}
