/* A source that fails or is too slow: what the breaker and the bounds give to
 * callers, and what they leave in Redis. */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include <snowshed/event.h>

#include "base/breaker.h"
#include "support/ageing.h"
#include "support/fixture.h"

static atomic_uint opened, closed;

static void on_event(void *user, const struct shed_event *e)
{
    (void)user;
    if (e->kind != SHED_EVENT_BREAKER)
        return;
    ck_assert(e->name.size == 1 && memcmp(e->name.data, "t", 1) == 0);
    ck_assert_uint_eq(e->key.size, 0);
    atomic_fetch_add(e->outcome == SHED_OK ? &closed : &opened, 1);
}

/* Ten loads that fail open it, for open_ms. */
static void init(uint64_t open_ms)
{
    fixture.client_options.on_event = on_event;
    fixture.source_options.breaker.failure_pct = 50;
    fixture.source_options.breaker.min_calls = 10;
    fixture.source_options.breaker.window_ms = 600000;
    fixture.source_options.breaker.open_ms = open_ms;
    fixture.source_options.max_loads = 1;
    fixture.source_options.max_batch = 1;
    fixture.cache_options.ttl_ms = AGEING_TTL_MS;
    fixture.cache_options.failure_ttl_ms = 60000;
    fixture.cache_options.stale_if_error_ms = STALE_MS;
}

static void up(uint64_t open_ms)
{
    init(open_ms);
    fixture_open(&fixture);
}

/* A failed load answers its caller before it replaces its lease. */
static bool has_lease(int i)
{
    redisReply *type = server_run(&fixture.server, "GETRANGE t:{bad%d} 5 5", i);
    bool is_lease = strcmp(type->str, "L") == 0;

    freeReplyObject(type);
    return is_lease;
}

/* Open the breaker by ten keys that fail to load. */
static void fail_ten(void)
{
    char key[16];

    table_fail(&fixture.table, true);
    for (int i = 0; i < 10; i++) {
        (void)snprintf(key, sizeof(key), "bad%d", i);
        expect_code(fixture.cache, key, SHED_ESOURCE, NULL);
    }
    WAIT_FOR(gauge(fixture.cache, "source_breaker") != 0);
    for (int i = 0; i < 10; i++)
        WAIT_FOR(!has_lease(i));
}

/* ------------------------------------------------------------ the breaker */

TEST(while_the_breaker_is_open_callers_fail_at_once_and_leave_nothing)
{
    struct shed_error err;
    long long sets;
    unsigned loads;
    char key[16];

    up(3600000);
    fail_ten();
    ck_assert_uint_eq(gauge(fixture.cache, "source_breaker"), 2);
    WAIT_FOR(atomic_load(&opened) == 1);
    loads = table_loads(&fixture.table);
    sets = server_calls(&fixture.server, "set");
    table_fail(&fixture.table, false);
    for (int i = 0; i < 50; i++) {
        (void)snprintf(key, sizeof(key), "new%d", i);
        expect_code(fixture.cache, key, SHED_ESOURCE, &err);
        ck_assert_ptr_nonnull(strstr(err.reason, "breaker is open"));
    }
    ck_assert_int_eq(server_calls(&fixture.server, "set"), sets);
    ck_assert_uint_eq(table_loads(&fixture.table), loads);
    ck_assert_uint_eq(stats_of(fixture.cache).loads_refused, 50);
    ck_assert_uint_eq(stats_of(fixture.cache).load_failures, 10);
    ck_assert_uint_eq(stats_of(fixture.cache).loads_failed, loads);
    ck_assert_uint_eq(atomic_load(&opened), 1);
}

TEST(keys_that_are_queued_when_it_opens_leave_no_failure_marker)
{
    enum { KEYS = 40, LOADED = 10 };
    struct shed_item items[KEYS];
    char keys[KEYS][16];

    up(3600000);
    table_fail(&fixture.table, true);
    for (int i = 0; i < KEYS; i++) {
        (void)snprintf(keys[i], sizeof(keys[i]), "bad%d", i);
        items[i].key = shed_str(keys[i]);
    }
    EXPECT_CODE(shed_get_many(fixture.cache, items, KEYS, NULL, NULL),
                SHED_ESOURCE);
    for (int i = 0; i < KEYS; i++)
        EXPECT_CODE(items[i].code, SHED_ESOURCE);
    ck_assert_uint_eq(table_loads(&fixture.table), LOADED);
    ck_assert_uint_eq(stats_of(fixture.cache).load_failures, LOADED);
    ck_assert_uint_eq(stats_of(fixture.cache).loads_refused, KEYS - LOADED);
    WAIT_FOR(server_int(&fixture.server, "DBSIZE") == LOADED);
}

/* The breaker is open, and k is past its ttl. */
static void open_with_old_row(void)
{
    fixture_open(&fixture);
    expect_origin(fixture.cache, "k", "k@1", SHED_ORIGIN_LOAD);
    WAIT_FOR(knows_the_clock(fixture.cache));
    fail_ten();
    table_fail(&fixture.table, false);
    table_update(&fixture.table);
    age_entry(&fixture.server, "t:{k}", PAST_TTL_MS);
}

/* Each call costs one GET, and nobody takes a lease. */
static void expect_stale_rows(int count)
{
    long long gets = server_calls(&fixture.server, "get");
    long long sets = server_calls(&fixture.server, "set");
    unsigned loads = table_loads(&fixture.table);

    for (int i = 0; i < count; i++)
        expect_origin(fixture.cache, "k", "k@1", SHED_ORIGIN_STALE);
    ck_assert_int_eq(server_calls(&fixture.server, "set"), sets);
    ck_assert_int_eq(server_calls(&fixture.server, "get"), gets + count);
    ck_assert_uint_eq(table_loads(&fixture.table), loads);
    ck_assert_uint_eq(stats_of(fixture.cache).refreshes, 0);
}

TEST_EACH(while_the_breaker_is_open_a_stale_row_costs_one_get, 0, 2)
{
    init(3600000);
    if (_i == 1) /* it would be refreshed */
        fixture.cache_options.stale_while_revalidate_ms = STALE_MS;
    open_with_old_row();
    expect_stale_rows(20);
    ck_assert_uint_eq(stats_of(fixture.cache).stale, 20);
}

/* This one's breaker says nothing of the other. */
TEST(while_the_breaker_is_open_the_load_of_another_is_waited_for)
{
    struct fixture other;
    struct getter theirs = {0}, ours = {0};

    init(3600000);
    other = fixture; /* at the same server, with a source of its own */
    other.client_options.on_event = NULL;
    fixture_open(&fixture);
    fail_ten();
    fixture_open(&other);
    getter_hold(&theirs, &other, "k");
    getter_start(&ours, fixture.cache, "k");
    WAIT_FOR(stats_of(fixture.cache).waits == 1);
    table_release(&other.table);
    getter_expect(&theirs, "k@1", SHED_ORIGIN_LOAD);
    getter_expect(&ours, "k@1", SHED_ORIGIN_WAITED);
    fixture_close(&other);
}

static bool is_loaded(const char *key)
{
    struct shed_value *value = NULL;
    enum shed_code code =
        shed_get(fixture.cache, shed_str(key), NULL, &value, NULL);

    shed_value_unref(value);
    return code == SHED_OK;
}

TEST(when_the_source_is_well_again_the_breaker_closes)
{
    char key[16];
    int i = 0;

    up(1);
    fail_ten();
    table_fail(&fixture.table, false);
    do {
        (void)snprintf(key, sizeof(key), "new%d", i++);
        (void)is_loaded(key);
    } while (gauge(fixture.cache, "source_breaker") != 0);
    WAIT_FOR(atomic_load(&closed) == 1);
    ck_assert(is_loaded("k"));
}

/* In the background, or for a caller that has an old row to fall back on. */
TEST_EACH(a_key_with_an_old_row_can_be_the_probe, 0, 2)
{
    struct shed_value *value = NULL;
    enum shed_origin origin;

    init(1);
    if (_i == 1)
        fixture.cache_options.stale_while_revalidate_ms = STALE_MS;
    open_with_old_row();
    do {
        EXPECT_OK(shed_get(fixture.cache, shed_str("k"), NULL, &value, NULL));
        origin = value->origin;
        shed_value_unref(value);
    } while (origin == SHED_ORIGIN_STALE);
    ck_assert_uint_eq(gauge(fixture.cache, "source_breaker"), 1);
    expect_text(fixture.cache, "k", "k@2");
}

static bool gives_up(unsigned i)
{
    struct shed_value *value = NULL;
    char key[16];

    (void)snprintf(key, sizeof(key), "new%u", i);
    return shed_get(fixture.cache, shed_str(key), WITHIN(1), &value, NULL) ==
           SHED_ETIMEDOUT;
}

/* The probes go on behind their callers, and their verdicts count. */
TEST(probes_whose_callers_give_up_close_the_breaker)
{
    init(1);
    fixture.source_options.max_loads = SHED_BREAKER_PROBES;
    fixture_open(&fixture);
    fail_ten();
    table_fail(&fixture.table, false);
    table_hold(&fixture.table);
    for (unsigned i = 1; i <= SHED_BREAKER_PROBES; i++)
        WAIT_FOR(gives_up(i) && table_running(&fixture.table) == i);
    ck_assert_uint_eq(gauge(fixture.cache, "source_breaker"), 1);
    table_release(&fixture.table);
    WAIT_FOR(gauge(fixture.cache, "source_breaker") != 1);
    ck_assert_uint_eq(gauge(fixture.cache, "source_breaker"), 0);
}

/* ------------------------------------------------------ callers that wait */

static void up_bounded(uint64_t callers)
{
    fixture.source_options.callers_limit = callers;
    fixture_open(&fixture);
}

enum { CALLERS = 5000 };

static struct shed_item items[CALLERS];

/* Get this many keys in one call; all join before a load begins. Returns: how
 * many were answered. The others must have been refused for the reason why. */
static size_t get_all(size_t keys, const char *why)
{
    static char names[CALLERS][16];
    struct shed_error err;
    size_t answered = 0;

    for (size_t i = 0; i < CALLERS; i++) {
        (void)snprintf(names[i], sizeof(names[i]), "k%zu", i % keys);
        items[i].key = shed_str(names[i]);
    }
    EXPECT_CODE(shed_get_many(fixture.cache, items, CALLERS, NULL, &err),
                SHED_EBUSY);
    ck_assert_ptr_nonnull(strstr(err.reason, why));
    for (size_t i = 0; i < CALLERS; i++) {
        answered += items[i].code == SHED_OK;
        ck_assert(items[i].code == SHED_OK || items[i].code == SHED_EBUSY);
        shed_value_unref(items[i].value);
    }
    ck_assert_uint_eq(gauge(fixture.cache, "source_callers"), 0);
    return answered;
}

TEST(of_thousands_of_callers_as_many_wait_as_may)
{
    up_bounded(1000);
    ck_assert_uint_eq(gauge(fixture.cache, "source_callers_limit"), 1000);
    ck_assert_uint_eq(get_all(CALLERS, "callers_limit"), 1000);
    ck_assert_uint_eq(stats_of(fixture.cache).callers_refused, CALLERS - 1000);
    ck_assert_uint_eq(stats_of(fixture.cache).errors_busy, CALLERS - 1000);
}

TEST(a_caller_that_is_one_too_many_is_told_at_once)
{
    struct getter first = {0};
    struct shed_value *value = NULL;

    up_bounded(1);
    table_hold(&fixture.table);
    getter_start(&first, fixture.cache, "a");
    WAIT_FOR(gauge(fixture.cache, "source_callers") == 1);
    expect_code(fixture.cache, "a", SHED_EBUSY, NULL);
    expect_code(fixture.cache, "b", SHED_EBUSY, NULL);
    table_release(&fixture.table);
    getter_expect(&first, "a@1", SHED_ORIGIN_LOAD);
    table_hold(&fixture.table); /* one that gives up makes room */
    EXPECT_CODE(shed_get(fixture.cache, shed_str("b"), WITHIN(1), &value, NULL),
                SHED_ETIMEDOUT);
    ck_assert_uint_eq(gauge(fixture.cache, "source_callers"), 0);
    table_release(&fixture.table);
    expect_text(fixture.cache, "c", "c@1");
}

/* An invalidation detaches the load under way, and callers go on to wait. */
TEST(callers_of_a_load_that_was_detached_count)
{
    struct getter first = {0}, second = {0};

    up_bounded(2);
    getter_hold(&first, &fixture, "k");
    invalidate(fixture.cache, "k");
    getter_start(&second, fixture.cache, "k");
    WAIT_FOR(table_running(&fixture.table) == 2);
    ck_assert_uint_eq(gauge(fixture.cache, "source_callers"), 2);
    expect_code(fixture.cache, "k", SHED_EBUSY, NULL);
    invalidate(fixture.cache, "k");
    expect_code(fixture.cache, "k", SHED_EBUSY, NULL);
    table_release(&fixture.table);
    getter_expect(&first, "k@1", SHED_ORIGIN_UNPUBLISHED);
    getter_expect(&second, "k@1", SHED_ORIGIN_UNPUBLISHED);
    expect_text(fixture.cache, "k", "k@1");
}

/* Also a caller that is one too many. */
TEST_EACH(a_full_queue_gives_a_stale_row_where_there_is_one, 0, 2)
{
    struct getter first = {0}, queued = {0};

    fixture.source_options.max_loads = 1;
    fixture.source_options.queue_limit = _i == 0 ? 1 : 100;
    fixture.source_options.callers_limit = _i == 0 ? 0 : 2;
    fixture.source_options.batch_wait_ms = 0;
    fixture.cache_options.ttl_ms = AGEING_TTL_MS;
    fixture.cache_options.stale_if_error_ms = STALE_MS;
    fixture_open(&fixture);
    expect_origin(fixture.cache, "k", "k@1", SHED_ORIGIN_LOAD);
    WAIT_FOR(knows_the_clock(fixture.cache));
    age_entry(&fixture.server, "t:{k}", PAST_TTL_MS);
    getter_hold(&first, &fixture, "a");
    getter_start(&queued, fixture.cache, "b");
    WAIT_FOR(gauge(fixture.cache, "source_queue_keys") == 1);
    expect_origin(fixture.cache, "k", "k@1", SHED_ORIGIN_STALE);
    expect_code(fixture.cache, "c", SHED_EBUSY, NULL);
    table_release(&fixture.table);
    getter_expect(&first, "a@1", SHED_ORIGIN_LOAD);
    getter_expect(&queued, "b@1", SHED_ORIGIN_LOAD);
}

static void *watch_callers(void *over)
{
    unsigned long long most = 0;

    while (!atomic_load((atomic_bool *)over)) {
        unsigned long long now = gauge(fixture.cache, "source_callers");
        most = now > most ? now : most;
    }
    return (void *)(uintptr_t)most;
}

TEST(callers_on_many_threads_stay_within_the_bound)
{
    const struct readers readers = {
        .threads = 30, .gets = 100, .keys = 1000, .timeout_max_ms = 20};
    atomic_bool over = false;
    pthread_t watcher;
    void *most;

    up_bounded(5);
    fixture_close(&fixture);
    fixture.cache_options.ttl_ms = 1; /* nearly every get has to wait */
    fixture_open(&fixture);
    start_thread(&watcher, watch_callers, &over);
    for (int i = 0; i < 3; i++) {
        struct readers r = readers;
        r.cache = fixture.cache;
        readers_run(&r);
    }
    atomic_store(&over, true);
    ck_assert_int_eq(pthread_join(watcher, &most), 0);
    ck_assert_int_le((intptr_t)most, 5);
    ck_assert_uint_eq(gauge(fixture.cache, "source_callers"), 0);
}

int main(void)
{
    return run_fixture_tests("overload");
}
