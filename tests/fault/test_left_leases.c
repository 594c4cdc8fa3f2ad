/* A flight that lost Redis, and is over, leaves no lease behind: callers in
 * other processes load as soon as Redis is back, and not at the lease's end. */
#include "support/fixture.h"

/* Longer than any test waits. */
#define LEASE_MS 600000

static struct fixture fixture; /* its client is the holder */
static struct peer peer;
static struct proxy proxy; /* before the holder */

static void init(enum shed_wait wait)
{
    fixture_init(&fixture);
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
    struct shed_get_options options = SHED_GET_OPTIONS_INIT;
    struct shed_value *value = NULL;
    struct shed_error err;
    bool is_so;

    options.timeout_ms = scaled_ms(20000);
    ck_assert_msg(shed_get(cache, shed_str("k"), &options, &value, &err) ==
                      SHED_OK,
                  "%s", err.reason);
    is_so = value->origin == origin;
    shed_value_unref(value);
    return is_so;
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

static void up(enum shed_wait wait)
{
    init(wait);
    fixture_open(&fixture);
    peer_open(&peer, &fixture);
    warm();
}

static void thaw_and_down(void)
{
    server_thaw(&fixture.server);
    WAIT_FOR(gets(peer.cache, SHED_ORIGIN_LOAD));
    peer_close(&peer);
    fixture_down(&fixture);
}

START_TEST(a_load_that_ended_without_redis_leaves_no_lease)
{
    up((enum shed_wait)_i);
    load_and_freeze();
    thaw_and_down();
}
END_TEST

/* It is never told that it has the lease. */
START_TEST(a_lease_that_was_granted_unheard_is_ended)
{
    init(SHED_WAIT_AUTO);
    fixture_add_proxy(&fixture, &proxy);
    fixture_open(&fixture);
    fixture.uri = NULL;
    peer_open(&peer, &fixture);
    warm();
    proxy_set(&proxy, PROXY_DROP_SCRIPTS, 0, NULL);
    WAIT_FOR(gets(fixture.cache, SHED_ORIGIN_UNPUBLISHED) &&
             server_int(&fixture.server, "EXISTS t:{k}") == 1);
    proxy_set(&proxy, PROXY_PASS, 0, NULL);
    WAIT_FOR(gets(peer.cache, SHED_ORIGIN_LOAD));
    peer_close(&peer);
    fixture_down(&fixture);
}
END_TEST

START_TEST(a_cache_that_cannot_end_its_lease_is_closed)
{
    up(SHED_WAIT_AUTO);
    load_and_freeze();
    shed_cache_close(fixture.cache);
    shed_client_close(fixture.client);
    fixture.cache = NULL;
    fixture.client = NULL;
    thaw_and_down();
}
END_TEST

int main(void)
{
    TCase *tc = tcase_create("left leases");

    tcase_set_timeout(tc, 300);
    tcase_add_loop_test(tc, a_load_that_ended_without_redis_leaves_no_lease,
                        SHED_WAIT_AUTO, SHED_WAIT_POLL + 1);
    tcase_add_test(tc, a_lease_that_was_granted_unheard_is_ended);
    tcase_add_test(tc, a_cache_that_cannot_end_its_lease_is_closed);
    return run_tests("left_leases", tc);
}
