/* Invalidations of tags on a real Redis: all entries of a cache, or those
 * with a tag, are misses after one command, and nothing older is given out. */
#include <stdio.h>
#include <string.h>

#include "cache/cache.h"
#include "support/ageing.h"
#include "support/fixture.h"

enum { LIMIT = 100 };

static void init(void)
{
    fixture.cache_options.tags_limit = LIMIT;
}

static void up(void)
{
    init();
    fixture_open(&fixture);
}

static void invalidate_all(struct shed_cache *cache)
{
    struct shed_error err = {0};
    enum shed_code code = shed_invalidate_all(cache, 0, &err);

    ck_assert_msg(code == SHED_OK, "%s: %s", shed_code_name(code), err.reason);
}

/* Change all rows, and invalidate them. */
static void change_all(void)
{
    table_update(&fixture.table);
    invalidate_all(fixture.cache);
}

/* Whether a cache has heard of what another one has invalidated. */
static bool has_heard(struct shed_cache *cache, struct shed_cache *of)
{
    return shed_tag_log_is_known(cache->tag_log) &&
           shed_tag_log_position(cache->tag_log) ==
               shed_tag_log_position(of->tag_log);
}

/* ------------------------------------------------------------- all entries */

TEST(after_it_every_entry_is_a_miss)
{
    up();
    expect_text(fixture.cache, "k", "k@1");
    expect_text(fixture.cache, "l", "l@1");
    expect_kind(fixture.cache, "absent", SHED_KIND_ABSENT);
    table_update(&fixture.table);
    expect_text(fixture.cache, "k", "k@1");
    invalidate_all(fixture.cache);
    expect_origin(fixture.cache, "k", "k@2", SHED_ORIGIN_LOAD);
    expect_text(fixture.cache, "l", "l@2");
    expect_kind(fixture.cache, "absent", SHED_KIND_ABSENT);
    ck_assert_uint_eq(table_loads(&fixture.table), 6);
    ck_assert_uint_eq(stats_of(fixture.cache).tag_invalidations, 1);
    ck_assert_uint_eq(stats_of(fixture.cache).invalidations, 0);
    ck_assert_uint_eq(stats_of(fixture.cache).misses, 6);
    ck_assert_uint_eq(stats_of(fixture.cache).tag_misses, 3);
}

TEST(what_is_loaded_or_put_after_it_is_a_hit_and_before_it_a_miss)
{
    up();
    for (unsigned i = 0; i < 3; i++) {
        invalidate_all(fixture.cache);
        expect_origin(fixture.cache, "k", "k@1", SHED_ORIGIN_LOAD);
        expect_origin(fixture.cache, "k", "k@1", SHED_ORIGIN_REDIS);
        put(fixture.cache, "k", "mine");
        expect_origin(fixture.cache, "k", "mine", SHED_ORIGIN_REDIS);
    }
    ck_assert_uint_eq(table_loads(&fixture.table), 3);
}

TEST(many_keys_are_misses_together)
{
    struct shed_item items[3] = {
        {.key = shed_str("a")}, {.key = shed_str("b")}, {.key = shed_str("c")}};

    up();
    expect_text(fixture.cache, "a", "a@1");
    expect_text(fixture.cache, "b", "b@1");
    change_all();
    expect_text(fixture.cache, "c", "c@2");
    EXPECT_OK(shed_get_many(fixture.cache, items, 3, NULL, NULL));
    check_text(items[0].value, "a@2");
    check_text(items[1].value, "b@2");
    check_text(items[2].value, "c@2");
    for (size_t i = 0; i < 3; i++)
        shed_value_unref(items[i].value);
}

/* By this process, or by another one of which this one has heard. */
TEST_EACH(what_was_being_loaded_is_for_earlier_callers_alone, 0, 2)
{
    struct getter before = {0}, after = {0};
    struct peer peer;

    up();
    peer_open(&peer, &fixture);
    getter_hold(&before, &fixture, "k");
    table_update(&fixture.table);
    invalidate_all(_i == 0 ? fixture.cache : peer.cache);
    if (_i == 1)
        WAIT_FOR(has_heard(fixture.cache, peer.cache));
    getter_start(&after, fixture.cache, "k");
    WAIT_FOR(stats_of(fixture.cache).joins == 1);
    table_release(&fixture.table);
    getter_expect(&before, "k@1", SHED_ORIGIN_LOAD);
    getter_join(&after);
    EXPECT_OK(after.code);
    check_text(after.value, "k@2");
    shed_value_unref(after.value);
    expect_origin(fixture.cache, "k", "k@2", SHED_ORIGIN_REDIS);
    peer_close(&peer);
}

/* Redis takes the row, but not the invalidation. */
TEST(what_was_being_loaded_when_it_failed_is_for_earlier_callers_alone)
{
    struct getter before = {0}, after = {0};

    up();
    server_do(&fixture.server, "ACL SETUSER default -zadd");
    getter_hold(&before, &fixture, "k");
    table_update(&fixture.table);
    EXPECT_CODE(shed_invalidate_all(fixture.cache, 0, NULL), SHED_EDENIED);
    getter_start(&after, fixture.cache, "k");
    WAIT_FOR(stats_of(fixture.cache).joins == 1);
    table_release(&fixture.table);
    getter_expect(&before, "k@1", SHED_ORIGIN_LOAD);
    getter_expect(&after, "k@2", SHED_ORIGIN_LOAD);
}

/* Callers from after a failed invalidation go round again, all together. */
TEST(one_that_fails_costs_other_keys_one_load_each)
{
    struct getter before = {0}, after[3] = {0};

    up();
    server_kill(&fixture.server);
    getter_hold(&before, &fixture, "k");
    table_update(&fixture.table);
    for (size_t i = 0; i < 3; i++) {
        ck_assert_int_ne(shed_invalidate_all(fixture.cache, 0, NULL), SHED_OK);
        getter_start(&after[i], fixture.cache, "k");
        WAIT_FOR(stats_of(fixture.cache).joins == i + 1);
    }
    table_release(&fixture.table);
    getter_expect(&before, "k@1", SHED_ORIGIN_UNPUBLISHED);
    for (size_t i = 0; i < 3; i++)
        getter_expect(&after[i], "k@2", SHED_ORIGIN_UNPUBLISHED);
    ck_assert_uint_eq(table_loads(&fixture.table), 2);
    server_start_again(&fixture.server);
}

/* A process without tags, whose entries look older than all invalidations. */
TEST(an_entry_that_a_flight_finds_is_judged_and_no_hit)
{
    struct getter loads = {0}, waits = {0};
    struct peer peer;

    up();
    fixture.cache_options.tags_limit = 0;
    peer_open(&peer, &fixture);
    table_hold(&fixture.table);
    getter_start(&loads, peer.cache, "k");
    WAIT_FOR(table_running(&fixture.table) == 1);
    getter_start(&waits, fixture.cache, "k");
    WAIT_FOR(stats_of(fixture.cache).waits == 1);
    table_update(&fixture.table);
    invalidate_all(fixture.cache);
    table_release(&fixture.table);
    getter_expect(&loads, "k@1", SHED_ORIGIN_LOAD);
    getter_expect(&waits, "k@2", SHED_ORIGIN_LOAD);
    ck_assert_uint_eq(stats_of(fixture.cache).hits, 0);
    ck_assert_uint_eq(stats_of(fixture.cache).misses, 1);
    peer_close(&peer);
}

TEST(a_key_is_loaded_once_for_all_who_miss_it)
{
    enum { EACH = 4 };
    struct getter getters[2 * EACH] = {{0}};
    struct peer peer;

    up();
    peer_open(&peer, &fixture);
    expect_text(peer.cache, "k", "k@1");
    change_all();
    WAIT_FOR(has_heard(peer.cache, fixture.cache));
    table_hold(&fixture.table);
    for (size_t i = 0; i < 2 * EACH; i++)
        getter_start(&getters[i], i < EACH ? fixture.cache : peer.cache, "k");
    WAIT_FOR(stats_of(fixture.cache).misses == EACH &&
             stats_of(peer.cache).misses == 1 + EACH);
    table_release(&fixture.table);
    for (size_t i = 0; i < 2 * EACH; i++) {
        getter_join(&getters[i]);
        check_text(getters[i].value, "k@2");
        shed_value_unref(getters[i].value);
    }
    ck_assert_uint_eq(table_loads(&fixture.table), 2);
    peer_close(&peer);
}

/* --------------------------------------------------------------------- tags */

static void invalidate_tag(struct shed_cache *cache, const char *tag)
{
    struct shed_bytes bytes = shed_str(tag);
    struct shed_error err = {0};
    enum shed_code code = shed_invalidate_tags(cache, &bytes, 1, 0, &err);

    ck_assert_msg(code == SHED_OK, "%s: %s", shed_code_name(code), err.reason);
}

static void up_with_tags(uint64_t tags)
{
    init();
    fixture.cache_options.tags_limit = tags;
    fixture.table.has_tags = true;
    fixture_open(&fixture);
}

TEST(after_it_the_entries_with_a_tag_are_misses_and_no_others)
{
    struct peer peer;

    up_with_tags(LIMIT);
    peer_open(&peer, &fixture);
    expect_text(fixture.cache, "red", "red@1");
    expect_text(fixture.cache, "rose", "rose@1");
    expect_text(peer.cache, "blue", "blue@1");
    table_update(&fixture.table);
    invalidate_tag(fixture.cache, "r");
    /* Redis has red@1 until a process that has heard of the tag reads it */
    WAIT_FOR(has_row(peer.cache, "red", "red@2"));
    expect_text(peer.cache, "blue", "blue@1");
    expect_origin(fixture.cache, "red", "red@2", SHED_ORIGIN_REDIS);
    expect_text(fixture.cache, "rose", "rose@2");
    expect_text(fixture.cache, "blue", "blue@1");
    invalidate_tag(fixture.cache, "all");
    expect_text(fixture.cache, "blue", "blue@2");
    peer_close(&peer);
}

TEST(absence_has_tags_too)
{
    up_with_tags(LIMIT);
    expect_kind(fixture.cache, "absent", SHED_KIND_ABSENT);
    expect_kind(fixture.cache, "null", SHED_KIND_NULL);
    invalidate_tag(fixture.cache, "a");
    expect_kind(fixture.cache, "null", SHED_KIND_NULL);
    ck_assert_uint_eq(table_loads(&fixture.table), 2);
    expect_kind(fixture.cache, "absent", SHED_KIND_ABSENT);
    ck_assert_uint_eq(table_loads(&fixture.table), 3);
}

TEST(a_payload_is_the_same_with_tags)
{
    char payload[64] = "";
    redisReply *reply;

    up_with_tags(LIMIT);
    expect_text(fixture.cache, "k", "k@1");
    expect_text(fixture.cache, "k", "k@1");
    reply = server_run(&fixture.server, "GETRANGE t:{k} 64 66");
    snprintf(payload, sizeof(payload), "%s", reply->str);
    freeReplyObject(reply);
    ck_assert_str_eq(payload, "k@1");
}

TEST(what_is_put_has_the_tags_of_the_put_alone)
{
    struct shed_bytes tags[] = {shed_str("blue"), shed_str("green")};
    struct shed_put_options o = SHED_PUT_OPTIONS_INIT;
    struct shed_error err = {0};

    up_with_tags(LIMIT);
    o.tags = tags;
    o.tags_count = 2;
    EXPECT_OK(
        shed_put(fixture.cache, shed_str("red"), shed_str("put"), &o, &err));
    invalidate_tag(fixture.cache, "r");
    expect_text(fixture.cache, "red", "put");
    invalidate_tag(fixture.cache, "green");
    expect_text(fixture.cache, "red", "red@1");
}

static void refused_tags(const struct shed_bytes *tags, size_t count,
                         const char *why)
{
    struct shed_error err = {0};

    EXPECT_CODE(shed_invalidate_tags(fixture.cache, tags, count, 0, &err),
                SHED_EINVAL);
    EXPECT_CODE(err.code, SHED_EINVAL);
    ck_assert_str_eq(err.reason, why);
}

TEST(tags_of_a_wrong_form_are_refused)
{
    static const char big[SHED_TAG_MAX_BYTES + 1];
    struct shed_bytes bad[] = {shed_str("fine"), shed_str("")};
    struct shed_bytes many[SHED_TAGS_MAX + 1];
    struct shed_put_options o = SHED_PUT_OPTIONS_INIT;
    struct shed_error err = {0};

    up_with_tags(LIMIT);
    refused_tags(bad, 2, "tags[1] is empty");
    bad[1] = shed_bytes(big, sizeof(big));
    refused_tags(bad, 2, "tags[1] has 251 bytes, the limit is 250");
    bad[1] = shed_bytes(NULL, 1);
    refused_tags(bad, 2, "tags[1] is NULL");
    refused_tags(NULL, 2, "shed_invalidate_tags: tags is NULL");
    refused_tags(bad, SHED_MANY_MAX + 1,
                 "shed_invalidate_tags: 10001 tags, the limit is 10000");
    EXPECT_OK(shed_invalidate_tags(fixture.cache, NULL, 0, 0, &err));
    for (size_t i = 0; i <= SHED_TAGS_MAX; i++)
        many[i] = shed_str("tag");
    o.tags = many;
    o.tags_count = SHED_TAGS_MAX + 1;
    EXPECT_CODE(
        shed_put(fixture.cache, shed_str("k"), shed_str("row"), &o, &err),
        SHED_EINVAL);
    ck_assert_str_eq(err.reason, "shed_put: 65 tags, the limit is 64");
    ck_assert_int_eq(server_int(&fixture.server, "DBSIZE"), 0);
}

TEST(a_log_keeps_no_more_tags_than_it_may)
{
    struct peer peer;
    char tag[16];

    up_with_tags(3);
    expect_text(fixture.cache, "red", "red@1");
    for (unsigned i = 0; i < 20; i++) {
        snprintf(tag, sizeof(tag), "tag%u", i);
        invalidate_tag(fixture.cache, tag);
    }
    ck_assert_int_le(server_int(&fixture.server, "ZCARD t:tags"), 5);
    table_update(&fixture.table);
    peer_open(&peer, &fixture);
    expect_text(peer.cache, "red", "red@2");
    expect_origin(peer.cache, "red", "red@2", SHED_ORIGIN_REDIS);
    peer_close(&peer);
}

enum { TAGS = 2500, TAGS_PER_READ = 500 };

static void invalidate_many_tags(void)
{
    static char names[TAGS][16];
    static struct shed_bytes tags[TAGS];

    for (unsigned i = 0; i < TAGS; i++) {
        snprintf(names[i], sizeof(names[i]), "tag%u", i);
        tags[i] = shed_str(names[i]);
    }
    EXPECT_OK(shed_invalidate_tags(fixture.cache, tags, TAGS, 0, NULL));
}

TEST(a_log_of_many_tags_is_read_in_parts)
{
    struct peer peer;

    up_with_tags(10000);
    expect_text(fixture.cache, "red", "red@1");
    table_update(&fixture.table);
    invalidate_tag(fixture.cache, "x");
    invalidate_many_tags();
    invalidate_tag(fixture.cache, "r");
    peer_open(&peer, &fixture);
    expect_text(peer.cache, "red", "red@2");
    ck_assert_int_eq(server_int(&fixture.server, "ZCARD t:tags"), TAGS + 2);
    peer_close(&peer);
}

/* It is read for all of them, and once more when changes are announced. */
TEST(callers_who_come_at_once_do_not_all_read_a_log_of_many_tags)
{
    enum { CALLERS = 16 };
    struct getter getters[CALLERS] = {{0}};
    static struct proxy proxy;
    struct peer peer;
    long long reads;

    init();
    fixture.cache_options.tags_limit = 10000;
    fixture_add_proxy(&fixture, &proxy);
    fixture_open(&fixture);
    expect_text(fixture.cache, "k", "k@1");
    invalidate_many_tags();
    expect_text(fixture.cache, "k", "k@1");
    reads = server_calls(&fixture.server, "zrangebyscore");
    proxy_set(&proxy, PROXY_DELAY, 20, NULL);
    peer_open(&peer, &fixture);
    for (size_t i = 0; i < CALLERS; i++)
        getter_start(&getters[i], peer.cache, "k");
    for (size_t i = 0; i < CALLERS; i++)
        getter_expect(&getters[i], "k@1", SHED_ORIGIN_REDIS);
    reads = server_calls(&fixture.server, "zrangebyscore") - reads;
    ck_assert_int_le(reads, 2 * (TAGS / TAGS_PER_READ + 1));
    peer_close(&peer);
}

/* ---------------------------------------------------------- other processes */

TEST(another_process_hears_of_it_by_push)
{
    struct peer peer;

    up();
    peer_open(&peer, &fixture);
    WAIT_FOR(server_clients(&fixture.server, "flags=t") == 2);
    expect_text(peer.cache, "k", "k@1");
    WAIT_FOR(has_heard(peer.cache, fixture.cache));
    change_all();
    WAIT_FOR(has_row(peer.cache, "k", "k@2"));
    /* once it has, for good */
    for (unsigned i = 0; i < 20; i++)
        expect_text(peer.cache, "k", "k@2");
    peer_close(&peer);
}

TEST_EACH(a_process_that_comes_later_knows_at_once, 0, 2)
{
    struct peer peer;

    up();
    expect_text(fixture.cache, "k", "k@1");
    change_all();
    peer_open(&peer, &fixture);
    if (_i == 1) {
        put(peer.cache, "k", "k@2");
        expect_origin(fixture.cache, "k", "k@2", SHED_ORIGIN_REDIS);
    }
    expect_text(peer.cache, "k", "k@2");
    peer_close(&peer);
}

TEST(it_is_heard_of_though_the_connections_for_pushes_are_killed)
{
    struct peer peer;
    char text[16];

    up();
    peer_open(&peer, &fixture);
    for (unsigned i = 1; i <= 20; i++) {
        snprintf(text, sizeof(text), "k@%u", i);
        WAIT_FOR(has_row(peer.cache, "k", text));
        server_int(&fixture.server, "CLIENT KILL TYPE pubsub");
        table_update(&fixture.table);
        invalidate_all(fixture.cache);
        if (i % 2 == 0)
            server_int(&fixture.server, "CLIENT KILL TYPE pubsub");
    }
    peer_close(&peer);
}

TEST(it_is_heard_of_without_pushes)
{
    struct peer peer;

    init();
    fixture.client_options.wait = SHED_WAIT_POLL;
    fixture_open(&fixture);
    peer_open(&peer, &fixture);
    /* again and again, because a new epoch can be the reason once */
    for (unsigned i = 1; i <= 3; i++) {
        char text[16];
        snprintf(text, sizeof(text), "k@%u", i);
        WAIT_FOR(has_row(peer.cache, "k", text)); /* nobody else loads it */
        table_update(&fixture.table);
        invalidate_all(fixture.cache);
    }
    peer_close(&peer);
}

/* The entry is the first news that the process has of it. */
TEST(an_entry_from_after_it_is_a_hit_for_who_has_not_heard_yet)
{
    struct peer peer;

    init();
    fixture.client_options.wait = SHED_WAIT_POLL;
    fixture_open(&fixture);
    peer_open(&peer, &fixture);
    for (unsigned i = 0; i < 3; i++) {
        expect_origin(fixture.cache, "k", "k@1", SHED_ORIGIN_LOAD);
        expect_origin(peer.cache, "k", "k@1", SHED_ORIGIN_REDIS);
        invalidate_all(fixture.cache);
    }
    peer_close(&peer);
}

/* Its entries have no position. */
TEST(entries_of_a_process_without_tags_are_misses_too)
{
    struct peer peer;

    up();
    fixture.cache_options.tags_limit = 0;
    peer_open(&peer, &fixture);
    expect_text(peer.cache, "k", "k@1");
    expect_origin(fixture.cache, "k", "k@1", SHED_ORIGIN_REDIS);
    change_all();
    expect_text(fixture.cache, "k", "k@2");
    peer_close(&peer);
}

/* ------------------------------------------------------------------ the log */

TEST(a_lost_log_is_remembered_and_goes_on)
{
    uint64_t before;

    up();
    expect_text(fixture.cache, "k", "k@1");
    change_all();
    before = shed_tag_log_position(fixture.cache->tag_log);
    ck_assert_int_eq(server_int(&fixture.server, "DEL t:tags"), 1);
    expect_text(fixture.cache, "k", "k@2");
    /* as if the clock had been set back meanwhile */
    shed_tag_log_note(fixture.cache->tag_log, shed_str("x"),
                      before + 1000000000);
    invalidate_all(fixture.cache);
    ck_assert_uint_eq(shed_tag_log_position(fixture.cache->tag_log),
                      before + 1000000001);
}

TEST(positions_grow_though_the_clock_does_not)
{
    uint64_t before;

    up();
    before = (uint64_t)server_int(&fixture.server, "EVAL %s 1 t:tags",
                                  "local at = (redis.call('TIME')[1] + 3600) * "
                                  "1000000 redis.call('ZADD', KEYS[1], at, "
                                  "'future') return at");
    invalidate_all(fixture.cache);
    ck_assert_uint_eq(shed_tag_log_position(fixture.cache->tag_log),
                      before + 1);
    ck_assert_int_eq(server_int(&fixture.server, "ZCARD t:tags"), 1);
}

TEST(a_redis_without_memory_takes_it)
{
    up();
    expect_text(fixture.cache, "k", "k@1");
    table_update(&fixture.table);
    server_do(&fixture.server, "CONFIG SET maxmemory 1");
    invalidate_all(fixture.cache);
    server_do(&fixture.server, "CONFIG SET maxmemory 0");
    expect_text(fixture.cache, "k", "k@2");
}

TEST(a_log_that_is_something_else_is_an_error_and_no_hit)
{
    struct shed_error err = {0};

    up();
    expect_text(fixture.cache, "k", "k@1");
    fixture_close(&fixture);
    server_do(&fixture.server, "SET t:tags x");
    fixture_open(&fixture);
    expect_code(fixture.cache, "k", SHED_EREDIS, &err);
    ck_assert_ptr_nonnull(strstr(err.reason, "log of tags, t:tags"));
    EXPECT_CODE(shed_invalidate_all(fixture.cache, 0, &err), SHED_EREDIS);
    server_do(&fixture.server, "DEL t:tags");
    expect_text(fixture.cache, "k", "k@1");
}

/* As many as a read takes at a time, so that there could be more. */
TEST_EACH(scores_that_are_no_positions_are_an_error_and_no_hit, 0, 5)
{
    static const char *const scores[] = {"1.5", "9007199254740991.5",
                                         "9007199254740992", "1e300", "inf"};
    struct shed_error err = {0};

    up();
    expect_text(fixture.cache, "k", "k@1");
    fixture_close(&fixture);
    server_do(&fixture.server, "EVAL %s 1 t:tags %s",
              "for i = 1, 500 do redis.call('ZADD', KEYS[1], ARGV[1], i) end",
              scores[_i]);
    fixture_open(&fixture);
    expect_code(fixture.cache, "k", SHED_EREDIS, &err);
    ck_assert_ptr_nonnull(strstr(err.reason, "t:tags, has a score"));
    EXPECT_CODE(shed_invalidate_all(fixture.cache, 0, &err), SHED_EREDIS);
    ck_assert_ptr_nonnull(strstr(err.reason, "t:tags is no position"));
    ck_assert_int_eq(server_int(&fixture.server, "ZCARD t:tags"), 500);
    server_do(&fixture.server, "DEL t:tags");
    WAIT_FOR(shed_delivery_count(fixture.cache->delivery) == 0);
    expect_text(fixture.cache, "k", "k@1");
    ck_assert_uint_eq(table_loads(&fixture.table), 2);
}

TEST(a_cache_without_tags_has_no_log_and_reads_none)
{
    struct shed_error err = {0};
    struct shed_bytes tag = shed_str("red");

    fixture_open(&fixture);
    expect_text(fixture.cache, "k", "k@1");
    EXPECT_CODE(shed_invalidate_all(fixture.cache, 0, &err), SHED_EINVAL);
    EXPECT_CODE(shed_invalidate_tags(fixture.cache, &tag, 1, 0, &err),
                SHED_EINVAL);
    ck_assert_ptr_nonnull(strstr(err.reason, "option tags_limit"));
    ck_assert_int_eq(server_int(&fixture.server, "EXISTS t:tags"), 0);
    ck_assert_int_eq(server_calls(&fixture.server, "zrangebyscore"), 0);
}

TEST(hits_read_the_log_no_more_once_its_changes_are_announced)
{
    long long before;

    up();
    expect_text(fixture.cache, "k", "k@1");
    wait_for_pushes(&fixture);
    WAIT_FOR(shed_tag_log_is_known(fixture.cache->tag_log));
    before = server_calls(&fixture.server, "zrangebyscore");
    for (unsigned i = 0; i < 100; i++)
        expect_text(fixture.cache, "k", "k@1");
    ck_assert_int_le(server_calls(&fixture.server, "zrangebyscore"),
                     before + 2);
}

/* --------------------------------------------------------------- its place */

TEST(no_stale_window_covers_what_it_has_made_a_miss)
{
    struct shed_get_options any = SHED_GET_OPTIONS_INIT;
    struct shed_value *value = NULL;
    struct shed_error err = {0};

    init();
    fixture.cache_options.ttl_ms = AGEING_TTL_MS;
    fixture.cache_options.stale_if_error_ms = AGEING_TTL_MS;
    fixture.cache_options.stale_while_revalidate_ms = AGEING_TTL_MS;
    fixture_open(&fixture);
    expect_text(fixture.cache, "k", "k@1");
    invalidate_all(fixture.cache);
    fixture.table.is_failing = true;
    expect_code(fixture.cache, "k", SHED_ESOURCE, &err);
    age_entry(&fixture.server, "t:{k}", AGEING_TTL_MS + 1000);
    expect_code(fixture.cache, "k", SHED_ESOURCE, &err);
    any.allow_stale = SHED_STALE_ALLOWED;
    EXPECT_CODE(shed_get(fixture.cache, shed_str("k"), &any, &value, &err),
                SHED_ESOURCE);
    any.only_cached = 1;
    EXPECT_CODE(shed_get(fixture.cache, shed_str("k"), &any, &value, &err),
                SHED_EMISS);
    ck_assert_uint_eq(stats_of(fixture.cache).stale, 0);
}

/* "Unmodified" would renew the entry, and leave it a miss for ever. */
TEST(a_row_that_has_not_changed_is_loaded_whole)
{
    init();
    fixture.table.has_versions = true;
    fixture_open(&fixture);
    expect_text(fixture.cache, "k", "k@1");
    invalidate_all(fixture.cache);
    expect_origin(fixture.cache, "k", "k@1", SHED_ORIGIN_LOAD);
    expect_origin(fixture.cache, "k", "k@1", SHED_ORIGIN_REDIS);
    ck_assert_uint_eq(table_loads(&fixture.table), 2);
}

/* That of a row which was put holds up no load of a replica that lags, or the
 * key could not be read. */
TEST(an_invalidation_of_all_forgets_the_row_version)
{
    init();
    fixture.table.has_versions = true;
    fixture_open(&fixture);
    EXPECT_OK(shed_put(fixture.cache, shed_str("k"), shed_str("seven"),
                       AT_VERSION(7), NULL));
    expect_text(fixture.cache, "k", "seven");
    invalidate_all(fixture.cache);
    expect_origin(fixture.cache, "k", "k@1", SHED_ORIGIN_LOAD);
    expect_origin(fixture.cache, "k", "k@1", SHED_ORIGIN_REDIS);
}

/* -------------------------------------------------------- Redis goes away */

/* Change the rows, and fail to invalidate a tag, or everything (NULL). */
static void miss_one(const char *tag)
{
    struct shed_bytes bytes = shed_str(tag);
    struct shed_error err = {0};
    enum shed_code code;

    table_update(&fixture.table);
    code = tag != NULL
               ? shed_invalidate_tags(fixture.cache, &bytes, 1, scaled_ms(1000),
                                      &err)
               : shed_invalidate_all(fixture.cache, scaled_ms(1000), &err);
    ck_assert_msg(code == SHED_EREDIS || code == SHED_ETIMEDOUT, "%d: %s", code,
                  err.reason);
    ck_assert_ptr_nonnull(
        strstr(err.reason, "undelivered until Redis takes it: "));
}

TEST(until_redis_is_told_the_rows_with_the_tag_come_from_the_source)
{
    struct peer peer;

    up_with_tags(LIMIT);
    peer_open(&peer, &fixture);
    expect_text(fixture.cache, "red", "red@1");
    expect_text(fixture.cache, "blue", "blue@1");
    refuse_writes();
    miss_one("r");
    ck_assert_uint_eq(undelivered(), 1);
    for (unsigned i = 0; i < 3; i++) {
        expect_origin(fixture.cache, "red", "red@2", SHED_ORIGIN_UNPUBLISHED);
        expect_origin(fixture.cache, "blue", "blue@1", SHED_ORIGIN_REDIS);
        expect_text(peer.cache, "red", "red@1");
    }
    accept_writes();
    WAIT_FOR(stats_of(fixture.cache).invalidations_delivered == 1);
    ck_assert_uint_eq(stats_of(fixture.cache).tag_invalidations, 1);
    ck_assert_uint_eq(stats_of(fixture.cache).invalidations, 0);
    expect_text(fixture.cache, "red", "red@2");
    WAIT_FOR(has_row(peer.cache, "red", "red@2"));
    expect_origin(fixture.cache, "red", "red@2", SHED_ORIGIN_REDIS);
    peer_close(&peer);
}

TEST(a_server_that_was_away_is_told_before_it_is_believed)
{
    init();
    fixture_hurry(&fixture, 200);
    fixture.server.options[0] = "--appendonly";
    fixture.server.options[1] = "yes";
    fixture.server.options[2] = "--appendfsync";
    fixture.server.options[3] = "always";
    server_kill(&fixture.server);
    server_start_again(&fixture.server);
    fixture_open(&fixture);
    expect_text(fixture.cache, "k", "k@1");
    server_kill(&fixture.server);
    miss_one(NULL);
    expect_origin(fixture.cache, "k", "k@2", SHED_ORIGIN_UNPUBLISHED);
    server_start_again(&fixture.server);
    WAIT_FOR((expect_text(fixture.cache, "k", "k@2"), undelivered() == 0));
    expect_text(fixture.cache, "k", "k@2");
    ck_assert_int_eq(server_int(&fixture.server, "EXISTS t:tags"), 1);
}

TEST(a_later_invalidation_makes_up_for_one_that_was_missed)
{
    up_with_tags(LIMIT);
    expect_text(fixture.cache, "red", "red@1");
    refuse_writes();
    miss_one("r");
    miss_one("r");
    ck_assert_uint_eq(undelivered(), 1);
    accept_writes();
    invalidate_tag(fixture.cache, "r");
    WAIT_FOR(undelivered() == 0);
    expect_text(fixture.cache, "red", "red@3");
    expect_origin(fixture.cache, "red", "red@3", SHED_ORIGIN_REDIS);
}

/* And what is not kept has no effect. */
TEST(of_many_tags_the_first_that_is_not_kept_is_named)
{
    struct shed_bytes tags[] = {shed_str("b"), shed_str("r"), shed_str("c")};
    struct shed_error err = {0};

    fixture.cache_options.undelivered_limit = 1;
    up_with_tags(LIMIT);
    expect_text(fixture.cache, "red", "red@1");
    expect_text(fixture.cache, "blue", "blue@1");
    table_update(&fixture.table);
    refuse_writes();
    EXPECT_CODE(shed_invalidate_tags(fixture.cache, tags, 3, 0, &err),
                SHED_EREDIS);
    ck_assert_msg(strstr(err.reason, "tags[1]: dropped (undelivered_limit") ==
                      err.reason,
                  "%s", err.reason);
    expect_text(fixture.cache, "red", "red@1");
    expect_text(fixture.cache, "blue", "blue@2");
    accept_writes();
    WAIT_FOR(undelivered() == 0);
}

TEST(one_that_is_still_kept_at_the_end_is_dropped)
{
    up_with_tags(LIMIT);
    fixture.cache->options.timeout_ms = 1; /* of the last try */
    refuse_writes();
    miss_one("r");
    fixture_close(&fixture);
    accept_writes();
    ck_assert_int_eq(server_int(&fixture.server, "DBSIZE"), 0);
    server_stop(&fixture.server);
}

int main(void)
{
    return run_fixture_tests("tag_log");
}
