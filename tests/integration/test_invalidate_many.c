/* shed_invalidate_many: the promises of shed_invalidate, for many keys in one
 * round trip. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "support/fixture.h"

static struct proxy proxy;

static void set_up(void)
{
    fixture_init(&fixture);
    fixture_add_proxy(&fixture, &proxy);
    fixture.client_options.links = 1;
    fixture_open(&fixture);
}

static void invalidate_many(const struct shed_bytes *keys, size_t count)
{
    EXPECT_OK(shed_invalidate_many(fixture.cache, keys, count, scaled_ms(60000),
                                   NULL));
}

static void refused(const struct shed_bytes *keys, size_t count,
                    const char *why)
{
    struct shed_error err = {0};

    EXPECT_CODE(shed_invalidate_many(fixture.cache, keys, count, 0, &err),
                SHED_EINVAL);
    expect_reason(&err, why);
}

/* k0 to kN, one more than may be. */
static char names[SHED_MANY_MAX + 1][8];
static struct shed_bytes keys_of_names[SHED_MANY_MAX + 1];

static void name_keys(void)
{
    for (int i = 0; i < SHED_MANY_MAX + 1; i++) {
        snprintf(names[i], sizeof(names[i]), "k%d", i);
        keys_of_names[i] = shed_str(names[i]);
    }
}

TEST(many_keys_are_removed_in_one_round_trip)
{
    enum { COUNT = 100, OF_THE_SESSION = 3 };
    unsigned before;

    name_keys();
    for (int i = 0; i < COUNT; i++)
        put(fixture.cache, names[i], "old");
    server_do(&fixture.server, "SET t:{k7}:refresh token PX 60000");
    put(fixture.cache, "other", "kept");
    before = atomic_load(&proxy.requests);
    invalidate_many(keys_of_names, COUNT);
    ck_assert_uint_le(atomic_load(&proxy.requests) - before,
                      1 + OF_THE_SESSION);
    ck_assert_int_eq(server_int(&fixture.server, "DBSIZE"), 1);
    expect_text(fixture.cache, "other", "kept");
    ck_assert_uint_eq(stats_of(fixture.cache).invalidations, COUNT);
}

TEST(as_many_keys_as_may_be_are_removed)
{
    name_keys();
    put(fixture.cache, names[0], "first");
    put(fixture.cache, names[SHED_MANY_MAX - 1], "last");
    refused(keys_of_names, SHED_MANY_MAX + 1,
            "shed_invalidate_many: 10001 keys, the limit is 10000");
    ck_assert_int_eq(server_int(&fixture.server, "DBSIZE"), 2);
    invalidate_many(keys_of_names, SHED_MANY_MAX);
    ck_assert_int_eq(server_int(&fixture.server, "DBSIZE"), 0);
}

TEST(one_key_that_is_wrong_is_named_and_nothing_is_removed)
{
    static char too_long[SHED_KEY_MAX_BYTES + 1];
    struct shed_bytes keys[] = {shed_str("a"), shed_str("b"), shed_str("")};

    put(fixture.cache, "a", "old");
    refused(keys, 3, "keys[2] is empty");
    keys[2] = (struct shed_bytes){NULL, 1};
    refused(keys, 3, "keys[2] is NULL");
    keys[1] = (struct shed_bytes){too_long, sizeof(too_long)};
    refused(keys, 2, "keys[1] has 1025 bytes");
    refused(NULL, 2, "shed_invalidate_many: keys is NULL");
    ck_assert_int_eq(server_int(&fixture.server, "EXISTS t:{a}"), 1);
    ck_assert_uint_eq(stats_of(fixture.cache).invalidations, 0);
}

TEST(no_keys_are_no_round_trip)
{
    expect_text(fixture.cache, "a", "a@1");
    invalidate_many(NULL, 0);
    ck_assert_int_eq(server_int(&fixture.server, "EXISTS t:{a}"), 1);
    ck_assert_uint_eq(stats_of(fixture.cache).invalidations, 0);
}

TEST(odd_keys_and_the_same_twice_are_removed)
{
    const struct shed_bytes keys[] = {shed_str("}a"),
                                      shed_str("\\b"),
                                      shed_str("c"),
                                      shed_str("c"),
                                      {"d\0e", 3}};

    for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++)
        EXPECT_OK(shed_put(fixture.cache,
                           shed_bytes(keys[i].data, keys[i].size),
                           shed_str("old"), NULL, NULL));
    ck_assert_int_eq(server_int(&fixture.server, "DBSIZE"), 4);
    invalidate_many(keys, sizeof(keys) / sizeof(*keys));
    ck_assert_int_eq(server_int(&fixture.server, "DBSIZE"), 0);
}

TEST(loads_under_way_are_ended_for_each_key)
{
    const struct shed_bytes keys[] = {shed_str("a"), shed_str("b")};
    struct getter before[2] = {{0}}, after[2] = {{0}};

    table_hold(&fixture.table);
    getter_start(&before[0], fixture.cache, "a");
    getter_start(&before[1], fixture.cache, "b");
    WAIT_FOR(server_int(&fixture.server, "EXISTS t:{a} t:{b}") == 2 &&
             table_running(&fixture.table) > 0);
    table_update(&fixture.table);
    invalidate_many(keys, 2);
    ck_assert_int_eq(server_int(&fixture.server, "EXISTS t:{a} t:{b}"), 0);
    /* a new caller does not join the earlier flights */
    getter_start(&after[0], fixture.cache, "a");
    getter_start(&after[1], fixture.cache, "b");
    WAIT_FOR(server_int(&fixture.server, "EXISTS t:{a} t:{b}") == 2);
    table_release(&fixture.table);
    for (int i = 0; i < 2; i++) {
        getter_join(&before[i]);
        shed_value_unref(before[i].value);
        getter_join(&after[i]);
        check_text(after[i].value, i == 0 ? "a@2" : "b@2");
        shed_value_unref(after[i].value);
    }
    expect_text(fixture.cache, "a", "a@2");
    expect_text(fixture.cache, "b", "b@2");
}

TEST(where_redis_is_gone_flights_are_left_all_the_same)
{
    const struct shed_bytes keys[] = {shed_str("other"), shed_str("k")};
    struct getter before = {0}, after = {0};
    struct shed_error err = {0};

    expect_text(fixture.cache, "warm", "warm@1");
    server_kill(&fixture.server);
    getter_hold(&before, &fixture, "k");
    table_update(&fixture.table);
    EXPECT_CODE(shed_invalidate_many(fixture.cache, keys, 2, 0, &err),
                SHED_EREDIS);
    ck_assert_uint_gt(strlen(err.reason), 0);
    ck_assert_uint_eq(stats_of(fixture.cache).invalidations, 0);
    ck_assert_uint_eq(stats_of(fixture.cache).invalidation_failures, 2);
    EXPECT_CODE(shed_invalidate(fixture.cache, shed_str("other"), 0, &err),
                SHED_EREDIS);
    ck_assert_uint_eq(stats_of(fixture.cache).invalidation_failures, 3);
    getter_start(&after, fixture.cache, "k");
    WAIT_FOR(table_running(&fixture.table) == 2);
    table_release(&fixture.table);
    getter_expect(&before, "k@1", SHED_ORIGIN_UNPUBLISHED);
    getter_expect(&after, "k@2", SHED_ORIGIN_UNPUBLISHED);
    server_start_again(&fixture.server);
}

TEST(scripts_that_the_server_has_forgotten_are_sent_again)
{
    const struct shed_bytes keys[] = {shed_str("a"), shed_str("b"),
                                      shed_str("c")};
    long long before;

    wait_for_pushes(&fixture); /* the session has loaded all scripts */
    put(fixture.cache, "a", "old");
    put(fixture.cache, "c", "old");
    server_do(&fixture.server, "SCRIPT FLUSH");
    before = server_calls(&fixture.server, "eval");
    invalidate_many(keys, 3);
    ck_assert_int_eq(server_int(&fixture.server, "DBSIZE"), 0);
    ck_assert_int_eq(server_calls(&fixture.server, "eval"), before + 1);
}

TEST(each_key_is_counted_by_how_it_ended)
{
    const struct shed_bytes keys[] = {shed_str("b"), shed_str("a")};
    struct shed_error err = {0};

    server_do(&fixture.server, "ACL SETUSER default resetkeys ~t:{a}*");
    EXPECT_CODE(shed_invalidate_many(fixture.cache, keys, 2, 0, &err),
                SHED_EDENIED);
    ck_assert_ptr_eq(strstr(err.reason, "keys[0]: "), err.reason);
    ck_assert_uint_eq(stats_of(fixture.cache).invalidations, 1);
    ck_assert_uint_eq(stats_of(fixture.cache).invalidation_failures, 1);
    server_do(&fixture.server, "ACL SETUSER default allkeys");
    WAIT_FOR(stats_of(fixture.cache).invalidations == 2);
    ck_assert_uint_eq(stats_of(fixture.cache).invalidations_delivered, 1);
}

int main(void)
{
    tcase_add_checked_fixture(test_case(), set_up, fixture_tear_down);
    return run_tests("invalidate_many");
}
