/* Rows with versions: puts in either order, sources that find a row unmodified,
 * and times to live of a source's own. */
#include <string.h>

#include "support/bare.h"
#include "support/ageing.h"
#include "support/fixture.h"

static void up(uint64_t refresh_after_pct, uint64_t if_error_ms)
{
    fixture.cache_options.ttl_ms = AGEING_TTL_MS;
    fixture.cache_options.refresh_after_pct = refresh_after_pct;
    fixture.cache_options.stale_if_error_ms = if_error_ms;
    fixture.table.has_versions = true;
    fixture_open(&fixture);
}

static void up_with_failure_ttl(uint64_t refresh_after_pct,
                                uint64_t failure_ttl_ms)
{
    fixture.cache_options.failure_ttl_ms = failure_ttl_ms;
    up(refresh_after_pct, 0);
}

static void put_version_by(struct shed_cache *cache, const char *row,
                           uint64_t version)
{
    EXPECT_OK(shed_put(cache, shed_str("k"), shed_str(row), AT_VERSION(version),
                       NULL));
}

static void put_version(const char *row, uint64_t version)
{
    put_version_by(fixture.cache, row, version);
}

static struct shed_value *get_k(struct shed_cache *cache)
{
    struct shed_value *value = NULL;

    EXPECT_OK(shed_get(cache, shed_str("k"), NULL, &value, NULL));
    return value;
}

static uint64_t age_of(struct shed_cache *cache, const char *text)
{
    struct shed_value *value = get_k(cache);
    uint64_t age_ms;

    check_text(value, text);
    age_ms = value->age_ms;
    shed_value_unref(value);
    return age_ms;
}

/* Once the clients know the server's clock, by which ages are counted. */
static void age(struct shed_cache *cache, uint64_t by_ms, const char *text)
{
    age_entry(&fixture.server, "t:{k}", by_ms);
    WAIT_FOR(age_of(cache, text) >= by_ms);
}

static unsigned loads(void)
{
    return table_loads(&fixture.table);
}

/* --------------------------------------------------------------------- puts */

TEST(the_higher_version_stays_in_either_order)
{
    up(0, 0);
    put_version("two", 2);
    put_version("one", 1);
    expect_text(fixture.cache, "k", "two");
    put_version("three", 3);
    expect_text(fixture.cache, "k", "three");
    put_version("last", UINT64_MAX);
    put_version("half", UINT64_MAX / 2);
    expect_text(fixture.cache, "k", "last");
    ck_assert_uint_eq(loads(), 0);
}

TEST(a_put_is_compared_with_what_was_loaded)
{
    up(0, 0);
    expect_text(fixture.cache, "k", "k@1"); /* in version 1 */
    put_version("older", 0);
    expect_text(fixture.cache, "k", "k@1");
    put_version("newer", 2);
    expect_text(fixture.cache, "k", "newer");
    ck_assert_uint_eq(loads(), 1);
}

TEST(what_has_no_version_is_removed_and_loaded)
{
    up(0, 0);
    fixture.table.has_versions = false;
    expect_text(fixture.cache, "k", "k@1");
    put_version("newer", 2);
    ck_assert_int_eq(server_int(&fixture.server, "EXISTS t:{k}"), 0);
    expect_text(fixture.cache, "k", "k@1");
    ck_assert_uint_eq(loads(), 2);
}

/* ---------------------------------------------------------- older than Redis
 */

/* Loads read this version from now on. */
static void set_version(unsigned version)
{
    table_set_version(&fixture.table, version);
}

static void put_due(const char *row, uint64_t version)
{
    put_version(row, version);
    age_entry(&fixture.server, "t:{k}", AGEING_DUE_MS);
}

static bool has_marker(void)
{
    return server_int(&fixture.server, "EXISTS t:{k}:refresh") == 1 &&
           stats_of(fixture.cache).load_failures > 0;
}

/* The marker of the first refresh keeps this process and others from trying
 * again for failure_ttl_ms, which does not end here. */
TEST(a_refresh_that_reads_a_lower_version_fails_and_is_not_repeated)
{
    struct peer peer;

    up_with_failure_ttl(AGEING_DUE_PCT, 60000);
    peer_open(&peer, &fixture);
    put_due("seven", 7);
    set_version(6);
    WAIT_FOR((age_of(fixture.cache, "seven"), has_marker()));
    for (int i = 0; i < 100; i++) {
        expect_text(fixture.cache, "k", "seven");
        expect_text(peer.cache, "k", "seven");
    }
    ck_assert_uint_eq(loads(), 1);
    ck_assert_uint_eq(stats_of(fixture.cache).published, 0);
    peer_close(&peer);
}

TEST(a_source_that_has_caught_up_is_believed_again)
{
    uint64_t failed;

    up_with_failure_ttl(AGEING_DUE_PCT, 1);
    put_due("seven", 7);
    set_version(6);
    WAIT_FOR((age_of(fixture.cache, "seven"), loads() > 1));
    set_version(8);
    WAIT_FOR(has_text(fixture.cache, "k@8"));
    set_version(7);
    failed = stats_of(fixture.cache).load_failures;
    age_entry(&fixture.server, "t:{k}", AGEING_DUE_MS);
    WAIT_FOR((age_of(fixture.cache, "k@8"),
              stats_of(fixture.cache).load_failures > failed));
    expect_text(fixture.cache, "k", "k@8");
}

/* A load that is refused is a failed one to callers who wait for it, too. */
TEST(a_waiter_for_a_lower_version_is_given_the_higher_one)
{
    up(0, STALE_MS);
    put_version("seven", 7);
    age(fixture.cache, 1, "seven");
    age_entry(&fixture.server, "t:{k}", PAST_TTL_MS);
    expect_origin(fixture.cache, "k", "seven", SHED_ORIGIN_STALE);
    ck_assert_uint_eq(loads(), 1);
    ck_assert_uint_eq(stats_of(fixture.cache).stale, 1);
}

static enum shed_code get_young(struct shed_cache *cache,
                                struct shed_value **value,
                                struct shed_error *err)
{
    return shed_get(cache, shed_str("k"), GET_WITH(.max_age_ms = AGEING_DUE_MS),
                    value, err);
}

static void expect_none_young(struct shed_cache *cache)
{
    struct shed_value *value = NULL;
    struct shed_error err;

    ck_assert_int_eq(get_young(cache, &value, &err), SHED_ESOURCE);
    ck_assert_ptr_null(value);
    ck_assert_ptr_nonnull(strstr(err.reason, "version 1"));
}

/* The second one is answered by the failure marker, as are other processes. */
TEST(a_row_that_is_too_old_is_not_given_though_the_source_has_an_older_one)
{
    struct peer peer;

    up_with_failure_ttl(0, 60000);
    peer_open(&peer, &fixture);
    put_version("seven", 7);
    age(fixture.cache, 1, "seven");
    age(peer.cache, AGEING_DUE_MS + 1, "seven");
    expect_none_young(fixture.cache);
    expect_none_young(fixture.cache);
    expect_none_young(peer.cache);
    ck_assert_uint_eq(loads(), 1);
    peer_close(&peer);
}

/* The put ends the refresh, whose row was read before it. */
TEST(a_waiter_for_a_refresh_is_given_what_is_put_meanwhile)
{
    struct getter getter = {0};
    struct peer peer;

    up(0, STALE_MS);
    peer_open(&peer, &fixture);
    put_version("seven", 7);
    age(fixture.cache, 1, "seven");
    age_entry(&fixture.server, "t:{k}", PAST_TTL_MS);
    set_version(8);
    table_hold(&fixture.table);
    getter_start(&getter, fixture.cache, "k");
    WAIT_FOR(table_running(&fixture.table) == 1);
    put_version_by(peer.cache, "nine", 9);
    table_release(&fixture.table);
    getter_expect(&getter, "nine", SHED_ORIGIN_REDIS);
    ck_assert_uint_eq(stats_of(fixture.cache).publishes_superseded, 1);
    peer_close(&peer);
}

TEST(a_lower_version_with_a_ttl_of_zero_removes_nothing)
{
    up_with_failure_ttl(AGEING_DUE_PCT, 60000);
    fixture.table.has_ttl = true;
    put_due("seven", 7);
    WAIT_FOR((age_of(fixture.cache, "seven"), has_marker()));
    expect_text(fixture.cache, "k", "seven");
}

TEST(what_is_loaded_without_a_version_replaces_any)
{
    up(AGEING_DUE_PCT, 0);
    fixture.table.has_versions = false;
    put_due("seven", 7);
    WAIT_FOR(has_text(fixture.cache, "k@1"));
}

static bool is_absent(void)
{
    struct shed_value *value = get_k(fixture.cache);
    bool is = value->kind == SHED_KIND_ABSENT;

    shed_value_unref(value);
    return is;
}

/* It was deleted, or the replica does not have it yet: nobody knows. */
TEST(a_row_that_is_gone_replaces_any_version)
{
    up(AGEING_DUE_PCT, 0);
    fixture.table.is_empty = true;
    put_due("seven", 7);
    WAIT_FOR(is_absent());
}

TEST(an_invalidation_forgets_the_version)
{
    up(0, 0);
    put_version("seven", 7);
    set_version(6);
    invalidate(fixture.cache, "k");
    expect_text(fixture.cache, "k", "k@6");
    put_version("five", 5);
    expect_text(fixture.cache, "k", "k@6");
}

/* --------------------------------------------------------------- unmodified */

TEST(an_unmodified_row_is_fresh_again_and_does_not_travel)
{
    up(AGEING_DUE_PCT, 0);
    expect_text(fixture.cache, "k", "k@1");
    ck_assert_int_eq(server_int(&fixture.server, "PEXPIRE t:{k} 3600000"), 1);
    age(fixture.cache, AGEING_DUE_MS, "k@1");
    WAIT_FOR(age_of(fixture.cache, "k@1") < AGEING_DUE_MS / 2);
    ck_assert_uint_eq(loads(), 2);
    ck_assert_uint_eq(stats_of(fixture.cache).unmodified, 1);
    WAIT_FOR(stats_of(fixture.cache).published == 2); /* a reply later */
    ck_assert_int_gt(server_int(&fixture.server, "PTTL t:{k}"),
                     (long long)AGEING_DUE_MS);
    ck_assert_int_eq(server_int(&fixture.server, "EXISTS t:{k}:refresh"), 0);
}

TEST(a_modified_row_replaces_the_old_one)
{
    up(AGEING_DUE_PCT, 0);
    expect_text(fixture.cache, "k", "k@1");
    table_update(&fixture.table);
    age_entry(&fixture.server, "t:{k}", AGEING_DUE_MS);
    WAIT_FOR(has_text(fixture.cache, "k@2"));
    ck_assert_uint_eq(stats_of(fixture.cache).unmodified, 0);
    ck_assert_uint_eq(loads(), 2);
}

/* Both clients have seen that it is due; the second one comes after the first
 * has renewed it. */
TEST(one_process_renews_a_row_for_all)
{
    struct peer peer;

    up(AGEING_DUE_PCT, 0);
    peer_open(&peer, &fixture);
    expect_text(fixture.cache, "k", "k@1");
    table_hold(&fixture.table);
    age(fixture.cache, AGEING_DUE_MS, "k@1");
    age_of(peer.cache, "k@1");
    WAIT_FOR(table_running(&fixture.table) == 1);
    table_release(&fixture.table);
    WAIT_FOR(age_of(fixture.cache, "k@1") < AGEING_DUE_MS / 2);
    WAIT_FOR(age_of(peer.cache, "k@1") < AGEING_DUE_MS / 2);
    /* a second refresh would be over before this */
    peer_close(&peer);
    ck_assert_uint_eq(loads(), 2);
}

/* The last get is the one that waits: its row was checked at the source. */
TEST(who_waits_for_an_unmodified_row_is_given_it)
{
    struct shed_value *value = NULL;

    up(0, STALE_MS);
    expect_text(fixture.cache, "k", "k@1");
    age_entry(&fixture.server, "t:{k}", PAST_TTL_MS);
    WAIT_FOR(
        (shed_value_unref(value), value = get_k(fixture.cache), loads() == 2));
    check_text(value, "k@1");
    ck_assert_int_eq(value->origin, SHED_ORIGIN_LOAD);
    ck_assert_uint_lt(value->age_ms, AGEING_DUE_MS);
    ck_assert_uint_gt(value->fresh_ms, 0);
    shed_value_unref(value);
    ck_assert_uint_eq(stats_of(fixture.cache).unmodified, 1);
}

/* Redis has its bytes, and is to keep them no longer. */
TEST(who_waits_for_an_unmodified_row_that_is_not_to_be_kept_is_given_it)
{
    struct shed_value *value;

    up(0, 0);
    expect_text(fixture.cache, "k", "k@1");
    fixture.table.has_ttl = true;
    age_entry(&fixture.server, "t:{k}", 2 * AGEING_DUE_MS);
    EXPECT_OK(get_young(fixture.cache, &value, NULL));
    check_text(value, "k@1");
    shed_value_unref(value);
    ck_assert_uint_eq(loads(), 2);
    ck_assert_uint_eq(stats_of(fixture.cache).unmodified, 1);
    ck_assert_int_eq(server_int(&fixture.server, "EXISTS t:{k}"), 0);
}

/* The entry that the load found unmodified is gone when it ends, so the row is
 * loaded again. */
TEST(an_invalidation_beats_an_unmodified_row)
{
    struct getter getter = {.timeout_ms = 0};

    up(0, STALE_MS);
    expect_text(fixture.cache, "k", "k@1");
    age(fixture.cache, 1, "k@1");
    age_entry(&fixture.server, "t:{k}", PAST_TTL_MS);
    getter_hold(&getter, &fixture, "k");
    ck_assert_int_eq(server_int(&fixture.server, "DEL t:{k}"), 1);
    table_release(&fixture.table);
    getter_join(&getter);
    EXPECT_OK(getter.code);
    check_text(getter.value, "k@1");
    shed_value_unref(getter.value);
    ck_assert_uint_eq(loads(), 3);
}

/* The second caller goes round again when the first has its row; by then
 * nothing can be written. */
TEST(a_load_without_redis_hears_no_old_version)
{
    struct getter first = {0}, second = {0};

    up(0, STALE_MS);
    expect_text(fixture.cache, "k", "k@1");
    age(fixture.cache, 1, "k@1");
    age_entry(&fixture.server, "t:{k}", PAST_TTL_MS);
    set_version(2);
    table_hold(&fixture.table);
    getter_start(&first, fixture.cache, "k");
    WAIT_FOR(table_running(&fixture.table) == 1);
    getter_start(&second, fixture.cache, "k");
    WAIT_FOR(stats_of(fixture.cache).joins == 1);
    set_version(1);
    ck_assert_int_eq(server_int(&fixture.server, "DEL t:{k} t:{k}:refresh"), 2);
    server_do(&fixture.server, "CONFIG SET min-replicas-to-write 1");
    ck_assert_int_ne(shed_invalidate(fixture.cache, shed_str("k"), 0, NULL),
                     SHED_OK);
    table_release(&fixture.table);
    getter_expect(&first, "k@2", SHED_ORIGIN_UNPUBLISHED);
    getter_expect(&second, "k@1", SHED_ORIGIN_UNPUBLISHED);
    server_do(&fixture.server, "CONFIG SET min-replicas-to-write 0");
}

static void load_unmodified(void *user, void *thread, struct shed_load *load)
{
    const uint64_t version = 1;
    struct shed_answer answer = SHED_ANSWER_INIT;

    (void)user;
    (void)thread;
    ck_assert_ptr_null(load->keys[0].old_version);
    answer.kind = SHED_ANSWER_UNMODIFIED;
    shed_load_answer(load, 0, &answer);
    answer.version = &version;
    answer.ttl_ms = 1;
    shed_load_answer(load, 0, &answer);
    shed_load_done(load);
}

TEST(a_row_without_an_old_version_cannot_be_unmodified)
{
    struct shed_source *source = NULL;
    struct shed_cache *cache = NULL;
    struct shed_error err = {0};

    fixture_open(&fixture);
    EXPECT_OK(shed_source_open_batch(load_unmodified, NULL, BARE_SOURCE,
                                     &source, NULL));
    EXPECT_OK(
        shed_cache_open(fixture.client, "u", source, BARE_CACHE, &cache, NULL));
    expect_code(cache, "k", SHED_ESOURCE, &err);
    ck_assert_ptr_nonnull(strstr(err.reason, "unmodified"));
    shed_cache_close(cache);
    shed_source_close(source);
}

/* ------------------------------------------------------------ times to live */

static void up_with_ttl(uint64_t ttl_ms)
{
    up(0, 0);
    fixture.table.has_ttl = true;
    fixture.table.ttl_ms = ttl_ms;
}

TEST(a_source_may_set_a_time_to_live)
{
    up_with_ttl(2 * AGEING_TTL_MS);
    expect_text(fixture.cache, "k", "k@1");
    expect_kind(fixture.cache, "absent", SHED_KIND_ABSENT);
    ck_assert_int_gt(server_int(&fixture.server, "PTTL t:{k}"),
                     (long long)AGEING_TTL_MS);
    ck_assert_int_gt(server_int(&fixture.server, "PTTL t:{absent}"),
                     (long long)AGEING_TTL_MS);
}

TEST(a_time_to_live_of_zero_keeps_nothing)
{
    up_with_ttl(0);
    expect_text(fixture.cache, "k", "k@1");
    ck_assert_int_eq(server_int(&fixture.server, "EXISTS t:{k}"), 0);
    expect_text(fixture.cache, "k", "k@1");
    ck_assert_uint_eq(loads(), 2);
}

TEST(a_time_to_live_has_a_longest)
{
    up_with_ttl(UINT64_MAX - 1);
    expect_text(fixture.cache, "k", "k@1");
    ck_assert_int_gt(server_int(&fixture.server, "PTTL t:{k}"),
                     (long long)AGEING_TTL_MS);
    expect_origin(fixture.cache, "k", "k@1", SHED_ORIGIN_REDIS);
}

int main(void)
{
    tcase_set_timeout(test_case(), 60);
    return run_fixture_tests("versions");
}
