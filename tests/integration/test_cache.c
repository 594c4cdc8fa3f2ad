/* Gets on a real Redis: their answers, refusals and statistics. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "entry/entry.h"
#include "support/bare.h"
#include "support/fixture.h"

static struct shed_error err; /* of the last call */

/* ----------------------------------------------------------------- answers */

TEST(a_miss_loads_and_the_next_get_is_a_hit)
{
    fixture_open(&fixture);
    expect_origin(fixture.cache, "k", "k@1", SHED_ORIGIN_LOAD);
    expect_origin(fixture.cache, "k", "k@1", SHED_ORIGIN_REDIS);
    ck_assert_uint_eq(table_loads(&fixture.table), 1);
    ck_assert_uint_eq(stats_of(fixture.cache).hits, 1);
    ck_assert_uint_eq(stats_of(fixture.cache).misses, 1);
    ck_assert_uint_eq(stats_of(fixture.cache).published, 1);
    ck_assert_uint_eq(stats_of(fixture.cache).leases_won, 1);
}

TEST(absent_null_and_empty_are_three_answers_and_stay_so_in_redis)
{
    struct shed_value *value = NULL;

    fixture_open(&fixture);
    for (int i = 0; i < 2; i++) {
        expect_kind(fixture.cache, "absent", SHED_KIND_ABSENT);
        expect_kind(fixture.cache, "null", SHED_KIND_NULL);
        EXPECT_OK(
            shed_get(fixture.cache, shed_str("empty"), NULL, &value, NULL));
        ck_assert_int_eq(value->kind, SHED_KIND_ROW);
        ck_assert_uint_eq(value->size, 0);
        shed_value_unref(value);
    }
    ck_assert_uint_eq(table_loads(&fixture.table), 3);
    ck_assert_uint_eq(stats_of(fixture.cache).negative_hits, 1);
    ck_assert_uint_eq(stats_of(fixture.cache).hits, 2);
}

TEST_EACH(absence_is_kept_for_the_negative_ttl_only, 0, 2)
{
    fixture.cache_options.negative_ttl_ms = _i == 0 ? 50 : 0;
    fixture_open(&fixture);
    expect_kind(fixture.cache, "absent", SHED_KIND_ABSENT);
    if (_i == 0)
        ck_assert_int_le(server_int(&fixture.server, "PTTL t:{absent}"),
                         50 + LEEWAY_MS);
    else
        ck_assert_int_eq(server_int(&fixture.server, "DBSIZE"), 0);
    WAIT_FOR(server_int(&fixture.server, "EXISTS t:{absent}") == 0);
    expect_kind(fixture.cache, "absent", SHED_KIND_ABSENT);
    ck_assert_uint_eq(table_loads(&fixture.table), 2);
}

TEST(rows_are_kept_for_their_ttl)
{
    fixture.cache_options.ttl_ms = 60;
    fixture_open(&fixture);
    expect_text(fixture.cache, "k", "k@1");
    table_update(&fixture.table);
    WAIT_FOR(server_int(&fixture.server, "EXISTS t:{k}") == 0);
    expect_text(fixture.cache, "k", "k@2");
}

TEST(keys_are_bytes_each_with_a_place_of_its_own)
{
    static const struct {
        const char *bytes;
        size_t size;
        const char *name; /* its name in Redis */
        size_t name_size;
    } keys[] = {
        {"a\0b", 3, "t:{a\0b}", 7}, {"a", 1, "t:{a}", 5},
        {"a\0c", 3, "t:{a\0c}", 7}, {"}", 1, "t:{\\}}", 6},
        {"\\}", 2, "t:{\\\\}}", 7}, {"\\", 1, "t:{\\\\}", 6},
        {"{x}", 3, "t:{{x}}", 7},   {"\xff\r\n", 3, "t:{\xff\r\n}", 7},
        {" ", 1, "t:{ }", 5},
    };
    const size_t count = sizeof(keys) / sizeof(*keys);
    struct shed_value *value = NULL;

    fixture_open(&fixture);
    for (size_t round = 0; round < 2; round++) {
        for (size_t i = 0; i < count; i++) {
            EXPECT_OK(shed_get(fixture.cache,
                               shed_bytes(keys[i].bytes, keys[i].size), NULL,
                               &value, NULL));
            ck_assert_uint_eq(value->size, keys[i].size + 2);
            ck_assert_mem_eq(value->data, keys[i].bytes, keys[i].size);
            ck_assert_int_eq(server_int(&fixture.server, "EXISTS %b",
                                        keys[i].name, keys[i].name_size),
                             1);
            shed_value_unref(value);
        }
    }
    ck_assert_int_eq(server_int(&fixture.server, "DBSIZE"), (long long)count);
    ck_assert_uint_eq(fixture.table.keys, count);
}

TEST(the_longest_key_is_served)
{
    static char key[SHED_KEY_MAX_BYTES];
    struct shed_value *value = NULL;

    memset(key, '}', sizeof(key));
    fixture_open(&fixture);
    EXPECT_OK(shed_get(fixture.cache, shed_bytes(key, sizeof(key)), NULL,
                       &value, NULL));
    ck_assert_uint_eq(value->size, SHED_KEY_MAX_BYTES + 2);
    shed_value_unref(value);
}

TEST(a_value_over_the_limit_fails_its_key_and_is_not_kept)
{
    fixture.cache_options.value_limit_bytes = 4095;
    fixture.cache_options.failure_ttl_ms = 0;
    fixture_open(&fixture);
    expect_code(fixture.cache, "big", SHED_ETOOBIG, &err);
    expect_reason(&err, "4096");
    expect_reason(&err, "4095");
    WAIT_FOR(server_int(&fixture.server, "DBSIZE") == 0);
}

TEST(others_hear_that_a_value_is_too_big_as_such)
{
    struct peer peer;

    fixture.cache_options.value_limit_bytes = 4095;
    fixture.cache_options.failure_ttl_ms = 60000;
    fixture_open(&fixture);
    peer_open(&peer, &fixture);
    expect_code(fixture.cache, "big", SHED_ETOOBIG, NULL);
    WAIT_FOR(server_int(&fixture.server, "STRLEN t:{big}") >
             SHED_ENTRY_HEADER_BYTES);
    expect_code(peer.cache, "big", SHED_ETOOBIG, NULL);
    ck_assert_uint_eq(table_loads(&fixture.table), 1);
    peer_close(&peer);
}

TEST(age_counts_from_the_publish_by_the_servers_clock)
{
    struct shed_value *value = NULL;
    uint64_t start_ms, age_ms, end_ms = test_deadline_ms();

    start_ms = shed_now_ms(); /* before the clocks are compared */
    fixture_open(&fixture);
    EXPECT_OK(shed_get(fixture.cache, shed_str("k"), NULL, &value, NULL));
    ck_assert_uint_eq(value->age_ms, 0);
    shed_value_unref(value);
    do {
        EXPECT_OK(shed_get(fixture.cache, shed_str("k"), NULL, &value, NULL));
        age_ms = value->age_ms;
        shed_value_unref(value);
        ck_assert_uint_lt(shed_now_ms(), end_ms);
    } while (age_ms < 50);
    /* the two clocks differ, and the offset is only as exact as a round trip */
    ck_assert_uint_le(age_ms, shed_now_ms() - start_ms + scaled_ms(20));
}

TEST(values_outlive_cache_and_client)
{
    struct shed_value *loaded = NULL, *hit = NULL;

    fixture_open(&fixture);
    EXPECT_OK(shed_get(fixture.cache, shed_str("k"), NULL, &loaded, NULL));
    EXPECT_OK(shed_get(fixture.cache, shed_str("k"), NULL, &hit, NULL));
    fixture_down(&fixture);
    check_text(loaded, "k@1");
    check_text(hit, "k@1");
    shed_value_unref(loaded);
    shed_value_unref(hit);
}

/* -------------------------------------------------------------- bad input */

static long long writes_so_far(void)
{
    return server_calls(&fixture.server, "get") +
           server_calls(&fixture.server, "eval") +
           server_calls(&fixture.server, "evalsha");
}

static void refused(enum shed_code code, const char *why)
{
    EXPECT_CODE(code, SHED_EINVAL);
    EXPECT_CODE(err.code, SHED_EINVAL);
    expect_reason(&err, why);
    err = (struct shed_error){0};
}

TEST(a_bad_argument_gets_its_own_reason_and_nothing_is_sent)
{
    static char key[SHED_KEY_MAX_BYTES + 1];
    const struct shed_bytes k = shed_str("k"), empty = shed_str(""),
                            null = shed_bytes(NULL, 1),
                            longer = shed_bytes(key, sizeof(key));
    struct shed_cache *cache;
    struct shed_value *value = NULL;
    long long before;

    fixture_open(&fixture);
    wait_for_pushes(&fixture);
    cache = fixture.cache;
    before = writes_so_far();
    refused(shed_get(cache, empty, NULL, &value, &err), "empty");
    refused(shed_get(cache, null, NULL, &value, &err), "NULL");
    refused(shed_get(cache, longer, NULL, &value, &err), "limit is 1024");
    refused(shed_get(NULL, k, NULL, &value, &err), "cache is NULL");
    refused(shed_get(cache, k, NULL, NULL, &err), "out is NULL");
    refused(shed_get(cache, k, WITHIN(3600001), &value, &err),
            "timeout_ms is 3600001, must be in [0, 3600000]");
    refused(shed_put(cache, empty, k, NULL, &err), "empty");
    refused(shed_put(cache, longer, k, NULL, &err), "1025");
    refused(shed_put(cache, k, null, NULL, &err), "row is NULL");
    refused(shed_put(cache, k, null, AT_VERSION(1), &err), "row is NULL");
    refused(shed_invalidate(cache, empty, 0, &err), "empty");
    refused(shed_invalidate(cache, null, 0, &err), "NULL");
    refused(shed_invalidate(NULL, k, 0, &err), "cache is NULL");
    ck_assert_int_eq(server_int(&fixture.server, "DBSIZE"), 0);
    ck_assert_int_eq(writes_so_far(), before);
    ck_assert_uint_eq(table_loads(&fixture.table), 0);
}

/* The jitter of the cache, which takes up to 90 % off, does not apply. */
TEST(a_put_with_a_ttl_is_fresh_for_that_long)
{
    struct shed_put_options options = SHED_PUT_OPTIONS_INIT;
    struct shed_value *value = NULL;
    uint64_t ms = scaled_ms(500);

    fixture.cache_options.ttl_jitter_pct = 90;
    fixture_open(&fixture);
    for (int i = 0; i < 10; i++) {
        options.ttl_ms = 600000;
        EXPECT_OK(shed_put(fixture.cache, shed_str("k"), shed_str("long"),
                           &options, NULL));
        ck_assert_int_ge(server_int(&fixture.server, "PTTL t:{k}"), 540000);
        ck_assert_int_le(server_int(&fixture.server, "PTTL t:{k}"),
                         600000 + LEEWAY_MS);
    }
    options.ttl_ms = ms;
    EXPECT_OK(shed_put(fixture.cache, shed_str("k"), shed_str("short"),
                       &options, NULL));
    EXPECT_OK(shed_get(fixture.cache, shed_str("k"), NULL, &value, NULL));
    ck_assert_uint_le(value->fresh_ms, ms);
    shed_value_unref(value);
    WAIT_FOR(has_text(fixture.cache, "k@1"));
    ck_assert_uint_eq(table_loads(&fixture.table), 1);
    options.ttl_ms = UINT64_MAX;
    refused(shed_put(fixture.cache, shed_str("k"), shed_str("never"), &options,
                     &err),
            "put ttl_ms is 18446744073709551615, at most 316224000000");
    expect_text(fixture.cache, "k", "k@1");
}

TEST(a_value_that_is_too_big_to_put_is_not_sent)
{
    long long before;

    fixture.cache_options.value_limit_bytes = 3;
    fixture_open(&fixture);
    put(fixture.cache, "k", "abc");
    before = writes_so_far();
    EXPECT_CODE(
        shed_put(fixture.cache, shed_str("k"), shed_str("abcd"), NULL, &err),
        SHED_ETOOBIG);
    ck_assert_str_eq(err.reason, "row has 4 bytes, value_limit_bytes is 3");
    ck_assert_int_eq(writes_so_far(), before);
    expect_text(fixture.cache, "k", "abc");
}

static void refused_cache(const char *name, struct shed_cache_options *options,
                          const char *why)
{
    struct shed_cache *cache = NULL;

    refused(shed_cache_open(fixture.client, name, fixture.source, options,
                            &cache, &err),
            why);
    ck_assert_ptr_null(cache);
}

TEST(a_bad_name_or_option_opens_no_cache_and_says_which)
{
    struct shed_cache_options o = bare_cache();
    struct {
        struct shed_cache_options known;
        uint64_t unknown;
    } newer = {bare_cache(), 1};
    static char name[SHED_NAME_MAX_BYTES + 2];

    memset(name, 'n', sizeof(name) - 1);
    fixture_open(&fixture);
    refused_cache("a{b", NULL, "brace");
    refused_cache("a}", NULL, "brace");
    refused_cache("", NULL, "empty");
    refused_cache(NULL, NULL, "NULL");
    refused_cache("a b", NULL, "printable");
    refused_cache("\xc3\xa4", NULL, "printable");
    refused_cache(name, NULL, "64");
    refused_cache("lock", NULL, "keys of locks");
    o.ttl_ms = 0;
    refused_cache("a", &o, "ttl_ms is 0");
    o = bare_cache();
    o.lease_ms = 9;
    refused_cache("a", &o, "lease_ms");
    o = bare_cache();
    o.size = 0;
    refused_cache("a", &o, "size");
    newer.known.size = sizeof(newer);
    refused_cache("a", &newer.known, "does not know");
    ck_assert_int_eq(server_int(&fixture.server, "DBSIZE"), 0);
}

TEST(a_longer_options_struct_with_a_zero_tail_is_taken)
{
    struct {
        struct shed_cache_options known;
        uint64_t unknown;
    } newer = {bare_cache(), 0};
    struct shed_cache *cache = NULL;

    fixture_open(&fixture);
    newer.known.size = sizeof(newer);
    EXPECT_OK(shed_cache_open(fixture.client, "a", fixture.source, &newer.known,
                              &cache, NULL));
    expect_text(cache, "k", "k@1");
    shed_cache_close(cache);
}

/* --------------------------------------------------------------- get_many */

TEST(get_many_answers_each_key_as_a_get_does)
{
    static const char *const keys[] = {"hit",  "cold", "absent",
                                       "cold", "hit",  "null"};
    enum { COUNT = sizeof(keys) / sizeof(*keys) };
    struct shed_item items[COUNT];

    fixture_open(&fixture);
    expect_text(fixture.cache, "hit", "hit@1");
    for (size_t i = 0; i < COUNT; i++)
        items[i] = (struct shed_item){.key = shed_str(keys[i])};
    EXPECT_OK(shed_get_many(fixture.cache, items, COUNT, NULL, NULL));
    check_text(items[0].value, "hit@1");
    check_text(items[1].value, "cold@1");
    check_text(items[3].value, "cold@1");
    check_text(items[4].value, "hit@1");
    ck_assert_int_eq(items[2].value->kind, SHED_KIND_ABSENT);
    ck_assert_int_eq(items[5].value->kind, SHED_KIND_NULL);
    ck_assert_uint_eq(fixture.table.keys, 4);
    for (size_t i = 0; i < COUNT; i++) {
        EXPECT_OK(items[i].code);
        shed_value_unref(items[i].value);
    }
}

TEST(each_key_of_get_many_has_a_reason_and_the_first_that_failed_decides)
{
    struct shed_get_options options = SHED_GET_OPTIONS_INIT;
    struct shed_item items[] = {{.key = shed_str("a")},
                                {.key = shed_str("fail")},
                                {.key = shed_str("garbled")},
                                {.key = shed_str("absent")}};
    struct shed_error errors[4];

    memset(errors, 0xff, sizeof(errors));
    options.errors = errors;
    fixture_open(&fixture);
    EXPECT_CODE(shed_get_many(fixture.cache, items, 4, &options, &err),
                SHED_ESOURCE);
    expect_reason(&err, "items[1]: the table is on fire");
    check_text(items[0].value, "a@1");
    for (size_t i = 0; i < 4; i++) {
        bool has_failed = i == 1 || i == 2;
        EXPECT_CODE(items[i].code, has_failed ? SHED_ESOURCE : SHED_OK);
        EXPECT_CODE(errors[i].code, items[i].code);
        ck_assert_int_eq(items[i].value == NULL, has_failed);
        shed_value_unref(items[i].value);
    }
    ck_assert_str_eq(errors[0].reason, "");
    ck_assert_str_eq(errors[1].reason, "the table is on fire");
    ck_assert_str_eq(errors[2].reason, "the table??[31m is on fire");
    ck_assert_uint_eq(stats_of(fixture.cache).errors_source, 2);
}

/* By the index in the caller's array. */
TEST(get_many_says_which_key_is_wrong_and_why)
{
    static const char long_key[SHED_KEY_MAX_BYTES + 1];
    const struct {
        struct shed_bytes key;
        const char *reason;
    } wrong[] = {
        {{NULL, 1}, "items[2].key is NULL"},
        {{"", 0}, "items[2].key is empty"},
        {{long_key, sizeof(long_key)},
         "items[2].key has 1025 bytes, the limit is 1024"},
    };
    struct shed_item items[] = {{.key = shed_str("a")},
                                {.key = shed_str("b")},
                                {.key = shed_str("c")},
                                {.key = shed_str("")}};

    fixture_open(&fixture);
    for (size_t i = 0; i < COUNT_OF(wrong); i++) {
        items[2].key = wrong[i].key;
        refused(shed_get_many(fixture.cache, items, 4, NULL, &err),
                wrong[i].reason);
        EXPECT_CODE(items[0].code, SHED_EINVAL);
        ck_assert_ptr_null(items[0].value);
    }
    refused(shed_get_many(fixture.cache, NULL, 4, NULL, &err),
            "shed_get_many: items is NULL");
    EXPECT_OK(shed_get_many(fixture.cache, NULL, 0, NULL, NULL));
    ck_assert_uint_eq(table_loads(&fixture.table), 0);
}

static struct shed_item *make_items(size_t count, char (*keys)[24])
{
    struct shed_item *items = calloc(count, sizeof(*items));

    ck_assert_ptr_nonnull(items);
    for (size_t i = 0; i < count; i++) {
        snprintf(keys[i], sizeof(keys[i]), "k%zu", i);
        items[i] = (struct shed_item){.key = shed_str(keys[i])};
    }
    return items;
}

static void check_items(struct shed_item *items, size_t count)
{
    char text[32];

    for (size_t i = 0; i < count; i++) {
        snprintf(text, sizeof(text), "k%zu@1", i);
        check_text(items[i].value, text);
        shed_value_unref(items[i].value);
        items[i].value = NULL;
    }
}

TEST(cold_keys_that_are_asked_for_together_are_loaded_together)
{
    static char keys[50][24];
    struct shed_item *items = make_items(50, keys);

    fixture_open(&fixture);
    EXPECT_OK(shed_get_many(fixture.cache, items, 50, NULL, NULL));
    check_items(items, 50);
    ck_assert_uint_eq(table_loads(&fixture.table), 1);
    ck_assert_uint_eq(stats_of(fixture.cache).loads, 1);
    ck_assert_uint_eq(stats_of(fixture.cache).loads_failed, 0);
    ck_assert_uint_eq(stats_of(fixture.cache).loaded_keys, 50);
    ck_assert_uint_eq(stats_of(fixture.cache).batch_keys.sum, 50);
    free(items);
}

TEST(of_too_many_keys_none_is_got_and_every_item_is_set)
{
    enum { COUNT = SHED_MANY_MAX + 1 };
    static char keys[COUNT][24];
    struct shed_item *items = make_items(COUNT, keys);

    for (size_t i = 0; i < COUNT; i++) {
        items[i].value = (struct shed_value *)(void *)keys[i];
        items[i].code = SHED_OK;
    }
    fixture_open(&fixture);
    refused(shed_get_many(fixture.cache, items, COUNT, NULL, &err),
            "limit is 10000");
    for (size_t i = 0; i < COUNT; i++) {
        ck_assert_ptr_null(items[i].value);
        EXPECT_CODE(items[i].code, SHED_EINVAL);
        shed_value_unref(items[i].value);
    }
    ck_assert_uint_eq(table_loads(&fixture.table), 0);
    free(items);
}

TEST(the_most_keys_come_in_bounded_batches_and_then_in_one_pipeline)
{
    static char keys[SHED_MANY_MAX][24];
    struct shed_item *items = make_items(SHED_MANY_MAX, keys);

    fixture_open(&fixture);
    EXPECT_OK(shed_get_many(fixture.cache, items, SHED_MANY_MAX,
                            WITHIN(scaled_ms(60000)), NULL));
    check_items(items, SHED_MANY_MAX);
    ck_assert_uint_le(fixture.table.most_running, 4);
    ck_assert_uint_le(table_loads(&fixture.table), SHED_MANY_MAX / 20);
    EXPECT_OK(shed_get_many(fixture.cache, items, SHED_MANY_MAX,
                            WITHIN(scaled_ms(60000)), NULL));
    check_items(items, SHED_MANY_MAX);
    ck_assert_uint_eq(stats_of(fixture.cache).hits, SHED_MANY_MAX);
    free(items);
}

TEST(get_many_returns_at_its_deadline_with_what_it_has)
{
    struct shed_item items[] = {{{"hit", 3}, NULL, 0}, {{"cold", 4}, NULL, 0}};

    fixture_open(&fixture);
    expect_text(fixture.cache, "hit", "hit@1");
    table_hold(&fixture.table);
    EXPECT_CODE(shed_get_many(fixture.cache, items, 2, WITHIN(30), &err),
                SHED_ETIMEDOUT);
    check_text(items[0].value, "hit@1");
    EXPECT_CODE(items[1].code, SHED_ETIMEDOUT);
    ck_assert_ptr_null(items[1].value);
    shed_value_unref(items[0].value);
    table_release(&fixture.table);
}

/* ----------------------------------------------------- many callers at once */

/* With pushes, and without. */
TEST_EACH(fifty_callers_cost_one_load, 0, 2)
{
    enum { CROWD = 50 };
    static struct getter getters[CROWD];

    if (_i == 1)
        fixture.client_options.wait = SHED_WAIT_POLL;
    fixture_open(&fixture);
    table_hold(&fixture.table);
    for (int i = 0; i < CROWD; i++)
        getter_start(&getters[i], fixture.cache, "k");
    WAIT_FOR(stats_of(fixture.cache).misses == CROWD &&
             table_running(&fixture.table) == 1);
    table_release(&fixture.table);
    for (int i = 0; i < CROWD; i++) {
        getter_join(&getters[i]);
        EXPECT_OK(getters[i].code);
        check_text(getters[i].value, "k@1");
        shed_value_unref(getters[i].value);
    }
    ck_assert_uint_eq(table_loads(&fixture.table), 1);
    ck_assert_uint_eq(stats_of(fixture.cache).joins, CROWD - 1);
    if (_i == 0)
        return;
    ck_assert_int_eq(server_clients(&fixture.server, "flags=P"), 0);
    ck_assert_int_eq(server_clients(&fixture.server, "flags=t"), 0);
}

static uint64_t alive(const struct shed_stats *stats)
{
    return stats->loads_begun - stats->loads;
}

static uint64_t waiting(const struct shed_stats *stats)
{
    return stats->misses - stats->misses_ended;
}

/* As a dashboard of a service shows them. */
TEST(the_statistics_show_loads_under_way_and_callers_that_wait)
{
    struct shed_item items[] = {{{"a", 1}, NULL, 0}, {{"b", 1}, NULL, 0}};
    struct getter getter = {0};
    struct shed_stats stats;

    fixture_open(&fixture);
    getter_hold(&getter, &fixture, "k");
    stats = stats_of(fixture.cache);
    ck_assert_uint_eq(alive(&stats), 1);
    ck_assert_uint_eq(waiting(&stats), 1);
    EXPECT_CODE(shed_get_many(fixture.cache, items, 2, WITHIN(30), NULL),
                SHED_ETIMEDOUT);
    stats = stats_of(fixture.cache);
    ck_assert_uint_eq(waiting(&stats), 1);
    table_release(&fixture.table);
    getter_expect(&getter, "k@1", SHED_ORIGIN_LOAD);
    stats = stats_of(fixture.cache);
    ck_assert_uint_eq(waiting(&stats), 0);
    WAIT_FOR((stats = stats_of(fixture.cache), alive(&stats) == 0));
}

TEST(a_get_returns_at_its_deadline_and_the_load_is_kept)
{
    struct shed_value *value = NULL;
    uint64_t start_ms;
    unsigned calls = 0;

    fixture_open(&fixture);
    table_hold(&fixture.table);
    do { /* until one call has begun a load before its deadline */
        start_ms = shed_now_ms();
        EXPECT_CODE(
            shed_get(fixture.cache, shed_str("k"), WITHIN(40), &value, NULL),
            SHED_ETIMEDOUT);
        ck_assert_ptr_null(value);
        ck_assert_uint_ge(shed_now_ms() - start_ms, 40);
        ck_assert_uint_lt(shed_now_ms() - start_ms, 40 + scaled_ms(1000));
        calls++;
    } while (table_running(&fixture.table) == 0);
    table_release(&fixture.table);
    WAIT_FOR(stats_of(fixture.cache).published == 1);
    expect_origin(fixture.cache, "k", "k@1", SHED_ORIGIN_REDIS);
    ck_assert_uint_eq(table_loads(&fixture.table), 1);
    ck_assert_uint_eq(stats_of(fixture.cache).errors_timeout, calls);
}

TEST(beyond_the_queue_limit_callers_are_turned_away_at_once)
{
    struct getter first = {0}, queued = {0};

    fixture.source_options.max_loads = 1;
    fixture.source_options.queue_limit = 1;
    fixture.source_options.batch_wait_ms = 0;
    fixture_open(&fixture);
    getter_hold(&first, &fixture, "a");
    getter_start(&queued, fixture.cache, "b");
    WAIT_FOR(stats_of(fixture.cache).leases_won == 2);
    expect_code(fixture.cache, "c", SHED_EBUSY, &err);
    expect_reason(&err, "queue is full");
    ck_assert_uint_eq(stats_of(fixture.cache).errors_busy, 1);
    WAIT_FOR(server_int(&fixture.server, "EXISTS t:{c}") == 0);
    ck_assert_uint_eq(gauge(fixture.cache, "source_loads"), 1);
    ck_assert_uint_eq(gauge(fixture.cache, "source_loads_limit"), 1);
    ck_assert_uint_eq(gauge(fixture.cache, "source_queue_keys"), 1);
    ck_assert_uint_eq(gauge(fixture.cache, "source_queue_limit_keys"), 1);
    table_release(&fixture.table);
    getter_expect(&first, "a@1", SHED_ORIGIN_LOAD);
    getter_expect(&queued, "b@1", SHED_ORIGIN_LOAD);
}

TEST(the_limit_of_an_adaptive_source_is_shown_as_it_is_now)
{
    struct getter getters[6] = {{0}};
    static const char *const keys[6] = {"a", "b", "c", "d", "e", "f"};

    fixture.source_options.max_loads = 64;
    fixture.source_options.max_batch = 1;
    fixture.source_options.adaptive_loads = 1;
    fixture_open(&fixture);
    table_hold(&fixture.table);
    for (size_t i = 0; i < 6; i++)
        getter_start(&getters[i], fixture.cache, keys[i]);
    WAIT_FOR(stats_of(fixture.cache).leases_won == 6);
    WAIT_FOR(table_running(&fixture.table) == 4);
    ck_assert_uint_eq(gauge(fixture.cache, "source_loads_limit"), 4);
    table_release(&fixture.table);
    for (size_t i = 0; i < 6; i++) {
        getter_join(&getters[i]);
        EXPECT_OK(getters[i].code);
        shed_value_unref(getters[i].value);
    }
    ck_assert_uint_eq(fixture.table.most_running, 4);
}

/* --------------------------------------------------- what does not belong
 * there */

/* A flipped byte, a truncated entry, and one of the format before. */
TEST_EACH(a_damaged_entry_is_found_counted_and_replaced, 0, 3)
{
    static const char *const damage[] = {
        "redis.call('SETRANGE',KEYS[1],64,'X')",
        "redis.call('SET',KEYS[1],redis.call('GETRANGE',KEYS[1],0,-2))",
        "redis.call('SETRANGE',KEYS[1],4,'\1')"};
    bool is_foreign = _i == 2;

    fixture_open(&fixture);
    expect_text(fixture.cache, "k", "k@1");
    table_update(&fixture.table);
    server_do(&fixture.server, "EVAL %s 1 t:{k}", damage[_i]);
    expect_origin(fixture.cache, "k", "k@2", SHED_ORIGIN_LOAD);
    expect_origin(fixture.cache, "k", "k@2", SHED_ORIGIN_REDIS);
    ck_assert_uint_eq(stats_of(fixture.cache).corrupt_entries, !is_foreign);
    ck_assert_uint_eq(stats_of(fixture.cache).foreign_entries, is_foreign);
}

TEST(what_others_wrote_is_counted_and_replaced)
{
    fixture_open(&fixture);
    server_do(&fixture.server, "SET t:{k} raw");
    server_do(&fixture.server, "RPUSH t:{l} raw");
    expect_origin(fixture.cache, "k", "k@1", SHED_ORIGIN_LOAD);
    expect_origin(fixture.cache, "l", "l@1", SHED_ORIGIN_LOAD);
    ck_assert_uint_eq(stats_of(fixture.cache).foreign_entries, 2);
    ck_assert_uint_eq(stats_of(fixture.cache).corrupt_entries, 0);
    expect_origin(fixture.cache, "k", "k@1", SHED_ORIGIN_REDIS);
    expect_origin(fixture.cache, "l", "l@1", SHED_ORIGIN_REDIS);
}

TEST(a_damaged_failure_marker_is_replaced)
{
    fixture.cache_options.failure_ttl_ms = 60000;
    fixture_open(&fixture);
    expect_code(fixture.cache, "fail", SHED_ESOURCE, NULL);
    WAIT_FOR(server_int(&fixture.server, "STRLEN t:{fail}") >
             SHED_ENTRY_HEADER_BYTES);
    server_do(&fixture.server, "SETRANGE t:{fail} 64 X");
    expect_code(fixture.cache, "fail", SHED_ESOURCE, NULL);
    ck_assert_uint_eq(table_loads(&fixture.table), 2);
    ck_assert_uint_eq(stats_of(fixture.cache).corrupt_entries, 1);
}

TEST(the_payload_is_behind_64_bytes_for_every_language)
{
    redisReply *row;

    fixture_open(&fixture);
    expect_text(fixture.cache, "k", "k@1");
    row = server_run(&fixture.server, "GETRANGE t:{k} 64 -1");
    ck_assert_str_eq(row->str, "k@1");
    freeReplyObject(row);
}

/* Each line is a comment, or a metric with a label of our name and a number. */
static void check_line(const char *line)
{
    const char *brace = strchr(line, '{'), *end;
    char *rest;

    if (strncmp(line, "# HELP snowshed_", 16) == 0 ||
        strncmp(line, "# TYPE snowshed_", 16) == 0)
        return;
    ck_assert_msg(strncmp(line, "snowshed_", 9) == 0 && brace != NULL &&
                      strstr(brace, "cache=\"t\"") != NULL,
                  "%s", line);
    end = strrchr(line, '}');
    ck_assert_msg(end != NULL && end[1] == ' ', "%s", line);
    (void)strtod(end + 2, &rest);
    ck_assert_msg(rest != end + 2 && *rest == '\0', "%s", line);
}

TEST(the_statistics_are_prometheus_text)
{
    static char text[65536];
    size_t size;

    fixture_open(&fixture);
    expect_text(fixture.cache, "k", "k@1");
    expect_text(fixture.cache, "k", "k@1");
    size =
        shed_stats_prometheus(&fixture.cache, 1, NULL, 0, text, sizeof(text));
    ck_assert_uint_gt(size, 0);
    ck_assert_uint_lt(size, sizeof(text));
    ck_assert_uint_eq(strlen(text), size);
    ck_assert_ptr_nonnull(
        strstr(text, "\nsnowshed_hits_total{cache=\"t\"} 1\n"));
    ck_assert_ptr_nonnull(
        strstr(text, "\nsnowshed_loads_total{cache=\"t\"} 1\n"));
    for (char *rest = text, *line;
         (line = strtok_r(rest, "\n", &rest)) != NULL;)
        check_line(line);
}

int main(void)
{
    return run_fixture_tests("cache");
}
