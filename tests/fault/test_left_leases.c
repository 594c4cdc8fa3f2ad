/* A flight that lost Redis, and is over, leaves no lease behind: callers in
 * other processes load soon after Redis is back, and not at the lease's end.
 * One that still loads keeps its lease. */
#include "support/fixture.h"

/* Longer than any test waits. */
#define LEASE_MS 600000

/* The fixture's client is the holder. */
static struct peer peer;
static struct proxy proxy; /* before the holder */

static void init(enum shed_wait wait)
{
    fixture.client_options.wait = wait;
    fixture_hurry(&fixture, 200);
    fixture.cache_options.lease_ms = LEASE_MS;
    fixture.cache_options.redis_down = SHED_REDIS_DOWN_SOURCE;
}

static void warm(void)
{
    WAIT_FOR(status_of(fixture.client).is_up && status_of(peer.client).is_up);
    expect_text(fixture.cache, "warm", "warm@1");
    expect_text(peer.cache, "warm", "warm@1");
}

/* A get that does not meet its deadline. A busy machine makes even a server
 * that answers seem silent. */
static bool gets(struct shed_cache *cache, enum shed_origin origin)
{
    return gets_from(cache, "k", WITHIN(scaled_ms(20000)), origin);
}

/* Let the holder load a key, and lose Redis meanwhile. */
static void load_and_freeze(void)
{
    struct getter g = {0};

    getter_hold(&g, &fixture, "k");
    server_freeze(&fixture.server);
    WAIT_FOR(!status_of(fixture.client).is_up);
    table_release(&fixture.table);
    getter_expect(&g, "k@1", SHED_ORIGIN_UNPUBLISHED);
}

static void open_both(void)
{
    fixture_open(&fixture);
    fixture.uri = NULL;
    peer_open(&peer, &fixture);
    warm();
}

static void up(enum shed_wait wait)
{
    init(wait);
    open_both();
}

static void thaw(void)
{
    server_thaw(&fixture.server);
    WAIT_FOR(gets(peer.cache, SHED_ORIGIN_LOAD));
    peer_close(&peer);
}

TEST(a_load_that_ended_without_redis_leaves_no_lease)
{
    up(SHED_WAIT_AUTO);
    load_and_freeze();
    thaw();
}

/* Nobody can see that its flight is over. */
TEST(a_lease_that_names_no_channel_lasts_to_its_end)
{
    const uint64_t lease_ms = scaled_ms(1000);
    uint64_t frozen_ms;

    init(SHED_WAIT_POLL);
    fixture.cache_options.lease_ms = lease_ms;
    open_both();
    frozen_ms = shed_now_ms();
    load_and_freeze();
    thaw();
    ck_assert_uint_ge(shed_now_ms(), frozen_ms + lease_ms);
}

/* The epoch that the lease of "k" names, if that has its channel; else 0. */
static long long held_epoch(void)
{
    static const char script[] =
        "local record = redis.call('GET', KEYS[1]) or ''\n"
        "if #record ~= 64 then return 0 end\n"
        "local epoch = struct.unpack('>I4', string.sub(record, 61))\n"
        "local channel = 'snowshed:process:' .. string.sub(record, 25, 40)\n"
        "    .. '.' .. epoch\n"
        "local reply = redis.call('PUBSUB', 'NUMSUB', channel)\n"
        "return reply[2] > 0 and epoch or 0";

    return server_int(&fixture.server, "EVAL %s 1 t:{k}", script);
}

static const char *const kills[] = {"CLIENT KILL TYPE normal SKIPME yes",
                                    "CLIENT KILL TYPE pubsub"};

TEST_EACH(a_load_keeps_its_lease_in_the_next_epoch, 0, COUNT_OF(kills))
{
    struct getter g = {0};
    long long epoch;

    up(SHED_WAIT_AUTO);
    getter_hold(&g, &fixture, "k");
    epoch = held_epoch();
    ck_assert_int_gt(epoch, 0);
    server_do(&fixture.server, kills[_i]);
    WAIT_FOR(held_epoch() > epoch);
    table_release(&fixture.table);
    getter_expect(&g, "k@1", SHED_ORIGIN_LOAD);
    ck_assert(gets(peer.cache, SHED_ORIGIN_REDIS));
    peer_close(&peer);
}

/* It is never told that it has the lease. */
TEST(a_lease_that_was_granted_unheard_is_ended)
{
    init(SHED_WAIT_AUTO);
    fixture_add_proxy(&fixture, &proxy);
    open_both();
    proxy_set(&proxy, PROXY_DROP_LEASES, 0, NULL);
    WAIT_FOR(gets(fixture.cache, SHED_ORIGIN_UNPUBLISHED) &&
             server_int(&fixture.server, "EXISTS t:{k}") == 1);
    proxy_set(&proxy, PROXY_PASS, 0, NULL);
    WAIT_FOR(gets(peer.cache, SHED_ORIGIN_LOAD));
    peer_close(&peer);
}

/* The lease can then not be ended, so its epoch is. The next call does not wait
 * for a flight that is no more. */
TEST(a_lease_that_could_not_be_ended_is_taken_over_soon)
{
    struct getter getter = {0};

    fixture.cache_options.lease_ms = LEASE_MS;
    fixture_open(&fixture);
    getter_hold(&getter, &fixture, "k");
    refuse_writes();
    table_release(&fixture.table);
    getter_expect(&getter, "k@1", SHED_ORIGIN_UNPUBLISHED);
    /* acquire, publish, fail */
    WAIT_FOR(server_calls(&fixture.server, "evalsha") == 3);
    accept_writes();
    ck_assert_int_eq(server_int(&fixture.server, "EXISTS t:{k}"), 1);
    expect_origin(fixture.cache, "k", "k@1", SHED_ORIGIN_LOAD);
}

TEST(a_cache_that_cannot_end_its_lease_is_closed)
{
    up(SHED_WAIT_AUTO);
    load_and_freeze();
    shed_cache_close(fixture.cache);
    shed_client_close(fixture.client);
    fixture.cache = NULL;
    fixture.client = NULL;
    thaw();
}

int main(void)
{
    tcase_set_timeout(test_case(), 300);
    return run_fixture_tests("left_leases");
}
