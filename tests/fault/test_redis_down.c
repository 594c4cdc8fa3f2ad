/* SHED_REDIS_DOWN_STALE, on a real Redis that is killed, stopped or cut off:
 * what this process still has is given out for as long as its windows say, and
 * costs the source nothing; what this process has written is never missed; and
 * when Redis is back, it decides. */
#include <stdio.h>
#include <string.h>

#include "cache/cache.h"
#include "support/ageing.h"
#include "support/fixture.h"

/* More than a client's idea of the server's clock can be wrong, and than a test
 * takes. */
#define MARGIN_MS UINT64_C(1800000)

static struct proxy proxy;
static unsigned loads_before; /* Redis went away */
static struct shed_stats stats_before;

/* A client that takes no silence for trouble. */
static void init_patient(void)
{
    fixture.cache_options.redis_down = SHED_REDIS_DOWN_STALE;
    fixture.cache_options.ttl_ms = AGEING_TTL_MS;
}

static void init(void)
{
    init_patient();
    fixture_hurry(&fixture, 100);
}

static struct shed_local_size kept(void)
{
    return shed_local_size(fixture.cache->local);
}

/* Get a row until it is kept as Redis has it: at first the clock of the server
 * is not known. */
static void have(const char *key, const char *text)
{
    uint64_t rows = kept().rows;

    WAIT_FOR((expect_text(fixture.cache, key, text), kept().rows > rows));
}

/* The row in the database changes, and Redis is about to go. */
static void begin_trouble(void)
{
    table_update(&fixture.table);
    loads_before = table_loads(&fixture.table);
    stats_before = stats_of(fixture.cache);
}

static unsigned loads(void)
{
    return table_loads(&fixture.table) - loads_before;
}

static uint64_t local_hits(void)
{
    return stats_of(fixture.cache).local_hits - stats_before.local_hits;
}

static void up_and_have_k(void)
{
    fixture_open(&fixture);
    have("k", "k@1");
    begin_trouble();
}

/* As up_and_have_k, and Redis dies. */
static void up_and_lose_redis(void)
{
    init();
    up_and_have_k();
    server_kill(&fixture.server);
}

/* As rows that are kept are given out: from nowhere else. */
static void expect_kept(const char *key, const char *text)
{
    unsigned loads_then = loads();
    uint64_t local_hits_then = local_hits();

    expect_origin(fixture.cache, key, text, SHED_ORIGIN_STALE);
    ck_assert_uint_eq(loads(), loads_then);
    ck_assert_uint_eq(local_hits(), local_hits_then + 1);
}

static void expect_loaded(const char *key, const char *text)
{
    unsigned loads_then = loads();

    expect_origin(fixture.cache, key, text, SHED_ORIGIN_UNPUBLISHED);
    ck_assert_uint_eq(loads(), loads_then + 1);
}

static void expect_with(const struct shed_get_options *options,
                        const char *text, enum shed_origin origin)
{
    expect_get(fixture.cache, "k", options, text, origin);
}

static bool comes_from(enum shed_origin origin)
{
    return gets_from(fixture.cache, "k", NULL, origin);
}

#define ONLY_CACHED GET_WITH(.only_cached = 1)
#define NOT_STALE GET_WITH(.allow_stale = SHED_STALE_NEVER)

/* Without loading and without a stale row there is none. */
static void expect_none(void)
{
    struct shed_value *value;

    EXPECT_CODE(
        shed_get(fixture.cache, shed_str("k"),
                 GET_WITH(.only_cached = 1, .allow_stale = SHED_STALE_NEVER),
                 &value, NULL),
        SHED_EREDIS);
}

/* A row that another process has loaded, and which is this old when this
 * process, which begins nothing, sees it. Then Redis is gone. */
static void have_aged(const char *key, uint64_t by_ms)
{
    struct peer peer;
    char name[32];

    snprintf(name, sizeof(name), "t:{%s}", key);
    fixture_open(&fixture);
    peer_open(&peer, &fixture);
    WAIT_FOR(gets_from(peer.cache, key, NULL, SHED_ORIGIN_REDIS));
    peer_close(&peer);
    age_entry(&fixture.server, name, by_ms);
    WAIT_FOR((gets_from(fixture.cache, key, ONLY_CACHED, SHED_ORIGIN_REDIS),
              kept().rows == 1));
    begin_trouble();
    server_kill(&fixture.server);
}

/* ------------------------------------------------------------- fresh rows */

TEST(a_hot_row_costs_nothing_while_redis_is_dead)
{
    enum { GETS = 200 };
    struct shed_item items[] = {{.key = shed_str("k")}, {.key = shed_str("k")}};

    up_and_lose_redis();
    for (int i = 0; i < GETS; i++)
        expect_kept("k", "k@1");
    EXPECT_OK(shed_get_many(fixture.cache, items, 2, NULL, NULL));
    for (size_t i = 0; i < 2; i++) {
        check_text(items[i].value, "k@1");
        ck_assert_int_eq(items[i].value->origin, SHED_ORIGIN_STALE);
        ck_assert_uint_eq(items[i].value->fresh_ms, 0);
        shed_value_unref(items[i].value);
    }
    expect_with(ONLY_CACHED, "k@1", SHED_ORIGIN_STALE);
    ck_assert_uint_eq(loads(), 0);
    ck_assert_uint_eq(local_hits(), GETS + 3);
    ck_assert_uint_eq(stats_of(fixture.cache).stale - stats_before.stale,
                      GETS + 3);
}

TEST(what_is_loaded_meanwhile_costs_one_query)
{
    up_and_lose_redis();
    expect_loaded("l", "l@2");
    table_update(&fixture.table);
    for (int i = 0; i < 50; i++)
        expect_kept("l", "l@2");
}

/* 1: it answers that it loads its data. */
TEST_EACH(a_row_is_given_out_while_redis_hangs, 0, 2)
{
    init();
    fixture_add_proxy(&fixture, &proxy);
    up_and_have_k();
    proxy_set(&proxy, _i == 0 ? PROXY_SWALLOW : PROXY_ANSWER, 0,
              "-LOADING Redis is loading\r\n");
    for (int i = 0; i < 5; i++)
        expect_kept("k", "k@1");
    proxy_set(&proxy, PROXY_PASS, 0, NULL);
    WAIT_FOR(comes_from(SHED_ORIGIN_REDIS));
}

/* A call that Redis does not answer before its deadline. */
TEST(a_row_is_better_than_a_deadline)
{
    init();
    fixture.client_options.command_timeout_ms = scaled_ms(FIXTURE_SILENCE_MS);
    up_and_have_k();
    server_freeze(&fixture.server);
    expect_with(WITHIN(60), "k@1", SHED_ORIGIN_STALE);
    server_thaw(&fixture.server);
}

TEST(absence_is_kept_for_its_ttl)
{
    init();
    fixture.cache_options.negative_ttl_ms = AGEING_TTL_MS;
    fixture.cache_options.stale_while_revalidate_ms = AGEING_TTL_MS;
    have_aged("absent", AGEING_DUE_MS);
    expect_kind(fixture.cache, "absent", SHED_KIND_ABSENT);
    ck_assert_uint_eq(local_hits(), 1);
    ck_assert_uint_eq(loads(), 0);
}

/* ---------------------------------------------------------------- windows */

TEST(a_row_that_is_due_is_not_loaded_again)
{
    init();
    fixture.cache_options.refresh_after_pct = AGEING_DUE_PCT;
    have_aged("k", AGEING_DUE_MS + MARGIN_MS);
    expect_kept("k", "k@1");
    expect_kept("k", "k@1");
}

TEST(within_stale_while_revalidate_it_is_loaded_in_the_background)
{
    init();
    fixture.cache_options.stale_while_revalidate_ms = AGEING_TTL_MS;
    have_aged("k", AGEING_TTL_MS + MARGIN_MS);
    table_hold(&fixture.table);
    for (int i = 0; i < 20; i++)
        expect_origin(fixture.cache, "k", "k@1", SHED_ORIGIN_STALE);
    WAIT_FOR(table_running(&fixture.table) == 1);
    expect_origin(fixture.cache, "k", "k@1", SHED_ORIGIN_STALE);
    table_release(&fixture.table);
    WAIT_FOR(stats_of(fixture.cache).unpublished == 1);
    expect_kept("k", "k@2");
    ck_assert_uint_eq(loads(), 1);
}

TEST(within_stale_if_error_it_is_given_out_if_the_load_fails)
{
    init();
    fixture.cache_options.stale_if_error_ms = AGEING_TTL_MS;
    have_aged("k", AGEING_TTL_MS + MARGIN_MS);
    fixture.table.is_failing = true;
    expect_origin(fixture.cache, "k", "k@1", SHED_ORIGIN_STALE);
    ck_assert_uint_eq(loads(), 1);
    ck_assert_uint_eq(local_hits(), 1);
    fixture.table.is_failing = false;
    expect_loaded("k", "k@2");
    expect_kept("k", "k@2");
}

TEST(a_call_that_may_not_load_takes_it_within_stale_if_error)
{
    init();
    fixture.cache_options.stale_if_error_ms = AGEING_TTL_MS;
    have_aged("k", AGEING_TTL_MS + MARGIN_MS);
    expect_with(ONLY_CACHED, "k@1", SHED_ORIGIN_STALE);
    expect_none();
}

/* Redis can keep it longer than the windows of this process. */
TEST(a_row_beyond_its_windows_is_dropped)
{
    init();
    fixture.cache_options.stale_while_revalidate_ms = 1000;
    fixture.cache_options.stale_if_error_ms = AGEING_TTL_MS;
    have_aged("k", 2 * AGEING_TTL_MS - MARGIN_MS);
    expect_with(ONLY_CACHED, "k@1", SHED_ORIGIN_STALE);
    server_start_again(&fixture.server);
    WAIT_FOR(comes_from(SHED_ORIGIN_REDIS));
    age_entry(&fixture.server, "t:{k}", 2 * AGEING_TTL_MS + MARGIN_MS);
    WAIT_FOR((gets_from(fixture.cache, "k", ONLY_CACHED, SHED_ORIGIN_REDIS),
              kept().rows == 0));
}

/* ---------------------------------------------------------- what calls ask */

TEST(a_call_that_wants_nothing_stale_goes_to_the_source)
{
    up_and_lose_redis();
    expect_with(NOT_STALE, "k@2", SHED_ORIGIN_UNPUBLISHED);
    table_update(&fixture.table);
    expect_kept("k", "k@2");
    expect_none();
}

TEST(a_row_that_is_too_old_for_a_call_is_loaded_for_it)
{
    init();
    have_aged("k", AGEING_DUE_MS);
    expect_with(GET_WITH(.max_age_ms = AGEING_DUE_MS + MARGIN_MS), "k@1",
                SHED_ORIGIN_STALE);
    for (unsigned i = 0; i < 2; i++) {
        expect_with(GET_WITH(.max_age_ms = AGEING_DUE_MS - MARGIN_MS), "k@2",
                    i == 0 ? SHED_ORIGIN_UNPUBLISHED : SHED_ORIGIN_STALE);
        table_update(&fixture.table);
    }
}

/* It reads a replica, say, whose row has a lower version. */
TEST(a_source_that_lags_does_not_replace_a_newer_row)
{
    init();
    fixture.table.has_versions = true;
    fixture.table.version = 7;
    fixture_open(&fixture);
    have("k", "k@7");
    begin_trouble();
    server_kill(&fixture.server);
    table_set_version(&fixture.table, 6);
    expect_with(NOT_STALE, "k@6", SHED_ORIGIN_UNPUBLISHED);
    expect_kept("k", "k@7");
    table_set_version(&fixture.table, 9);
    expect_with(NOT_STALE, "k@9", SHED_ORIGIN_UNPUBLISHED);
    expect_kept("k", "k@9");
    table_set_version(&fixture.table, 8);
    expect_with(NOT_STALE, "k@8", SHED_ORIGIN_UNPUBLISHED);
    expect_kept("k", "k@9");
}

/* -------------------------------------------------------------- own writes */

static enum shed_code invalidate_one(void)
{
    return invalidate_code(fixture.cache, "k");
}

static enum shed_code invalidate_many(void)
{
    const struct shed_bytes key = shed_str("k");

    return shed_invalidate_many(fixture.cache, &key, 1, 0, NULL);
}

static enum shed_code put_row(void)
{
    return shed_put(fixture.cache, shed_str("k"), shed_str("k@2"), NULL, NULL);
}

static enum shed_code put_version(void)
{
    return shed_put(fixture.cache, shed_str("k"), shed_str("k@2"),
                    AT_VERSION(2), NULL);
}

static enum shed_code expire(void)
{
    return shed_expire(fixture.cache, shed_str("k"), 0, 0, NULL);
}

static enum shed_code (*const writes[])(void) = {
    invalidate_one, invalidate_many, put_row, put_version, expire};

/* Also the reads after the first one, which do not ask the source again though
 * Redis still has to be told. */
TEST_EACH(an_own_write_is_never_missed, 0, COUNT_OF(writes))
{
    up_and_lose_redis();
    expect_kept("k", "k@1");
    EXPECT_CODE(writes[_i](), SHED_EREDIS);
    expect_loaded("k", "k@2");
    expect_kept("k", "k@2");
    expect_kept("k", "k@2");
}

/* Redis has carried it out, and then it is gone. */
TEST_EACH(an_own_write_that_redis_knows_is_not_missed_either, 0,
          COUNT_OF(writes))
{
    init();
    up_and_have_k();
    WAIT_FOR(writes[_i]() == SHED_OK);
    server_kill(&fixture.server);
    expect_loaded("k", "k@2");
}

/* As soon as there is no connection, and not when Redis would refuse it. */
TEST(a_put_that_could_not_be_sent_ends_with_the_try_to_connect)
{
    enum { CONNECT_MS = 200, TRY_MS = 1000 };
    uint64_t begun_ms;

    init_patient();
    fixture.client_options.connect_timeout_ms = CONNECT_MS;
    fixture_add_proxy(&fixture, &proxy);
    proxy_set(&proxy, PROXY_SWALLOW, 0, NULL);
    fixture_open(&fixture);
    begun_ms = shed_now_ms();
    EXPECT_CODE(put_row(), SHED_EREDIS);
    ck_assert_uint_lt(shed_now_ms() - begun_ms, TRY_MS);
}

TEST(a_load_from_before_an_own_write_is_not_kept)
{
    struct getter before = {0};

    init();
    fixture_open(&fixture);
    server_kill(&fixture.server);
    getter_hold(&before, &fixture, "k");
    table_update(&fixture.table);
    EXPECT_CODE(invalidate_one(), SHED_EREDIS);
    table_release(&fixture.table);
    getter_expect(&before, "k@1", SHED_ORIGIN_UNPUBLISHED);
    ck_assert_uint_eq(kept().rows, 0);
    expect_loaded("k", "k@2");
}

/* An invalidation by others refuses the load in Redis. */
TEST(a_load_that_was_invalidated_elsewhere_is_not_kept)
{
    struct getter before = {0};

    init_patient();
    fixture_open(&fixture);
    getter_hold(&before, &fixture, "k");
    ck_assert_int_eq(server_int(&fixture.server, "DEL t:{k}"), 1);
    table_release(&fixture.table);
    getter_expect(&before, "k@1", SHED_ORIGIN_UNPUBLISHED);
    WAIT_FOR(kept().rows == 0);
}

/* ------------------------------------------------------------- its return */

TEST(when_redis_is_back_it_decides)
{
    struct peer peer;

    init();
    fixture_add_proxy(&fixture, &proxy);
    up_and_have_k();
    fixture.uri = fixture.server.uri;
    peer_open(&peer, &fixture);
    proxy_set(&proxy, PROXY_SWALLOW, 0, NULL);
    WAIT_FOR(invalidate_code(peer.cache, "k") == SHED_OK);
    expect_text(peer.cache, "k", "k@2");
    expect_kept("k", "k@1");
    proxy_set(&proxy, PROXY_PASS, 0, NULL);
    WAIT_FOR(!comes_from(SHED_ORIGIN_STALE));
    expect_text(fixture.cache, "k", "k@2");
    peer_close(&peer);
}

/* One that answers reads decides, too: what it has not is not given out. */
TEST(a_redis_that_refuses_writes_is_believed)
{
    init_patient();
    up_and_have_k();
    server_do(&fixture.server, "DEL t:{k}");
    server_do(&fixture.server, "CONFIG SET maxmemory 1");
    expect_loaded("k", "k@2");
    expect_loaded("k", "k@2");
    server_do(&fixture.server, "CONFIG SET maxmemory 0");
}

/* ------------------------------------------------------------ the bound */

TEST(the_memory_is_bounded)
{
    enum { KEYS = 2000, LIMIT = 65536 };
    char key[16], row[32];

    init();
    fixture.cache_options.local_bytes = LIMIT;
    fixture_open(&fixture);
    for (int i = 0; i < KEYS; i++) {
        snprintf(key, sizeof(key), "k%d", i);
        snprintf(row, sizeof(row), "k%d@1", i);
        expect_text(fixture.cache, key, row);
        ck_assert_uint_le(kept().bytes, LIMIT);
    }
    ck_assert_uint_gt(kept().rows, 10);
    server_kill(&fixture.server);
    expect_kept(key, row);
}

TEST_EACH(other_policies_keep_nothing, 0, 2)
{
    const uint64_t policies[] = {SHED_REDIS_DOWN_SOURCE, SHED_REDIS_DOWN_FAIL};

    init();
    fixture.cache_options.redis_down = policies[_i];
    fixture_open(&fixture);
    expect_text(fixture.cache, "k", "k@1");
    ck_assert_ptr_null(fixture.cache->local);
}

int main(void)
{
    return run_fixture_tests("redis_down");
}
