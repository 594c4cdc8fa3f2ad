/* The near cache: gets that ask Redis nothing, and what ends that. Changes are
 * made by commands on connections of their own, as redis-cli makes them. */
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "support/fixture.h"

enum { NEAR_BYTES = 4 << 20, GETS = 50 };

static struct proxy proxy;

static void init(void)
{
    fixture.cache_options.near_bytes = NEAR_BYTES;
    fixture.cache_options.near_ms = 3600000;
}

static void up(void)
{
    init();
    fixture_open(&fixture);
}

/* by_prefix: Redis announces all changes of the cache's keys. */
static void up_by(bool by_prefix)
{
    init();
    if (by_prefix)
        fixture.client_options.tracking_prefix = "t:{";
    fixture_open(&fixture);
}

static uint64_t near_hits_of(struct shed_cache *cache)
{
    return stats_of(cache).near_hits;
}

static uint64_t near_hits(void)
{
    return near_hits_of(fixture.cache);
}

static bool is_near(struct shed_cache *cache, const char *key, const char *text)
{
    uint64_t before = near_hits_of(cache);

    expect_text(cache, key, text);
    return near_hits_of(cache) > before;
}

static void have_near(const char *key, const char *text)
{
    WAIT_FOR(is_near(fixture.cache, key, text));
}

static void expect_near(const char *key, const char *text)
{
    ck_assert(is_near(fixture.cache, key, text));
}

/* The row changes, and then its entry in Redis goes. */
static void change(const char *key)
{
    table_update(&fixture.table);
    server_do(&fixture.server, "DEL t:{%s}", key);
}

/* max_age_ms 0: no bound. */
static struct shed_value *get_by(uint64_t max_age_ms)
{
    struct shed_get_options o = SHED_GET_OPTIONS_INIT;
    struct shed_value *value;

    o.max_age_ms = max_age_ms;
    EXPECT_OK(shed_get(fixture.cache, shed_str("k"), &o, &value, NULL));
    return value;
}

static void take_text(struct shed_value *value, const char *text)
{
    check_text(value, text);
    shed_value_unref(value);
}

static uint64_t age_by(uint64_t max_age_ms)
{
    struct shed_value *value = get_by(max_age_ms);
    uint64_t age_ms = value->age_ms;

    shed_value_unref(value);
    return age_ms;
}

/* ---------------------------------------------------------------- the hits */

TEST(near_hits_ask_redis_nothing)
{
    long long gets;
    uint64_t hits, near;

    up();
    have_near("k", "k@1");
    gets = server_calls(&fixture.server, "get");
    hits = stats_of(fixture.cache).hits;
    near = near_hits();
    for (int i = 0; i < GETS; i++)
        expect_origin(fixture.cache, "k", "k@1", SHED_ORIGIN_REDIS);
    ck_assert_int_eq(server_calls(&fixture.server, "get"), gets);
    ck_assert_uint_eq(near_hits() - near, GETS);
    ck_assert_uint_eq(stats_of(fixture.cache).hits - hits, GETS);
}

static const char *const prefixes[] = {NULL, "u:", "t:{"};

TEST_EACH(one_get_makes_a_row_near, 0, COUNT_OF(prefixes))
{
    struct peer peer;
    long long gets;
    char key[16];

    init();
    fixture.client_options.tracking_prefix = prefixes[_i];
    fixture_open(&fixture);
    peer_open(&peer, &fixture);
    have_near("k", "k@1");
    for (int i = 0; i < GETS; i++) {
        snprintf(key, sizeof(key), "k%d", i);
        put(peer.cache, key, "x");
        gets = server_calls(&fixture.server, "get");
        expect_text(fixture.cache, key, "x");
        expect_near(key, "x");
        ck_assert_int_eq(server_calls(&fixture.server, "get"), gets + 1);
    }
    peer_close(&peer);
    change("k");
    WAIT_FOR(has_text(fixture.cache, "k@2"));
}

static bool is_tracked_by_get(struct shed_cache *peer, const char *key)
{
    char before[24], after[24];

    put(peer, key, "x");
    server_info(&fixture.server, "tracking_total_keys", before, sizeof(before));
    expect_text(fixture.cache, key, "x");
    server_info(&fixture.server, "tracking_total_keys", after, sizeof(after));
    return strcmp(before, after) != 0;
}

/* Until Redis announces all changes. */
static void await_broadcast(struct shed_cache *peer)
{
    int tries = 0;
    char key[16];

    WAIT_FOR((snprintf(key, sizeof(key), "try%d", tries++),
              !is_tracked_by_get(peer, key)));
}

TEST(gets_of_a_tracking_prefix_are_not_tracked)
{
    struct peer peer;
    char key[16];

    up_by(true);
    peer_open(&peer, &fixture);
    await_broadcast(peer.cache);
    for (int i = 0; i < GETS; i++) {
        snprintf(key, sizeof(key), "k%d", i);
        ck_assert(!is_tracked_by_get(peer.cache, key));
        expect_near(key, "x");
    }
    peer_close(&peer);
}

/* One announcement has all keys that change in a turn of Redis's loop. */
TEST(thousands_of_keys_that_change_at_once_cost_other_rows_nothing)
{
    struct peer peer;

    up_by(true);
    peer_open(&peer, &fixture);
    await_broadcast(peer.cache);
    peer_close(&peer);
    have_near("k", "k@1");
    have_near("other", "other@1");
    server_do(&fixture.server, "EVAL %s 0",
              "for i=1,5000 do redis.call('SETEX','t:{x}'..i,9,'x') "
              "redis.call('DEL','t:{x}'..i) end");
    change("k");
    WAIT_FOR(has_text(fixture.cache, "k@2"));
    expect_near("other", "other@1");
}

TEST(no_such_row_is_near_until_its_ttl_ends)
{
    uint64_t before;

    init();
    fixture.cache_options.negative_ttl_ms = 1000;
    fixture_open(&fixture);
    before = stats_of(fixture.cache).negative_hits;
    WAIT_FOR((expect_kind(fixture.cache, "absent", SHED_KIND_ABSENT),
              near_hits() > 0));
    ck_assert_uint_gt(stats_of(fixture.cache).negative_hits, before);
    WAIT_FOR((expect_kind(fixture.cache, "absent", SHED_KIND_ABSENT),
              table_loads(&fixture.table) > 1));
}

TEST(get_many_asks_for_the_others_alone)
{
    struct shed_item items[] = {{.key = shed_str("other")},
                                {.key = shed_str("k")}};
    uint64_t near;
    long long gets;

    up();
    have_near("k", "k@1");
    expect_text(fixture.cache, "other", "other@1");
    gets = server_calls(&fixture.server, "get");
    near = near_hits();
    for (int i = 0; i < 2; i++) {
        EXPECT_OK(shed_get_many(fixture.cache, items, 2, NULL, NULL));
        take_text(items[0].value, "other@1");
        take_text(items[1].value, "k@1");
    }
    ck_assert_uint_eq(near_hits() - near, 3);
    ck_assert_int_eq(server_calls(&fixture.server, "get") - gets, 1);
}

TEST(a_value_outlives_its_row_and_its_cache)
{
    struct shed_value *value;

    up();
    have_near("k", "k@1");
    value = get_by(0);
    change("k");
    WAIT_FOR(has_text(fixture.cache, "k@2"));
    fixture_down(&fixture);
    take_text(value, "k@1");
}

TEST(ages_go_on)
{
    struct shed_value *first, *later;

    up();
    have_near("k", "k@1");
    first = get_by(0);
    later = get_by(0);
    while (later->age_ms < first->age_ms + 300) {
        shed_value_unref(later);
        later = get_by(0);
    }
    ck_assert_uint_le(later->fresh_ms + 300, first->fresh_ms);
    ck_assert_uint_eq(stats_of(fixture.cache).misses, 1);
    shed_value_unref(first);
    shed_value_unref(later);
}

/* Its row is older than that, or was last known to be current longer ago. */
TEST(a_call_with_a_max_age_asks_redis)
{
    uint64_t near;

    up();
    have_near("k", "k@1");
    table_update(&fixture.table);
    near = near_hits();
    expect_near("k", "k@1");
    take_text(get_by(3600000), "k@1");
    ck_assert_uint_eq(near_hits() - near, 2);
    WAIT_FOR(age_by(1) <= 1);
    ck_assert_uint_ge(table_loads(&fixture.table), 2);
}

/* And not the GET at the end of the ttl. */
TEST(a_near_hit_that_is_due_begins_one_refresh)
{
    enum { TTL_MS = 12000, MARGIN_MS = 1000 };
    uint64_t start_ms;

    init();
    fixture.cache_options.refresh_after_pct = 50;
    fixture.cache_options.ttl_ms = TTL_MS;
    fixture.cache_options.ttl_jitter_pct = 0;
    fixture_open(&fixture);
    start_ms = shed_now_ms();
    have_near("k", "k@1");
    table_update(&fixture.table);
    /* the refresh may end between two questions of this thread */
    while (table_loads(&fixture.table) == 1)
        ck_assert(has_text(fixture.cache, "k@1") ||
                  table_loads(&fixture.table) > 1);
    ck_assert_uint_lt(shed_now_ms() - start_ms, TTL_MS - MARGIN_MS);
    WAIT_FOR(has_text(fixture.cache, "k@2"));
    have_near("k", "k@2");
    ck_assert_uint_eq(table_loads(&fixture.table), 2);
    ck_assert_uint_eq(stats_of(fixture.cache).refreshes, 1);
    ck_assert_uint_eq(stats_of(fixture.cache).misses, 1);
}

TEST(a_row_is_not_near_past_its_ttl)
{
    init();
    fixture.cache_options.ttl_ms = 2000;
    fixture.cache_options.ttl_jitter_pct = 0;
    fixture.cache_options.stale_while_revalidate_ms = 600000;
    fixture_open(&fixture);
    have_near("k", "k@1");
    table_hold(&fixture.table);
    for (;;) {
        uint64_t near = near_hits();
        struct shed_value *value = get_by(0);
        bool is_stale = value->origin == SHED_ORIGIN_STALE;
        shed_value_unref(value);
        if (!is_stale)
            continue;
        ck_assert_uint_eq(near_hits(), near);
        break;
    }
    table_release(&fixture.table);
}

TEST(a_row_that_takes_too_much_is_not_near)
{
    static const char large[NEAR_BYTES / 16];

    up();
    have_near("k", "k@1");
    EXPECT_OK(shed_put(fixture.cache, shed_str("large"),
                       shed_bytes(large, sizeof(large)), NULL, NULL));
    for (int i = 0; i < GETS; i++)
        ck_assert(!has_row(fixture.cache, "large", ""));
    expect_near("k", "k@1");
    ck_assert_uint_le(near_hits(), 2);
}

/* The row is in Redis, and in the memory of nobody. */
TEST(threads_that_miss_share_their_gets)
{
    enum { THREADS = 8, DELAY_MS = 500 };
    struct getter getters[THREADS] = {0};
    long long gets;

    init();
    fixture_add_proxy(&fixture, &proxy);
    fixture_open(&fixture);
    expect_text(fixture.cache, "k", "k@1");
    fixture_close(&fixture);
    fixture_open(&fixture);
    expect_text(fixture.cache, "other", "other@1");
    gets = server_calls(&fixture.server, "get");
    proxy_set(&proxy, PROXY_DELAY, DELAY_MS, NULL);
    for (size_t i = 0; i < THREADS; i++)
        getter_start(&getters[i], fixture.cache, "k");
    for (size_t i = 0; i < THREADS; i++)
        getter_expect(&getters[i], "k@1", SHED_ORIGIN_REDIS);
    ck_assert_int_le(server_calls(&fixture.server, "get") - gets, THREADS / 2);
    proxy_set(&proxy, PROXY_PASS, 0, NULL);
}

/* ------------------------------------------------------------ what ends them
 */

TEST_EACH(a_change_by_any_client_is_seen, 0, 2)
{
    struct peer peer;

    up_by(_i == 1);
    peer_open(&peer, &fixture);
    have_near("k", "k@1");
    WAIT_FOR(is_near(peer.cache, "k", "k@1"));
    change("k");
    WAIT_FOR(has_text(fixture.cache, "k@2"));
    WAIT_FOR(has_text(peer.cache, "k@2"));
    have_near("k", "k@2");
    table_update(&fixture.table);
    invalidate(peer.cache, "k");
    ck_assert(has_text(peer.cache, "k@3"));
    WAIT_FOR(has_text(fixture.cache, "k@3"));
    peer_close(&peer);
}

TEST_EACH(own_writes_are_seen_at_once, 0, 2)
{
    char text[16];

    up_by(_i == 1);
    for (unsigned i = 2; i < 2 + GETS; i++) {
        bool is_put = i % 2 == 0;
        have_near("k", i == 2 ? "k@1" : text);
        table_update(&fixture.table);
        snprintf(text, sizeof(text), "k@%u", i);
        if (is_put)
            put(fixture.cache, "k", text);
        else
            invalidate(fixture.cache, "k");
        expect_text(fixture.cache, "k", text);
    }
}

/* A connection for pushes is there, and is not granted a broadcast. */
static bool is_broadcast_refused(void)
{
    redisReply *list = server_run(&fixture.server, "CLIENT LIST");
    bool is_refused = strstr(list->str, " flags=PU ") != NULL;

    freeReplyObject(list);
    return is_refused;
}

static void flush(void)
{
    table_update(&fixture.table);
    server_do(&fixture.server, "FLUSHALL");
}

static void restart(void)
{
    server_kill(&fixture.server);
    table_update(&fixture.table);
    server_start_again(&fixture.server);
}

/* From then on nothing was announced. */
static void lose_pushes(void)
{
    server_do(&fixture.server, "CLIENT KILL TYPE pubsub");
    change("k");
}

static void lose_commands(void)
{
    server_do(&fixture.server, "CLIENT KILL TYPE normal");
    change("k");
}

static void (*const ends[])(void) = {flush, restart, lose_pushes,
                                     lose_commands};

TEST_EACH(what_loses_announcements_ends_them, 0, 2 * COUNT_OF(ends))
{
    up_by(_i % 2 == 1);
    have_near("k", "k@1");
    ends[_i / 2]();
    WAIT_FOR(has_text(fixture.cache, "k@2"));
    have_near("k", "k@2");
    change("k");
    WAIT_FOR(has_text(fixture.cache, "k@3"));
}

TEST(without_a_broadcast_nothing_is_near_by_a_prefix)
{
    struct peer peer;

    up_by(true);
    peer_open(&peer, &fixture);
    await_broadcast(peer.cache);
    ck_assert(!is_tracked_by_get(peer.cache, "k"));
    expect_near("k", "x");
    server_do(&fixture.server, "ACL SETUSER default -client|tracking");
    server_do(&fixture.server, "CLIENT KILL TYPE pubsub");
    WAIT_FOR(is_broadcast_refused());
    (void)poll(NULL, 0, 200); /* the client has the answers */
    expect_text(fixture.cache, "k", "x");
    change("k");
    expect_text(fixture.cache, "k", "k@2");
    peer_close(&peer);
}

/* Redis announces the end of what it can no longer track. */
TEST(a_tracking_table_that_overflows_costs_hits_alone)
{
    char key[16], text[16];

    up();
    server_do(&fixture.server, "CONFIG SET tracking-table-max-keys 2");
    for (int round = 1; round <= 10; round++) {
        for (int i = 0; i < 10; i++) {
            snprintf(key, sizeof(key), "k%d", i);
            snprintf(text, sizeof(text), "k%d@%d", i, round);
            WAIT_FOR(has_row(fixture.cache, key, text));
        }
        table_update(&fixture.table);
        for (int i = 0; i < 10; i++)
            server_do(&fixture.server, "DEL t:{k%d}", i);
    }
}

/* With every push lost in silence. */
TEST(near_ms_bounds_what_lost_pushes_cost)
{
    enum { NEAR_MS = 500 };
    uint64_t changed_ms;

    init();
    fixture.cache_options.near_ms = NEAR_MS;
    fixture_add_proxy(&fixture, &proxy);
    fixture_open(&fixture);
    have_near("k", "k@1");
    proxy_set(&proxy, PROXY_DROP_PUSHES, 0, NULL);
    have_near("k", "k@1");
    change("k");
    changed_ms = shed_now_ms();
    WAIT_FOR(has_text(fixture.cache, "k@2"));
    ck_assert_uint_le(shed_now_ms() - changed_ms,
                      NEAR_MS + scaled_ms(LEEWAY_MS));
    proxy_set(&proxy, PROXY_PASS, 0, NULL);
}

TEST(without_pushes_nothing_is_near)
{
    init();
    fixture.client_options.wait = SHED_WAIT_POLL;
    fixture_open(&fixture);
    for (int i = 0; i < GETS; i++)
        expect_text(fixture.cache, "k", "k@1");
    ck_assert_uint_eq(near_hits(), 0);
}

TEST(tags_end_them)
{
    const struct shed_bytes tag = shed_str("k");
    struct peer peer;

    init();
    fixture.cache_options.tags_limit = 100;
    fixture.table.has_tags = true;
    fixture_open(&fixture);
    peer_open(&peer, &fixture);
    have_near("k", "k@1");
    have_near("l", "l@1");
    table_update(&fixture.table);
    EXPECT_OK(shed_invalidate_tags(fixture.cache, &tag, 1, 0, NULL));
    expect_text(fixture.cache, "k", "k@2");
    have_near("k", "k@2");
    have_near("l", "l@1");
    table_update(&fixture.table);
    EXPECT_OK(shed_invalidate_tags(peer.cache, &tag, 1, 0, NULL));
    WAIT_FOR(has_text(fixture.cache, "k@3"));
    have_near("k", "k@3");
    peer_close(&peer);
}

/* Local rows are in the same memory, and outlive that they are near. */
TEST(they_are_local_rows_when_redis_is_down)
{
    init();
    fixture.cache_options.redis_down = SHED_REDIS_DOWN_STALE;
    fixture_open(&fixture);
    have_near("k", "k@1");
    server_kill(&fixture.server);
    WAIT_FOR((expect_text(fixture.cache, "k", "k@1"),
              stats_of(fixture.cache).local_hits > 0));
    ck_assert_uint_eq(table_loads(&fixture.table), 1);
    server_start_again(&fixture.server);
}

/* While rows are asked for. */
TEST_EACH(a_cache_can_be_closed_at_any_time, 0, 20)
{
    char key[16];

    up();
    for (int i = 0; i < 20; i++) {
        snprintf(key, sizeof(key), "k%d", i);
        for (int n = 0; n < 1 + _i % 4; n++)
            ck_assert(!has_row(fixture.cache, key, ""));
    }
}

int main(void)
{
    return run_fixture_tests("near_cache");
}
