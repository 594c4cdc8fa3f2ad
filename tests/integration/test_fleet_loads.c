/* fleet_loads: the budget of loads that several processes share. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <snowshed/event.h>

#include "support/bare.h"
#include "support/fixture.h"

#define KEY "t:loads"

/* The library takes Redis for away after a tenth of it; a test that counts
 * loads must not see that because the machine was slow. */
#define SILENCE_MS 600000

/* ----------------------------------------------------------- in one process */

static atomic_uint told_away, told_back;

static void on_event(void *user, const struct shed_event *e)
{
    (void)user;
    if (e->kind == SHED_EVENT_FLEET)
        atomic_fetch_add(e->outcome != SHED_OK ? &told_away : &told_back, 1);
}

static void set_up(uint64_t fleet_loads)
{
    fixture.client_options.on_event = on_event;
    fixture.client_options.command_timeout_ms = SILENCE_MS;
    fixture.source_options.fleet_loads = fleet_loads;
    fixture.source_options.load_timeout_ms = scaled_ms(FIXTURE_TIMEOUT_MS);
}

static void open_up(uint64_t fleet_loads)
{
    set_up(fleet_loads);
    fixture_open(&fixture);
}

enum { HOUR_MS = 3600000 };

/* Slots of other processes, that never ask. The clock of a new set begins at
 * 0. */
static void use_up(unsigned slots)
{
    for (unsigned i = 0; i < slots; i++)
        server_do(&fixture.server, "ZADD " KEY " %u p%u:1", HOUR_MS, i);
    server_do(&fixture.server, "PEXPIRE " KEY " %u", HOUR_MS);
}

static void give_back(unsigned slot)
{
    server_do(&fixture.server, "ZREM " KEY " p%u:1", slot);
}

/* That have slots, besides the two clocks. */
static long long processes_in_redis(void)
{
    return server_int(&fixture.server, "ZCOUNT " KEY " 0 +inf") - 2;
}

static long long asks(void)
{
    return server_calls(&fixture.server, "evalsha");
}

static void expect_asks(void)
{
    enum { ASKS = 5 };
    long long before = asks();

    WAIT_FOR(asks() >= before + ASKS);
}

TEST(a_load_waits_while_the_budget_is_used_up)
{
    struct getter g = {0};

    open_up(2);
    use_up(2);
    getter_start(&g, fixture.cache, "k");
    expect_asks();
    ck_assert_uint_eq(table_loads(&fixture.table), 0);
    ck_assert_uint_eq(gauge(fixture.cache, "fleet_loads"), 2);
    ck_assert_uint_eq(gauge(fixture.cache, "fleet_loads_limit"), 2);
    give_back(0);
    getter_expect(&g, "k@1", SHED_ORIGIN_LOAD);
    ck_assert_uint_eq(stats_of(fixture.cache).fleet_waits, 1);
    ck_assert_uint_eq(gauge(fixture.cache, "fleet_wait_seconds_count"), 1);
    ck_assert_uint_eq(stats_of(fixture.cache).fleet_failures, 0);
}

/* Else the next load would find out that its connection has died silently. */
TEST(the_connection_is_made_before_the_first_load_and_pinged)
{
    long long before;

    set_up(1);
    fixture.client_options.wait = SHED_WAIT_POLL; /* nothing else is pinged */
    fixture_open(&fixture);
    WAIT_FOR(asks() > 0);
    before = server_calls(&fixture.server, "ping");
    WAIT_FOR(server_calls(&fixture.server, "ping") > before);
}

TEST(a_load_that_need_not_wait_is_not_counted_as_waiting)
{
    open_up(2);
    use_up(1);
    expect_origin(fixture.cache, "k", "k@1", SHED_ORIGIN_LOAD);
    ck_assert_uint_eq(stats_of(fixture.cache).fleet_waits, 0);
}

/* So that batches grow. */
TEST(keys_that_come_meanwhile_are_loaded_together)
{
    enum { KEYS = 20 };
    struct getter g[KEYS];
    char keys[KEYS][8];

    open_up(1);
    use_up(1);
    for (size_t i = 0; i < KEYS; i++) {
        snprintf(keys[i], sizeof(keys[i]), "k%zu", i);
        g[i] = (struct getter){0};
        getter_start(&g[i], fixture.cache, keys[i]);
    }
    WAIT_FOR(gauge(fixture.cache, "source_queue_keys") == KEYS);
    give_back(0);
    for (size_t i = 0; i < KEYS; i++) {
        getter_join(&g[i]);
        EXPECT_OK(g[i].code);
        shed_value_unref(g[i].value);
    }
    ck_assert_uint_eq(table_loads(&fixture.table), 1);
}

TEST(a_caller_that_waits_for_the_fleet_keeps_its_deadline)
{
    struct shed_value *value = NULL;

    open_up(1);
    use_up(1);
    EXPECT_CODE(
        shed_get(fixture.cache, shed_str("k"), WITHIN(20), &value, NULL),
        SHED_ETIMEDOUT);
    ck_assert_uint_eq(table_loads(&fixture.table), 0);
    give_back(0);
    expect_text(fixture.cache, "k", "k@1");
}

TEST(a_key_that_waits_for_the_fleet_keeps_its_lease)
{
    struct getter g = {0};
    long long before;

    set_up(1);
    fixture.cache_options.lease_ms = 100;
    fixture.client_options.wait = SHED_WAIT_POLL; /* nobody is taken for dead */
    fixture_open(&fixture);
    use_up(1);
    getter_start(&g, fixture.cache, "k");
    expect_asks();
    before = server_int(&fixture.server, "EXISTS t:{k}");
    ck_assert_int_eq(before, 1);
    for (uint64_t end_ms = shed_now_ms() + 300; shed_now_ms() < end_ms;)
        expect_asks();
    give_back(0);
    getter_expect(&g, "k@1", SHED_ORIGIN_LOAD);
    ck_assert_uint_eq(stats_of(fixture.cache).leases_won, 1);
    ck_assert_uint_eq(stats_of(fixture.cache).leases_lost, 0);
    ck_assert_uint_eq(stats_of(fixture.cache).published, 1);
}

TEST(a_cache_that_is_closed_has_given_all_slots_back)
{
    set_up(4);
    fixture.source_options.max_batch = 1;
    fixture_open(&fixture);
    readers_run(&(struct readers){
        .cache = fixture.cache, .threads = 8, .gets = 50, .keys = 50});
    fixture_close(&fixture);
    ck_assert_int_eq(server_int(&fixture.server, "EXISTS " KEY), 0);
    server_stop(&fixture.server);
}

TEST(the_next_cache_of_the_source_goes_on_when_the_first_is_closed)
{
    struct shed_cache *second = NULL;

    open_up(1);
    EXPECT_OK(shed_cache_open(fixture.client, "u", fixture.source,
                              &fixture.cache_options, &second, NULL));
    expect_text(fixture.cache, "k", "k@1");
    shed_cache_close(fixture.cache);
    expect_text(second, "k", "k@1");
    /* by the same name */
    fixture.cache = second;
    server_do(&fixture.server, "DEL " KEY);
    table_hold(&fixture.table);
    {
        struct getter g = {0};

        getter_start(&g, second, "k2");
        WAIT_FOR(table_running(&fixture.table) == 1);
        ck_assert_int_eq(server_int(&fixture.server, "EXISTS " KEY), 1);
        table_release(&fixture.table);
        getter_expect(&g, "k2@1", SHED_ORIGIN_LOAD);
    }
}

/* It would count its loads where nobody else does. */
TEST_EACH(a_cache_on_another_redis_is_refused_on_the_same_source, 0, 2)
{
    char database[SERVER_URI_BYTES + 8];
    struct server other = {0};
    struct shed_client *client = NULL;
    struct shed_cache *cache = NULL;
    struct shed_error err = {0};

    open_up(2);
    server_start(&other);
    snprintf(database, sizeof(database), "%s?db=1", fixture.server.uri);
    EXPECT_OK(shed_client_open(_i == 0 ? other.uri : database,
                               &fixture.client_options, &client, NULL));
    EXPECT_CODE(
        shed_cache_open(client, "u", fixture.source, BARE_CACHE, &cache, &err),
        SHED_EINVAL);
    ck_assert_ptr_null(cache);
    ck_assert_ptr_nonnull(strstr(err.reason, fixture.server.socket));
    ck_assert_ptr_nonnull(
        strstr(err.reason, _i == 0 ? other.socket : "database 1"));
    /* of a source without fleet_loads it is none of our business */
    fixture_close(&fixture);
    fixture.source_options.fleet_loads = 0;
    fixture_open(&fixture);
    EXPECT_OK(
        shed_cache_open(client, "u", fixture.source, BARE_CACHE, &cache, &err));
    shed_cache_close(cache);
    shed_client_close(client);
    fixture_down(&fixture);
    server_stop(&other);
}

TEST(the_budget_can_have_a_name_of_its_own)
{
    struct getter g = {0};
    char name[] = "db";

    set_up(1);
    fixture.source_options.fleet_name = name;
    fixture_open(&fixture);
    name[0] = 'x'; /* it was copied */
    table_hold(&fixture.table);
    getter_start(&g, fixture.cache, "k");
    WAIT_FOR(table_running(&fixture.table) == 1);
    ck_assert_int_eq(server_int(&fixture.server, "EXISTS db:loads"), 1);
    table_release(&fixture.table);
    getter_expect(&g, "k@1", SHED_ORIGIN_LOAD);
}

TEST(a_name_of_a_budget_is_checked_as_that_of_a_cache)
{
    struct shed_source_options options = bare_source();
    struct shed_source *source = NULL;
    struct shed_error err;

    options.fleet_loads = 1;
    options.fleet_name = "a{b";
    EXPECT_CODE(
        shed_source_open_batch(table_load, NULL, &options, &source, &err),
        SHED_EINVAL);
    ck_assert_str_eq(err.reason,
                     "source fleet_name has a brace at byte 1: braces "
                     "are reserved, they mark the key in Redis");
    ck_assert_ptr_null(source);
}

TEST(a_load_that_takes_longer_than_its_slot_lasts_keeps_it)
{
    enum { LOAD_MS = 1000, GET_MS = 20 };
    redisReply *first;

    set_up(1);
    fixture.source_options.load_timeout_ms = LOAD_MS;
    fixture_open(&fixture);
    table_hold(&fixture.table);
    while (table_running(&fixture.table) ==
           0) { /* until the load begins in time */
        struct shed_value *value = NULL;
        ck_assert_int_ne(shed_get(fixture.cache, shed_str("k"), WITHIN(GET_MS),
                                  &value, NULL),
                         SHED_OK);
    }
    /* behind the server's clock */
    first = server_run(&fixture.server, "ZREVRANGE " KEY " 1 1 WITHSCORES");
    ck_assert_uint_eq(first->elements, 2);
    WAIT_FOR(server_int(&fixture.server, "ZCOUNT " KEY " (%s +inf",
                        first->element[1]->str) == 2);
    freeReplyObject(first);
    table_release(&fixture.table);
}

TEST(a_redis_that_refuses_does_not_stop_the_loads)
{
    struct getter g = {0};

    open_up(1);
    use_up(1);
    server_do(&fixture.server, "ACL SETUSER default -zrangebyscore");
    expect_text(fixture.cache, "k", "k@1");
    ck_assert_uint_eq(stats_of(fixture.cache).fleet_failures, 1);
    table_hold(&fixture.table);
    getter_start(&g, fixture.cache, "k2");
    WAIT_FOR(table_running(&fixture.table) == 1);
    server_do(&fixture.server, "ACL SETUSER default +zrangebyscore");
    /* a load that has begun without a slot has one as soon as it can */
    WAIT_FOR(processes_in_redis() == 2);
    table_release(&fixture.table);
    getter_expect(&g, "k2@1", SHED_ORIGIN_LOAD);
    WAIT_FOR(processes_in_redis() == 1);
    WAIT_FOR(atomic_load(&told_away) == stats_of(fixture.cache).fleet_failures);
    WAIT_FOR(atomic_load(&told_back) == atomic_load(&told_away));
}

TEST(a_slow_redis_does_not_stop_the_loads)
{
    enum { SILENCE_LIMIT_MS = 1000, DELAY_MS = 300 };
    static struct proxy proxy;

    set_up(1);
    fixture_add_proxy(&fixture, &proxy);
    fixture.client_options.command_timeout_ms = scaled_ms(SILENCE_LIMIT_MS);
    fixture_open(&fixture);
    expect_text(fixture.cache, "k", "k@1");
    use_up(1);
    proxy_set(&proxy, PROXY_DELAY, (unsigned)scaled_ms(DELAY_MS), NULL);
    expect_text(fixture.cache, "k2", "k2@1");
    ck_assert_uint_ge(stats_of(fixture.cache).fleet_failures, 1);
    proxy_set(&proxy, PROXY_PASS, 0, NULL);
}

int main(void)
{
    return run_fixture_tests("fleet_loads");
}
