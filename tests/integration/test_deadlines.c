/* A call that ends at its deadline says what it waited for. Each case is set up
 * so that the wait cannot end; earlier calls may still wait for something
 * else. */
#include <string.h>

#include "support/fixture.h"

/* Whether a get with little time ends with such a reason. */
static bool waits_for(struct shed_cache *cache, const char *key,
                      const char *what)
{
    struct shed_value *value = NULL;
    struct shed_error err;

    EXPECT_CODE(shed_get(cache, shed_str(key), WITHIN(1), &value, &err),
                SHED_ETIMEDOUT);
    ck_assert_ptr_nonnull(strstr(err.reason, "the deadline passed"));
    return strstr(err.reason, what) != NULL;
}

/* The same for several keys. They ask Redis first, which can take all the time,
 * so each call gets more time than the one before. */
static bool many_wait_for(struct shed_cache *cache, const char *key,
                          const char *what)
{
    static uint64_t timeout_ms = 1;
    struct shed_item item = {.key = shed_str(key)};
    struct shed_error err;

    EXPECT_CODE(shed_get_many(cache, &item, 1, WITHIN(timeout_ms++), &err),
                SHED_ETIMEDOUT);
    return strstr(err.reason, what) != NULL;
}

/* The load ends, and its caller has the row. */
static void finish(struct getter *getter, const char *text)
{
    table_release(&fixture.table);
    getter_expect(getter, text, SHED_ORIGIN_LOAD);
}

TEST(the_reason_is_a_load_of_this_process)
{
    struct getter getter = {0};

    fixture_open(&fixture);
    getter_hold(&getter, &fixture, "k");
    WAIT_FOR(
        waits_for(fixture.cache, "k", "a load of the key by this process"));
    WAIT_FOR(many_wait_for(fixture.cache, "k", "a load of the key by this"));
    finish(&getter, "k@1");
}

TEST(the_reason_is_the_queue_of_the_source)
{
    struct getter first = {0}, queued = {0};
    uint64_t misses;

    fixture.source_options.max_loads = 1;
    fixture_open(&fixture);
    getter_hold(&first, &fixture, "a");
    misses = stats_of(fixture.cache).misses;
    getter_start(&queued, fixture.cache, "b");
    WAIT_FOR(stats_of(fixture.cache).misses > misses);
    WAIT_FOR(waits_for(fixture.cache, "b", "the source's queue"));
    ck_assert(waits_for(fixture.cache, "a", "a load of the key by this"));
    finish(&first, "a@1");
    getter_expect(&queued, "b@1", SHED_ORIGIN_LOAD);
}

/* The lease is polled, but that is not what the call waits for. */
TEST(the_reason_is_a_load_of_another_process)
{
    enum { CALLS = 200 };
    struct getter getter = {0}, waiter = {0};
    struct peer peer;

    fixture_open(&fixture);
    peer_open(&peer, &fixture);
    getter_hold(&getter, &fixture, "k");
    getter_start(&waiter, peer.cache, "k");
    WAIT_FOR(waits_for(peer.cache, "k", "a load of the key by another"));
    for (int i = 0; i < CALLS; i++)
        ck_assert(waits_for(peer.cache, "k", "a load of the key by another"));
    finish(&getter, "k@1");
    getter_expect(&waiter, "k@1", SHED_ORIGIN_WAITED);
    peer_close(&peer);
}

TEST(the_reason_is_redis_when_it_is_silent)
{
    fixture_open(&fixture);
    expect_text(fixture.cache, "k", "k@1");
    server_freeze(&fixture.server);
    WAIT_FOR(waits_for(fixture.cache, "k", "for Redis to answer"));
    server_thaw(&fixture.server);
}

/* The load is done but cannot be published. */
TEST(the_reason_is_redis_after_a_load)
{
    struct getter getter = {0};

    fixture_open(&fixture);
    getter_hold(&getter, &fixture, "k");
    server_freeze(&fixture.server);
    table_release(&fixture.table);
    WAIT_FOR(waits_for(fixture.cache, "k", "for Redis to answer"));
    server_thaw(&fixture.server);
    finish(&getter, "k@1");
}

int main(void)
{
    return run_fixture_tests("deadlines");
}
