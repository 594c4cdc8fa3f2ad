/* A cache between a real Redis and a real database, and programs that break its
 * rules: an invalidation before COMMIT, a source that reads a copy of the
 * database which lags behind. What that costs has a bound. */
#include <stdio.h>
#include <string.h>

#include "support/ageing.h"
#include "support/fixture.h"
#include "support/mysql_testing.h"

#define OF_PRIMARY "SELECT k, v, n AS version FROM original WHERE k IN (?)"
#define OF_REPLICA "SELECT k, v, n AS version FROM copied WHERE k IN (?)"

static struct site site;

static void up(const char *query)
{
    open_site(&site, getenv("SHED_TEST_MYSQL"));
    run_sql(&site, "CREATE TABLE original (k VARCHAR(100) PRIMARY KEY, v TEXT, "
                   "n BIGINT) ENGINE = InnoDB");
    run_sql(&site, "INSERT INTO original VALUES ('k', 'old', 1)");
    run_sql(&site, "CREATE TABLE copied AS SELECT * FROM original");
    fixture_open(&fixture);
    shed_cache_close(fixture.cache);
    shed_source_close(fixture.source);
    fixture.source = open_source(&site, query, NULL);
    fixture.cache_options.ttl_ms = AGEING_TTL_MS;
    fixture.cache_options.failure_ttl_ms = 1;
    EXPECT_OK(shed_cache_open(fixture.client, "t", fixture.source,
                              &fixture.cache_options, &fixture.cache, NULL));
}

static void down(void)
{
    fixture_down(&fixture);
    close_site(&site);
}

static void update_original(void)
{
    run_sql(&site, "UPDATE original SET v = 'new', n = 2");
}

/* It is there, for no longer than a row may be. */
static void expect_old_for_a_ttl(void)
{
    long long left_ms;

    expect_origin(fixture.cache, "k", "old", SHED_ORIGIN_REDIS);
    left_ms = server_int(&fixture.server, "PTTL t:{k}");
    ck_assert(left_ms > 0 &&
              (uint64_t)left_ms <= fixture.cache_options.ttl_ms + LEEWAY_MS);
}

TEST(an_invalidation_before_the_commit_costs_at_most_the_ttl)
{
    up(OF_PRIMARY);
    expect_origin(fixture.cache, "k", "old", SHED_ORIGIN_LOAD);
    run_sql(&site, "BEGIN");
    update_original();
    invalidate(fixture.cache, "k");
    expect_origin(fixture.cache, "k", "old", SHED_ORIGIN_LOAD);
    run_sql(&site, "COMMIT");
    expect_old_for_a_ttl();
    invalidate(fixture.cache, "k");
    expect_origin(fixture.cache, "k", "new", SHED_ORIGIN_LOAD);
}

TEST(a_source_that_lags_costs_at_most_the_ttl)
{
    up(OF_REPLICA);
    expect_origin(fixture.cache, "k", "old", SHED_ORIGIN_LOAD);
    update_original();
    invalidate(fixture.cache, "k");
    expect_origin(fixture.cache, "k", "old", SHED_ORIGIN_LOAD);
    expect_old_for_a_ttl();
}

static void put_new(void)
{
    EXPECT_OK(shed_put(fixture.cache, shed_str("k"), shed_str("new"),
                       AT_VERSION(2), NULL));
}

/* The remedy: the writer puts the row with its version, in place of the
 * invalidation. */
TEST(a_put_with_a_version_beats_a_source_that_lags)
{
    struct getter getter = {0};

    up(OF_REPLICA);
    expect_origin(fixture.cache, "k", "old", SHED_ORIGIN_LOAD);
    update_original();
    put_new();
    expect_origin(fixture.cache, "k", "new", SHED_ORIGIN_REDIS);
    /* the other order: the copy is read before, and its row arrives after */
    invalidate(fixture.cache, "k");
    run_sql(&site, "LOCK TABLES copied WRITE");
    getter_start(&getter, fixture.cache, "k");
    WAIT_FOR(stats_of(fixture.cache).leases_won == 2);
    put_new();
    run_sql(&site, "UNLOCK TABLES");
    getter_expect(&getter, "new", SHED_ORIGIN_REDIS);
    expect_origin(fixture.cache, "k", "new", SHED_ORIGIN_REDIS);
}

/* A get that wants a row which is younger than the one in Redis. */
static enum shed_code read_again(void)
{
    struct shed_value *value = NULL;
    enum shed_code code;

    age_entry(&fixture.server, "t:{k}", 2 * STALE_MS);
    code = shed_get(fixture.cache, shed_str("k"),
                    GET_WITH(.max_age_ms = STALE_MS), &value, NULL);
    shed_value_unref(value);
    return code;
}

TEST(a_refresh_by_a_source_that_lags_leaves_the_row_that_was_put)
{
    up(OF_REPLICA);
    WAIT_FOR(knows_the_clock(fixture.cache));
    update_original();
    put_new();
    ck_assert_int_eq(read_again(), SHED_ESOURCE);
    ck_assert_uint_eq(stats_of(fixture.cache).load_failures, 1);
    expect_origin(fixture.cache, "k", "new", SHED_ORIGIN_REDIS);
    run_sql(&site, "UPDATE copied SET v = 'newer', n = 3");
    put_new(); /* ends the pause after the failure */
    EXPECT_OK(read_again());
    expect_origin(fixture.cache, "k", "newer", SHED_ORIGIN_REDIS);
}

int main(void)
{
    tcase_add_checked_fixture(test_case(), fixture_set_up, down);
    return run_tests("commit");
}
