/* Rows that are due or no longer fresh are served while they are reloaded, and
 * when that fails. Entries are made old by moving their times. */
#include <string.h>

#include "support/calls.h"

static void up(uint64_t refresh_after_pct, uint64_t revalidate_ms,
               uint64_t if_error_ms)
{
    calls_init(revalidate_ms, if_error_ms);
    fixture.cache_options.refresh_after_pct = refresh_after_pct;
    calls_open();
}

/* Whether the refresh of "k" has left a failure marker. */
static bool is_marked(void)
{
    static const char script[] = "return redis.call('GETRANGE', KEYS[1], 5, 5) "
                                 "== 'F' and 1 or 0";

    return server_int(&fixture.server, "EVAL %s 1 t:{k}:refresh", script) == 1;
}

static void age(const char *key, uint64_t by_ms)
{
    age_entry(&fixture.server, key, by_ms);
}

/* Set up with a refresh of k under way, until the table is released. */
static void up_refreshing(void)
{
    up(AGEING_DUE_PCT, 0, 0);
    age("t:{k}", AGEING_DUE_MS);
    table_hold(&fixture.table);
    do
        expect_text(fixture.cache, "k", "k@1");
    while (table_running(&fixture.table) == 0);
}

/* ------------------------------------------------------ in the background */

TEST(a_row_that_is_due_is_loaded_in_the_background)
{
    up(AGEING_DUE_PCT, 0, 0);
    age("t:{k}", AGEING_DUE_MS);
    table_update(&fixture.table);
    table_hold(&fixture.table);
    do /* no get waits for the load */
        expect_origin(fixture.cache, "k", "k@1", SHED_ORIGIN_REDIS);
    while (table_running(&fixture.table) == 0);
    for (int i = 0; i < 100; i++)
        expect_origin(fixture.cache, "k", "k@1", SHED_ORIGIN_REDIS);
    table_release(&fixture.table);
    WAIT_FOR(has_text(fixture.cache, "k@2"));
    ck_assert_uint_eq(loads(), 1);
    ck_assert_uint_eq(stats_of(fixture.cache).refreshes, 1);
    ck_assert_uint_eq(stats_of(fixture.cache).stale, 0);
    ck_assert_int_eq(server_int(&fixture.server, "EXISTS t:{k}:refresh"), 0);
}

TEST(a_row_that_is_not_due_is_left_alone)
{
    up(AGEING_DUE_PCT, STALE_MS, STALE_MS);
    age("t:{k}", AGEING_DUE_MS / 2);
    for (int i = 0; i < 100; i++)
        expect_origin(fixture.cache, "k", "k@1", SHED_ORIGIN_REDIS);
    ck_assert_uint_eq(loads(), 0);
}

TEST(a_stale_row_is_given_out_as_such_while_it_is_loaded)
{
    up(0, STALE_MS, 0);
    age("t:{k}", PAST_TTL_MS);
    table_update(&fixture.table);
    table_hold(&fixture.table);
    do
        expect_origin(fixture.cache, "k", "k@1", SHED_ORIGIN_STALE);
    while (table_running(&fixture.table) == 0);
    table_release(&fixture.table);
    WAIT_FOR(has_text(fixture.cache, "k@2"));
    expect_origin(fixture.cache, "k", "k@2", SHED_ORIGIN_REDIS);
    ck_assert_uint_eq(loads(), 1);
    ck_assert_uint_gt(stats_of(fixture.cache).stale, 0);
    ck_assert_uint_eq(stats_of(fixture.cache).misses, 2); /* the first two */
}

TEST(a_row_beyond_its_window_is_waited_for)
{
    up(0, STALE_MS, 0);
    age("t:{k}", PAST_STALE_MS);
    table_update(&fixture.table);
    expect_origin(fixture.cache, "k", "k@2", SHED_ORIGIN_LOAD);
    ck_assert_uint_eq(loads(), 1);
}

TEST(while_another_refreshes_a_client_asks_redis_once_and_not_per_hit)
{
    enum { GETS = 2000, POLL_MIN_MS = 25 };
    struct peer peer;
    uint64_t start_ms;
    long long asked;

    up_refreshing();
    peer_open(&peer, &fixture);
    WAIT_FOR(knows_the_clock(peer.cache));
    asked = server_calls(&fixture.server, "evalsha");
    start_ms = shed_now_ms();
    for (int i = 0; i < GETS; i++)
        expect_origin(peer.cache, "k", "k@1", SHED_ORIGIN_REDIS);
    /* its watch polls, at a pace that does not depend on the hits */
    ck_assert_uint_le(
        (uint64_t)(server_calls(&fixture.server, "evalsha") - asked),
        2 + (shed_now_ms() - start_ms) / POLL_MIN_MS);
    table_release(&fixture.table);
    peer_close(&peer);
}

TEST(closing_a_cache_does_not_wait_for_the_refresh_of_another)
{
    struct peer peer;
    long long asked;

    up_refreshing();
    peer_open(&peer, &fixture);
    WAIT_FOR(knows_the_clock(peer.cache));
    asked = server_calls(&fixture.server, "evalsha");
    do
        expect_text(peer.cache, "k", "k@1");
    while (server_calls(&fixture.server, "evalsha") == asked);
    peer_close(&peer); /* with the load still held */
    ck_assert_uint_eq(table_running(&fixture.table), 1);
    table_release(&fixture.table);
}

TEST(a_row_that_was_deleted_is_absent_after_its_refresh)
{
    struct shed_value *value = NULL;
    enum shed_kind kind;

    up(AGEING_DUE_PCT, 0, 0);
    put(fixture.cache, "absent", "was there");
    expect_text(fixture.cache, "absent", "was there");
    age("t:{absent}", AGEING_DUE_MS);
    do {
        EXPECT_OK(
            shed_get(fixture.cache, shed_str("absent"), NULL, &value, NULL));
        kind = value->kind;
        shed_value_unref(value);
    } while (kind == SHED_KIND_ROW);
    ck_assert_int_eq(kind, SHED_KIND_ABSENT);
}

/* Whether Redis keeps k for so long after its end. The clocks of a script can
 * differ by a millisecond, and by more if the machine stops within it. */
static bool is_kept_for(long long after_end_ms)
{
    static const char script[] =
        "local t = redis.call('TIME') "
        "local ends = redis.call('GETRANGE', KEYS[1], 48, 55) "
        "return redis.call('PTTL', KEYS[1]) + t[1] * 1000 "
        "+ math.floor(t[2] / 1000) - struct.unpack('>I8', ends)";
    long long ms = server_int(&fixture.server, "EVAL %s 1 t:{k}", script);

    return ms >= after_end_ms - 2 && ms <= after_end_ms + 2;
}

TEST_EACH(redis_keeps_what_can_be_refreshed_a_moment_longer, 0, 2)
{
    up(_i == 1 ? AGEING_DUE_PCT : 0, 0, 0);
    WAIT_FOR(is_kept_for(_i == 1 ? LEEWAY_MS : 0));
    put(fixture.cache, "k", "k@1");
    WAIT_FOR(is_kept_for(_i == 1 ? LEEWAY_MS : 0));
}

TEST(no_such_row_is_never_stale)
{
    up(AGEING_DUE_PCT, STALE_MS, STALE_MS);
    expect_kind(fixture.cache, "absent", SHED_KIND_ABSENT);
    ck_assert_int_le(server_int(&fixture.server, "PTTL t:{absent}"),
                     (long long)fixture.cache_options.negative_ttl_ms +
                         LEEWAY_MS);
    age("t:{absent}", PAST_TTL_MS);
    expect_kind(fixture.cache, "absent", SHED_KIND_ABSENT);
    ck_assert_uint_eq(stats_of(fixture.cache).negative_hits, 0);
    ck_assert_uint_eq(stats_of(fixture.cache).stale, 0);
}

/* ----------------------------------------------------------- invalidations */

static void start_refresh(void)
{
    age("t:{k}", AGEING_DUE_MS);
    table_hold(&fixture.table);
    do
        expect_text(fixture.cache, "k", "k@1");
    while (table_running(&fixture.table) == 0);
    table_update(&fixture.table); /* the load has read the old row */
}

TEST(a_refresh_does_not_bring_back_an_invalidated_row)
{
    struct peer peer;

    up(AGEING_DUE_PCT, STALE_MS, STALE_MS);
    peer_open(&peer, &fixture);
    start_refresh();
    invalidate(peer.cache, "k");
    table_release(&fixture.table);
    WAIT_FOR(stats_of(fixture.cache).publishes_invalidated == 1);
    ck_assert_int_eq(server_int(&fixture.server, "EXISTS t:{k} t:{k}:refresh"),
                     0);
    expect_text(fixture.cache, "k", "k@2");
    expect_text(peer.cache, "k", "k@2");
    peer_close(&peer);
}

TEST(nor_one_that_any_program_has_deleted_and_another_has_loaded)
{
    struct peer peer;

    up(AGEING_DUE_PCT, 0, 0);
    fixture.table.is_async = true;
    peer_open(&peer, &fixture);
    start_refresh();
    WAIT_FOR(fixture.table.parked_count == 1);
    ck_assert_int_eq(server_int(&fixture.server, "DEL t:{k}"), 1);
    pthread_mutex_lock(&fixture.table.mu);
    fixture.table.is_held = false; /* the next load is not held */
    pthread_mutex_unlock(&fixture.table.mu);
    expect_text(peer.cache, "k", "k@2");
    table_release(&fixture.table); /* the first load ends */
    WAIT_FOR(stats_of(fixture.cache).publishes_superseded == 1);
    expect_text(fixture.cache, "k", "k@2");
    expect_text(peer.cache, "k", "k@2");
    ck_assert_int_eq(server_int(&fixture.server, "EXISTS t:{k}:refresh"), 0);
    peer_close(&peer);
}

TEST(a_put_ends_a_refresh)
{
    up(AGEING_DUE_PCT, 0, 0);
    start_refresh();
    put(fixture.cache, "k", "mine");
    table_release(&fixture.table);
    WAIT_FOR(stats_of(fixture.cache).publishes_superseded == 1);
    expect_text(fixture.cache, "k", "mine");
}

static void expire(const char *key)
{
    EXPECT_OK(shed_expire(fixture.cache, shed_str(key), 0, 0, NULL));
}

TEST(an_expired_row_is_given_out_as_stale_and_loaded_again)
{
    up(0, STALE_MS, 0);
    table_update(&fixture.table);
    table_hold(&fixture.table);
    expire("k");
    age("t:{k}", STALE_MS / 4); /* stale by any estimate of the clock */
    do
        expect_text(fixture.cache, "k", "k@1");
    while (table_running(&fixture.table) == 0);
    expect_origin(fixture.cache, "k", "k@1", SHED_ORIGIN_STALE);
    table_release(&fixture.table);
    WAIT_FOR(has_text(fixture.cache, "k@2"));
    expect_origin(fixture.cache, "k", "k@2", SHED_ORIGIN_REDIS);
    ck_assert_uint_eq(loads(), 1);
}

TEST(a_refresh_from_before_an_expiry_does_not_make_the_row_fresh)
{
    up(AGEING_DUE_PCT, STALE_MS, 0);
    start_refresh(); /* it has read the first version */
    expire("k");
    table_release(&fixture.table);
    WAIT_FOR(stats_of(fixture.cache).publishes_invalidated == 1);
    WAIT_FOR(has_text(fixture.cache, "k@2"));
}

static uint64_t fresh_ms(void)
{
    struct shed_value *value = NULL;
    uint64_t left_ms;

    EXPECT_OK(shed_get(fixture.cache, shed_str("k"), NULL, &value, NULL));
    left_ms = value->fresh_ms;
    shed_value_unref(value);
    return left_ms;
}

static void expire_in(uint64_t in_ms)
{
    EXPECT_OK(shed_expire(fixture.cache, shed_str("k"), in_ms, 0, NULL));
}

TEST(a_row_that_expires_in_a_while_is_fresh_until_then)
{
    up(0, STALE_MS, 0);
    table_update(&fixture.table);
    table_hold(&fixture.table);
    expire_in(1000000);
    expect_origin(fixture.cache, "k", "k@1", SHED_ORIGIN_REDIS);
    ck_assert_uint_le(fresh_ms(), 1000000);
    ck_assert_uint_gt(fresh_ms(), 0);
    expire_in(2000000); /* that is later */
    ck_assert_uint_le(fresh_ms(), 1000000);
    expire_in(100);
    while (fresh_ms() > 0)
        usleep(1000);
    expect_origin(fixture.cache, "k", "k@1", SHED_ORIGIN_STALE);
    table_release(&fixture.table);
    WAIT_FOR(has_text(fixture.cache, "k@2"));
    ck_assert_uint_eq(loads(), 1);
}

TEST(without_a_window_an_expired_row_is_waited_for)
{
    up(0, 0, 0);
    table_update(&fixture.table);
    expire("k");
    WAIT_FOR(has_text(fixture.cache, "k@2"));
}

TEST(what_expire_is_given_is_checked)
{
    struct shed_error err = {0};

    up(0, 0, 0);
    EXPECT_CODE(shed_expire(fixture.cache, shed_str(""), 0, 0, &err),
                SHED_EINVAL);
    EXPECT_CODE(shed_expire(NULL, shed_str("k"), 0, 0, &err), SHED_EINVAL);
    EXPECT_CODE(shed_expire(fixture.cache, shed_str("k"), UINT64_MAX, 0, &err),
                SHED_EINVAL);
    ck_assert_ptr_ne(strstr(err.reason, "in_ms"), NULL);
    expire("not there");
}

/* ------------------------------------------------------------------ errors */

TEST(a_failing_load_gives_the_old_row)
{
    up(0, 0, STALE_MS);
    age("t:{k}", PAST_TTL_MS);
    table_fail(&fixture.table, true);
    for (int i = 0; i < 20; i++)
        expect_origin(fixture.cache, "k", "k@1", SHED_ORIGIN_STALE);
    ck_assert_uint_eq(stats_of(fixture.cache).stale, 20);
    ck_assert_uint_eq(stats_of(fixture.cache).errors_source, 0);
    table_fail(&fixture.table, false);
    table_update(&fixture.table);
    WAIT_FOR(has_text(fixture.cache, "k@2"));
}

TEST(a_failure_marker_spares_the_source_and_the_old_row_is_given_out)
{
    struct peer peer;
    unsigned before;

    up(0, 0, STALE_MS);
    peer_open(&peer, &fixture);
    WAIT_FOR(knows_the_clock(peer.cache));
    age("t:{k}", PAST_TTL_MS);
    table_fail(&fixture.table, true);
    expect_origin(fixture.cache, "k", "k@1", SHED_ORIGIN_STALE);
    WAIT_FOR(is_marked());
    ck_assert_int_eq(server_int(&fixture.server, "PERSIST t:{k}:refresh"), 1);
    before = loads();
    expect_origin(peer.cache, "k", "k@1", SHED_ORIGIN_STALE);
    expect_origin(fixture.cache, "k", "k@1", SHED_ORIGIN_STALE);
    ck_assert_uint_eq(loads(), before);
    ck_assert_int_eq(server_int(&fixture.server, "DEL t:{k}:refresh"), 1);
    peer_close(&peer);
}

/* 0: beyond the window; 1: without it. */
TEST_EACH(elsewhere_a_failing_load_is_a_failure, 0, 2)
{
    up(0, _i == 1 ? STALE_MS : 0, _i == 1 ? 0 : STALE_MS);
    age("t:{k}", PAST_STALE_MS);
    table_fail(&fixture.table, true);
    expect_code(fixture.cache, "k", SHED_ESOURCE, NULL);
}

TEST(a_load_that_takes_too_long_gives_the_old_row)
{
    struct getter getter = {.timeout_ms = scaled_ms(200)};

    up(0, 0, STALE_MS);
    age("t:{k}", PAST_TTL_MS);
    table_hold(&fixture.table);
    getter_start(&getter, fixture.cache, "k");
    getter_expect(&getter, "k@1", SHED_ORIGIN_STALE);
    /* and a caller that comes while the load is still under way */
    getter = (struct getter){.timeout_ms = scaled_ms(200)};
    getter_start(&getter, fixture.cache, "k");
    getter_expect(&getter, "k@1", SHED_ORIGIN_STALE);
    table_release(&fixture.table);
}

TEST(get_many_gives_old_rows_too)
{
    struct shed_item items[] = {{.key = {"k", 1}}, {.key = {"new", 3}}};

    up(0, 0, STALE_MS);
    age("t:{k}", PAST_TTL_MS);
    table_fail(&fixture.table, true);
    EXPECT_CODE(shed_get_many(fixture.cache, items, 2, NULL, NULL),
                SHED_ESOURCE);
    EXPECT_OK(items[0].code);
    check_text(items[0].value, "k@1");
    ck_assert_int_eq(items[0].value->origin, SHED_ORIGIN_STALE);
    EXPECT_CODE(items[1].code, SHED_ESOURCE);
    ck_assert_ptr_null(items[1].value);
    shed_value_unref(items[0].value);
}

TEST(a_refresh_that_fails_is_not_tried_at_each_hit)
{
    long long asked;

    calls_init(0, 0);
    fixture.cache_options.refresh_after_pct = AGEING_DUE_PCT;
    /* the pause after a failure is longer than this test takes */
    fixture.cache_options.failure_ttl_ms = 60000;
    calls_open();
    age("t:{k}", AGEING_DUE_MS);
    table_fail(&fixture.table, true);
    do
        expect_origin(fixture.cache, "k", "k@1", SHED_ORIGIN_REDIS);
    while (!is_marked());
    asked = server_calls(&fixture.server, "evalsha");
    for (int i = 0; i < 1000; i++)
        expect_origin(fixture.cache, "k", "k@1", SHED_ORIGIN_REDIS);
    ck_assert_int_eq(server_calls(&fixture.server, "evalsha"), asked);
}

/* A row is past its time, and being loaded again; the peer has read nothing. */
static void hold_expired(struct getter *mine, struct peer *peer)
{
    up(0, 0, STALE_MS);
    peer_open(peer, &fixture);
    WAIT_FOR(knows_the_clock(peer->cache));
    age("t:{k}", PAST_TTL_MS);
    table_update(&fixture.table);
    getter_hold(mine, &fixture, "k");
}

TEST(expired_callers_of_many_clients_share_one_load)
{
    struct getter mine = {0}, others = {0};
    struct peer peer;
    long long asked;

    hold_expired(&mine, &peer);
    asked = server_calls(&fixture.server, "evalsha");
    getter_start(&others, peer.cache, "k");
    WAIT_FOR(server_calls(&fixture.server, "evalsha") > asked);
    table_release(&fixture.table);
    getter_expect(&mine, "k@2", SHED_ORIGIN_LOAD);
    getter_expect(&others, "k@2", SHED_ORIGIN_WAITED);
    ck_assert_uint_eq(loads(), 1);
    peer_close(&peer);
}

/* ----------------------------------------------------------------- options */

static void expect_refused(const char *field)
{
    struct shed_cache *cache = NULL;
    struct shed_error err = {0};

    EXPECT_CODE(shed_cache_open(fixture.client, "other", fixture.source,
                                &fixture.cache_options, &cache, &err),
                SHED_EINVAL);
    ck_assert_msg(strstr(err.reason, field) != NULL, "%s", err.reason);
}

/* A push wakes the waiter, and what it finds is the row from before. */
TEST(a_row_past_its_time_is_no_answer_to_a_waiter)
{
    struct getter mine = {0}, others = {0};
    struct peer peer;
    long long asked;

    hold_expired(&mine, &peer);
    getter_start(&others, peer.cache, "k");
    WAIT_FOR(stats_of(peer.cache).waits == 1);
    asked = server_calls(&fixture.server, "evalsha");
    server_do(&fixture.server, "PEXPIRE t:{k} 600000");
    WAIT_FOR(stats_of(peer.cache).pushes > 0 &&
             server_calls(&fixture.server, "evalsha") > asked);
    table_release(&fixture.table);
    getter_expect(&mine, "k@2", SHED_ORIGIN_LOAD);
    getter_expect(&others, "k@2", SHED_ORIGIN_WAITED);
    peer_close(&peer);
}

/* Without a row that is only for a load that fails, it would do nothing. */
TEST(options_that_do_nothing_are_refused)
{
    struct shed_cache_options *o = &fixture.cache_options;
    struct shed_cache *cache = NULL;

    up(0, 0, 0);
    o->refresh_after_pct = 101; /* test_option_ranges has the others */
    expect_refused("refresh_after_pct");
    o->refresh_after_pct = 0;
    o->soft_timeout_ms = 500;
    expect_refused("soft_timeout_ms is 500");
    expect_refused("unless stale_if_error_ms (0) exceeds ");
    o->stale_while_revalidate_ms = STALE_MS;
    o->stale_if_error_ms = STALE_MS;
    expect_refused("stale_while_revalidate_ms");
    o->stale_if_error_ms = STALE_MS + 1;
    EXPECT_OK(shed_cache_open(fixture.client, "other", fixture.source, o,
                              &cache, NULL));
    shed_cache_close(cache);
}

TEST_EACH(redis_keeps_rows_for_the_longer_window, 0, 2)
{
    const long long more = (long long)(AGEING_TTL_MS + STALE_MS / 2);

    if (_i == 0)
        up(0, 1, STALE_MS);
    else
        up(0, STALE_MS, 1);
    ck_assert_int_gt(server_int(&fixture.server, "PTTL t:{k}"), more);
    put(fixture.cache, "put", "mine");
    ck_assert_int_gt(server_int(&fixture.server, "PTTL t:{put}"), more);
}

int main(void)
{
    return run_fixture_tests("refresh");
}
