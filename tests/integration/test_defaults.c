/* What a cache does whose user has set a ttl and nothing else: rows that are
 * read never expire, none is given out past its ttl, tags work, and a database
 * that fails is left alone. And what SERVE_STALE adds. */
#include "source/load.h"
#include "support/calls.h"

static void up(struct shed_cache_options options)
{
    calls_init(0, 0);
    fixture.client_options.breaker =
        (struct shed_breaker_options)SHED_BREAKER_OPTIONS_INIT;
    fixture.source_options =
        (struct shed_source_options)SHED_SOURCE_OPTIONS_INIT;
    options.ttl_ms = AGEING_TTL_MS;
    options.ttl_jitter_pct = 0;
    options.timeout_ms = fixture.cache_options.timeout_ms;
    fixture.cache_options = options;
    calls_open();
}

static void up_default(void)
{
    up((struct shed_cache_options)SHED_CACHE_OPTIONS_INIT);
}

static void up_serve_stale(void)
{
    up((struct shed_cache_options)SHED_CACHE_OPTIONS_SERVE_STALE);
}

TEST(a_row_that_is_read_is_loaded_again_before_it_expires)
{
    up_default();
    age_k(AGEING_TTL_MS / 2);
    do
        ck_assert_uint_eq(stats_of(fixture.cache).stale, 0);
    while (!has_text(fixture.cache, "k@2"));
    ck_assert_uint_eq(loads(), 1);
}

TEST(no_row_is_given_out_past_its_ttl)
{
    up_default();
    age_k(AGEING_TTL_MS + 1000);
    table_fail(&fixture.table, true);
    expect_failure("k", get_defaults, SHED_ESOURCE);
    table_fail(&fixture.table, false);
}

TEST(all_entries_and_tags_can_be_invalidated)
{
    const struct shed_bytes tag = shed_str("all");

    up_default();
    fixture.table.has_tags = true;
    EXPECT_OK(shed_invalidate_all(fixture.cache, 0, NULL));
    table_update(&fixture.table);
    expect_with("k", get_defaults, "k@2", SHED_ORIGIN_LOAD);
    EXPECT_OK(shed_invalidate_tags(fixture.cache, &tag, 1, 0, NULL));
    table_update(&fixture.table);
    expect_with("k", get_defaults, "k@3", SHED_ORIGIN_LOAD);
}

TEST(a_database_that_fails_is_left_alone)
{
    enum { LOADS = 40 };
    char key[16];

    up_default();
    table_fail(&fixture.table, true);
    for (unsigned i = 0; i < LOADS; i++) {
        snprintf(key, sizeof(key), "k%u", i);
        expect_failure(key, get_defaults, SHED_ESOURCE);
    }
    ck_assert_uint_lt(loads(), LOADS);
    ck_assert_uint_ge(shed_source_look(fixture.source).breaker.openings, 1);
    table_fail(&fixture.table, false);
}

TEST(serve_stale_gives_an_old_row_for_a_minute_at_once)
{
    up_serve_stale();
    age_k(AGEING_TTL_MS + 20000);
    table_hold(&fixture.table);
    expect_with("k", get_defaults, "k@1", SHED_ORIGIN_STALE);
    table_release(&fixture.table);
    WAIT_FOR(has_text(fixture.cache, "k@2"));
}

TEST(serve_stale_gives_an_old_row_for_an_hour_if_the_load_fails)
{
    up_serve_stale();
    age_k(AGEING_TTL_MS + 1800000);
    table_fail(&fixture.table, true);
    expect_with("k", get_defaults, "k@1", SHED_ORIGIN_STALE);
    table_fail(&fixture.table, false);
}

TEST(serve_stale_gives_an_old_row_if_the_load_is_slow)
{
    up_serve_stale();
    age_k(AGEING_TTL_MS + 1800000);
    table_hold(&fixture.table);
    expect_with("k", get_defaults, "k@1", SHED_ORIGIN_STALE);
    table_release(&fixture.table);
}

TEST(serve_stale_gives_local_rows_while_redis_is_away)
{
    up_serve_stale();
    server_kill(&fixture.server);
    WAIT_FOR(has_text(fixture.cache, "k@1"));
    ck_assert_uint_eq(loads(), 0);
    ck_assert_uint_ge(stats_of(fixture.cache).local_hits, 1);
    server_start_again(&fixture.server);
}

int main(void)
{
    return run_fixture_tests("defaults");
}
