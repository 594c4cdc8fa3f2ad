/* The breaker before Redis: what opens it, what calls do while it is open, and
 * what closes it. */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include <snowshed/event.h>
#include <snowshed/lock.h>

#include "cache/cache.h"
#include "lock/engine.h"
#include "support/fixture.h"

enum { CLOSED, HALF_OPEN, OPEN }; /* struct shed_client_status */
enum { FOREVER_MS = 3600000 };

static struct proxy proxy;
static struct shed_lock *lock;
static atomic_uint opened, closed;

static void on_event(void *user, const struct shed_event *e)
{
    (void)user;
    if (e->kind != SHED_EVENT_BREAKER)
        return;
    ck_assert_uint_eq(e->name.size + e->key.size, 0);
    ck_assert(e->outcome == SHED_OK || e->outcome == SHED_EREDIS);
    atomic_fetch_add(e->outcome == SHED_OK ? &closed : &opened, 1);
}

/* Three failures or more open it, for open_ms. */
static void init(uint64_t open_ms)
{
    fixture.client_options.on_event = on_event;
    fixture.client_options.breaker.failure_pct = 50;
    fixture.client_options.breaker.min_calls = 3;
    fixture.client_options.breaker.window_ms = 600000;
    fixture.client_options.breaker.open_ms = open_ms;
}

/* With a row in Redis, behind a proxy, and a lock that is held. */
static void up(uint64_t open_ms)
{
    init(open_ms);
    fixture_add_proxy(&fixture, &proxy);
    fixture_open(&fixture);
    expect_text(fixture.cache, "k", "k@1");
    WAIT_FOR(server_int(&fixture.server, "EXISTS t:{k}") == 1);
    EXPECT_OK(shed_lock_open(fixture.client, shed_str("l"), NULL, &lock, NULL));
    EXPECT_OK(shed_lock_acquire(lock, 0, NULL));
}

static void down(void)
{
    shed_lock_close(lock);
    lock = NULL;
    fixture_down(&fixture);
}

/* Whether it has opened by now; a call more to make it do so. */
static bool has_opened(void)
{
    (void)gets_k(SHED_ORIGIN_REDIS);
    return status_of(fixture.client).breaker_opened > 0;
}

/* Redis can be reached again, but is not asked. */
static void open_it(void)
{
    proxy_set(&proxy, PROXY_CUT, 0, NULL);
    WAIT_FOR(has_opened());
    WAIT_FOR(atomic_load(&opened) == 1);
    proxy_set(&proxy, PROXY_PASS, 0, NULL);
    WAIT_FOR(status_of(fixture.client).is_up == 1);
}

static void expect_closed(void)
{
    WAIT_FOR(gets_k(SHED_ORIGIN_REDIS) &&
             status_of(fixture.client).breaker == CLOSED);
    ck_assert_uint_eq(status_of(fixture.client).breaker_left_ms, 0);
    WAIT_FOR(atomic_load(&closed) > 0);
}

/* ------------------------------------------------------------ what opens it */

/* Only the call that finds out that the server is silent waits and counts. */
static void init_for_silence(uint64_t open_ms)
{
    init(open_ms);
    fixture.client_options.connect_timeout_ms = scaled_ms(500);
    fixture.client_options.command_timeout_ms = scaled_ms(500);
    fixture.client_options.breaker.failure_pct = 1;
    fixture.client_options.breaker.min_calls = 1;
}

/* A call that waited would end with another reason. */
TEST(a_silent_server_opens_it_and_then_no_call_waits)
{
    uint64_t refused;
    struct shed_error err;

    init_for_silence(FOREVER_MS);
    fixture.cache_options.redis_down = SHED_REDIS_DOWN_FAIL;
    fixture_open(&fixture);
    WAIT_FOR(gets_k(SHED_ORIGIN_REDIS));
    server_freeze(&fixture.server);
    WAIT_FOR(has_opened());
    refused = status_of(fixture.client).breaker_refused;
    for (int i = 0; i < 100; i++) {
        expect_code(fixture.cache, "k", SHED_EREDIS, &err);
        expect_reason(&err, "open, and tries again in ");
    }
    ck_assert_uint_ge(status_of(fixture.client).breaker_refused, refused + 100);
    ck_assert_uint_eq(status_of(fixture.client).breaker, OPEN);
    ck_assert_uint_eq(status_of(fixture.client).breaker_opened, 1);
    ck_assert_uint_gt(status_of(fixture.client).breaker_left_ms, 0);
    ck_assert_uint_le(status_of(fixture.client).breaker_left_ms, FOREVER_MS);
    server_thaw(&fixture.server);
}

TEST(a_server_that_goes_on_closes_it_by_a_probe)
{
    init_for_silence(1);
    fixture_open(&fixture);
    WAIT_FOR(gets_k(SHED_ORIGIN_REDIS));
    server_freeze(&fixture.server);
    WAIT_FOR(has_opened());
    WAIT_FOR(gets_k(SHED_ORIGIN_UNPUBLISHED));
    ck_assert_uint_ne(status_of(fixture.client).breaker, CLOSED);
    server_thaw(&fixture.server);
    expect_closed();
}

TEST(a_busy_server_opens_it)
{
    redisContext *busy;

    up(1);
    server_do(&fixture.server, "CONFIG SET busy-reply-threshold 1");
    busy = server_send(&fixture.server, "EVAL %s 0", "while true do end");
    WAIT_FOR(has_opened());
    WAIT_FOR(gets_k(SHED_ORIGIN_UNPUBLISHED));
    server_do(&fixture.server, "SCRIPT KILL");
    server_await(busy);
    expect_closed();
}

TEST(a_slow_server_opens_it)
{
    enum { SLOW_MS = 50, DELAY_MS = 100 };

    init(1);
    fixture.client_options.breaker.slow_ms = SLOW_MS;
    fixture_add_proxy(&fixture, &proxy);
    fixture_open(&fixture);
    WAIT_FOR(gets_k(SHED_ORIGIN_REDIS) &&
             status_of(fixture.client).breaker == CLOSED);
    proxy_set(&proxy, PROXY_DELAY, DELAY_MS, NULL);
    WAIT_FOR(has_opened());
    proxy_set(&proxy, PROXY_PASS, 0, NULL);
    expect_closed();
}

/* They cost no time. The first call finds that the server is gone. */
TEST(calls_that_a_pause_prevents_say_nothing)
{
    init(FOREVER_MS);
    fixture.client_options.breaker.min_calls = 20;
    fixture.cache_options.redis_down = SHED_REDIS_DOWN_FAIL;
    fixture_open(&fixture);
    WAIT_FOR(gets_k(SHED_ORIGIN_REDIS));
    server_kill(&fixture.server);
    for (int i = 0; i < 100; i++)
        expect_code(fixture.cache, "k", SHED_EREDIS, NULL);
    ck_assert_uint_eq(status_of(fixture.client).breaker_opened, 0);
    server_start_again(&fixture.server);
}

/* Whether a call that gives up before Redis answers, or is refused, has opened
 * it this often. */
static bool has_opened_by_impatience(unsigned times)
{
    struct shed_value *value = NULL;

    (void)!shed_get(fixture.cache, shed_str("k"), WITHIN(5), &value, NULL);
    shed_value_unref(value);
    return status_of(fixture.client).breaker_opened >= times;
}

/* Set up with a proxy; the timeout is that of commands, not scaled. */
static void up_behind_proxy(uint64_t open_ms, unsigned timeout_ms)
{
    init(open_ms);
    fixture.client_options.command_timeout_ms = scaled_ms(timeout_ms);
    fixture.cache_options.redis_down = SHED_REDIS_DOWN_FAIL;
    fixture_add_proxy(&fixture, &proxy);
    fixture_open(&fixture);
    WAIT_FOR(gets_k(SHED_ORIGIN_REDIS));
}

/* Make Redis slower than its callers bear until the breaker has opened this
 * often, then fast again, and end the test. */
static void open_by_impatience(unsigned times)
{
    proxy_set(&proxy, PROXY_DELAY, (unsigned)scaled_ms(100), NULL);
    WAIT_FOR(has_opened_by_impatience(times));
    proxy_set(&proxy, PROXY_PASS, 0, NULL);
    expect_closed();
}

/* Also a slow server whose connections are never silent: replies that nobody
 * waits for any longer still come. */
TEST(a_server_that_is_slower_than_all_callers_bear_opens_it)
{
    up_behind_proxy(1, 400);
    open_by_impatience(1);
}

/* The server takes longer than they bear, but is not slow. */
TEST(hasty_callers_do_not_open_it_while_others_are_answered)
{
    enum { DELAY_MS = 20, EARLIER = 100, ROUNDS = 40 };

    up_behind_proxy(FOREVER_MS, 250);
    for (int i = 0; i < EARLIER; i++)
        WAIT_FOR(gets_k(SHED_ORIGIN_REDIS));
    proxy_set(&proxy, PROXY_DELAY, DELAY_MS, NULL);
    for (int i = 0; i < ROUNDS; i++) {
        for (int j = 0; j < 5; j++)
            ck_assert(!has_opened_by_impatience(1));
        WAIT_FOR(gets_k(SHED_ORIGIN_REDIS));
    }
}

TEST(a_few_short_deadlines_do_not_open_it)
{
    struct shed_value *value = NULL;

    init(FOREVER_MS);
    fixture.cache_options.redis_down = SHED_REDIS_DOWN_FAIL;
    fixture_open(&fixture);
    WAIT_FOR(gets_k(SHED_ORIGIN_REDIS));
    server_freeze(&fixture.server);
    for (int i = 0; i < 50; i++) {
        ck_assert_int_ne(
            shed_get(fixture.cache, shed_str("k"), WITHIN(1), &value, NULL),
            SHED_OK);
        ck_assert_ptr_null(value);
    }
    ck_assert_uint_eq(status_of(fixture.client).breaker_opened, 0);
    server_thaw(&fixture.server);
}

/* None of the callers can tell whether Redis is slow or they are hasty, and the
 * connections are never silent. */
TEST(callers_that_all_give_up_early_do_not_keep_it_half_open)
{
    up_behind_proxy(1, 400);
    open_it();
    open_by_impatience(4);
}

/* Reads are answered, so nothing is gained by doing without Redis. */
TEST(a_server_that_refuses_writes_or_a_command_does_not_open_it)
{
    up(FOREVER_MS);
    server_do(&fixture.server, "CONFIG SET maxmemory 1");
    for (int i = 0; i < 20; i++)
        ck_assert_int_ne(
            shed_put(fixture.cache, shed_str("p"), shed_str("p"), NULL, NULL),
            SHED_OK);
    ck_assert(gets_k(SHED_ORIGIN_REDIS));
    server_do(&fixture.server, "CONFIG SET maxmemory 0");
    server_do(&fixture.server, "ACL SETUSER default -get");
    for (int i = 0; i < 20; i++)
        expect_code(fixture.cache, "k", SHED_EDENIED, NULL);
    server_do(&fixture.server, "ACL SETUSER default +get");
    ck_assert(gets_k(SHED_ORIGIN_REDIS));
    ck_assert_uint_eq(status_of(fixture.client).breaker_opened, 0);
}

/* ------------------------------------------------------ while it is open */

TEST(while_it_is_open_gets_do_without_redis)
{
    enum { GETS = 20 };
    static char text[65536];

    up(FOREVER_MS);
    open_it();
    for (int i = 0; i < GETS; i++)
        ck_assert(gets_k(SHED_ORIGIN_UNPUBLISHED));
    ck_assert_uint_ge(status_of(fixture.client).breaker_refused, GETS);
    ck_assert_uint_eq(status_of(fixture.client).breaker, OPEN);
    (void)shed_stats_prometheus(&fixture.cache, 1, NULL, 0, text, sizeof(text));
    ck_assert_ptr_nonnull(
        strstr(text, "\nsnowshed_redis_breaker{cache=\"t\"} 2\n"));
}

TEST(an_invalidation_is_kept_and_is_a_probe_itself)
{
    up(1);
    proxy_set(&proxy, PROXY_CUT, 0, NULL);
    WAIT_FOR(has_opened());
    table_update(&fixture.table);
    EXPECT_CODE(invalidate_code(fixture.cache, "k"), SHED_EREDIS);
    expect_origin(fixture.cache, "k", "k@2", SHED_ORIGIN_UNPUBLISHED);
    ck_assert_int_eq(server_int(&fixture.server, "EXISTS t:{k}"), 1);
    proxy_set(&proxy, PROXY_PASS, 0, NULL);
    WAIT_FOR(server_int(&fixture.server, "EXISTS t:{k}") == 0);
    WAIT_FOR(stats_of(fixture.cache).invalidations_delivered == 1);
    ck_assert_uint_ne(status_of(fixture.client).breaker, OPEN);
    expect_origin(fixture.cache, "k", "k@2", SHED_ORIGIN_LOAD);
}

/* More than it lets through while it is half open. */
TEST(an_invalidation_of_many_keys_is_one_probe)
{
    enum { KEYS = 100 };
    struct shed_bytes keys[KEYS];

    up(1);
    open_it();
    for (int i = 0; i < KEYS; i++)
        keys[i] = shed_str("k");
    WAIT_FOR(status_of(fixture.client).breaker_left_ms == 0);
    EXPECT_OK(shed_invalidate_many(fixture.cache, keys, KEYS, 0, NULL));
    ck_assert_int_eq(server_int(&fixture.server, "EXISTS t:{k}"), 0);
}

/* Rows may be so large that each key has a GET of its own. */
TEST(a_get_of_many_keys_is_one_probe)
{
    static const char keys[] = "abcdefgh";
    struct shed_item items[sizeof(keys) - 1];

    fixture.cache_options.value_limit_bytes = 256 << 20;
    up(1);
    for (size_t i = 0; i < COUNT_OF(items); i++) {
        items[i].key = shed_bytes(&keys[i], 1);
        EXPECT_OK(
            shed_put(fixture.cache, items[i].key, items[i].key, NULL, NULL));
    }
    open_it();
    WAIT_FOR(status_of(fixture.client).breaker_left_ms == 0);
    EXPECT_OK(shed_get_many(fixture.cache, items, COUNT_OF(items), NULL, NULL));
    for (size_t i = 0; i < COUNT_OF(items); i++) {
        ck_assert_int_eq(items[i].value->origin, SHED_ORIGIN_REDIS);
        shed_value_unref(items[i].value);
    }
}

TEST(an_invalidation_is_delivered_by_the_close_of_its_cache)
{
    struct shed_error err;

    up(FOREVER_MS);
    open_it();
    table_update(&fixture.table);
    EXPECT_CODE(shed_invalidate(fixture.cache, shed_str("k"), 0, &err),
                SHED_EREDIS);
    expect_reason(&err, "the breaker before Redis");
    expect_origin(fixture.cache, "k", "k@2", SHED_ORIGIN_UNPUBLISHED);
    ck_assert_int_eq(server_int(&fixture.server, "EXISTS t:{k}"), 1);
    shed_cache_close(fixture.cache);
    fixture.cache = NULL;
    ck_assert_int_eq(server_int(&fixture.server, "EXISTS t:{k}"), 0);
}

/* Without pushes only calls read the log; a put of a cache that knows no
 * position begins with that. */
TEST(while_it_is_open_no_call_reads_the_log_of_tags)
{
    struct shed_cache *cache;
    struct shed_error err;

    init(FOREVER_MS);
    fixture.client_options.wait = SHED_WAIT_POLL;
    fixture_add_proxy(&fixture, &proxy);
    fixture_open(&fixture);
    open_it();
    fixture.cache_options.tags_limit = 100;
    EXPECT_OK(shed_cache_open(fixture.client, "u", fixture.source,
                              &fixture.cache_options, &cache, NULL));
    server_do(&fixture.server, "ZADD u:tags 5 x");
    EXPECT_CODE(shed_put(cache, shed_str("k"), shed_str("row"), NULL, &err),
                SHED_EREDIS);
    ck_assert_uint_eq(shed_tag_log_position(cache->tag_log), 0);
    server_do(&fixture.server, "DEL u:tags");
    shed_cache_close(cache);
}

/* What is to be undone of tries that may have got the lock. */
static size_t leftovers(void)
{
    size_t count;

    shed_mutex_lock(&lock->mu);
    count = lock->voter[0].leftover_count;
    shed_mutex_unlock(&lock->mu);
    return count;
}

TEST(a_held_lock_is_extended_and_released_and_none_is_acquired)
{
    struct shed_error err;

    up(FOREVER_MS);
    open_it();
    EXPECT_OK(shed_lock_extend(lock, 0, NULL));
    ck_assert_int_eq(server_int(&fixture.server, "EXISTS lock:{l}"), 1);
    EXPECT_OK(shed_lock_release(lock, NULL));
    ck_assert_int_eq(server_int(&fixture.server, "EXISTS lock:{l}"), 0);
    WAIT_FOR(leftovers() == 0);
    for (int i = 0; i < 20; i++) {
        EXPECT_CODE(shed_lock_acquire(lock, 0, &err), SHED_EREDIS);
        expect_reason(&err, "the breaker before Redis");
        ck_assert_uint_eq(leftovers(), 0);
    }
}

static atomic_bool is_over;

/* Open it and let it close, again and again. */
static void *toggle(void *unused)
{
    while (!atomic_load(&is_over)) {
        uint64_t before = status_of(fixture.client).breaker_opened;
        proxy_set(&proxy, PROXY_CUT, 0, NULL);
        WAIT_FOR(status_of(fixture.client).breaker_opened > before ||
                 atomic_load(&is_over));
        proxy_set(&proxy, PROXY_PASS, 0, NULL);
        WAIT_FOR(status_of(fixture.client).breaker == CLOSED ||
                 atomic_load(&is_over));
    }
    return unused;
}

TEST(threads_get_their_rows_while_it_opens_and_closes)
{
    struct readers readers = {.threads = 4, .gets = 60, .keys = 30};
    pthread_t toggler;

    up(1);
    readers.cache = fixture.cache;
    proxy_set(&proxy, PROXY_CUT, 0, NULL);
    start_thread(&toggler, toggle, NULL);
    readers_run(&readers);
    atomic_store(&is_over, true);
    ck_assert_int_eq(pthread_join(toggler, NULL), 0);
    ck_assert_uint_gt(status_of(fixture.client).breaker_opened, 0);
    expect_closed();
}

TEST(a_waiter_gets_its_lock_when_the_breaker_has_closed)
{
    up(1);
    EXPECT_OK(shed_lock_release(lock, NULL));
    proxy_set(&proxy, PROXY_CUT, 0, NULL);
    WAIT_FOR(has_opened());
    proxy_set(&proxy, PROXY_PASS, 0, NULL);
    EXPECT_OK(shed_lock_acquire(lock, scaled_ms(FIXTURE_TIMEOUT_MS), NULL));
    EXPECT_OK(shed_lock_release(lock, NULL));
    ck_assert_uint_ne(status_of(fixture.client).breaker, OPEN);
}

int main(void)
{
    tcase_add_checked_fixture(test_case(), fixture_set_up, down);
    return run_tests("redis_breaker");
}
