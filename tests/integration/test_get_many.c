/* How shed_get_many reads: with MGET where it can, with GETs where it cannot.
 */
#include <stdio.h>
#include <string.h>

#include "support/fixture.h"

enum { KEYS = 250, EACH = 100 /* of one MGET */ };

static char names[KEYS][8];
static struct shed_item items[KEYS];

static void up(void)
{
    fixture_init(&fixture);
    for (unsigned i = 0; i < KEYS; i++) {
        snprintf(names[i], sizeof(names[i]), "%u", i);
        items[i] = (struct shed_item){.key = shed_str(names[i])};
    }
    fixture_open(&fixture);
}

/* Get the first so many, which all have their rows, from there. */
static void get(size_t count, enum shed_origin origin)
{
    EXPECT_OK(shed_get_many(fixture.cache, items, count, NULL, NULL));
    for (size_t i = 0; i < count; i++) {
        char row[32];
        snprintf(row, sizeof(row), "%zu@1", i);
        EXPECT_OK(items[i].code);
        ck_assert_uint_eq(items[i].value->size, strlen(row));
        ck_assert_mem_eq(items[i].value->data, row, strlen(row));
        ck_assert_int_eq((int)items[i].value->origin, (int)origin);
        shed_value_unref(items[i].value);
    }
}

/* Get EACH, of which all but number 7 come from there. */
static void expect_but_one(enum shed_origin origin, enum shed_origin of_that)
{
    EXPECT_OK(shed_get_many(fixture.cache, items, EACH, NULL, NULL));
    for (size_t i = 0; i < EACH; i++) {
        ck_assert_int_eq((int)items[i].value->origin,
                         (int)(i == 7 ? of_that : origin));
        shed_value_unref(items[i].value);
    }
}

static long long calls(const char *command)
{
    return server_calls(&fixture.server, command);
}

TEST(hits_of_many_keys_cost_an_mget_for_each_hundred)
{
    long long gets, mgets;

    get(KEYS, SHED_ORIGIN_LOAD);
    gets = calls("get");
    mgets = calls("mget");
    get(KEYS, SHED_ORIGIN_REDIS);
    ck_assert_int_eq(calls("mget") - mgets, 3);
    get(1, SHED_ORIGIN_REDIS);
    ck_assert_int_eq(calls("mget") - mgets, 4);
    ck_assert_int_eq(calls("get") - gets, 0);
}

/* Those in scripts included. */
static long long all_calls(void)
{
    static const char *const commands[] = {"get",     "mget", "set", "del",
                                           "evalsha", "time", "pttl"};
    long long sum = 0;

    for (size_t i = 0; i < sizeof(commands) / sizeof(*commands); i++)
        sum += calls(commands[i]);
    return sum;
}

TEST(rows_that_are_loaded_together_are_published_together)
{
    long long before;

    get(1, SHED_ORIGIN_LOAD); /* so that SET may take leases */
    WAIT_FOR(knows_the_clock(fixture.cache));
    ck_assert_int_eq(server_int(&fixture.server, "DEL t:{0}"), 1);
    before = all_calls();
    get(KEYS, SHED_ORIGIN_LOAD);
    ck_assert_int_le(all_calls() - before, 4 * KEYS);
}

TEST(a_server_that_has_lost_its_scripts_publishes_them_too)
{
    get(1, SHED_ORIGIN_LOAD);
    ck_assert_int_eq(server_int(&fixture.server, "DEL t:{0}"), 1);
    server_do(&fixture.server, "SCRIPT FLUSH");
    get(KEYS, SHED_ORIGIN_LOAD);
    get(KEYS, SHED_ORIGIN_REDIS);
}

static void *get_all(void *unused)
{
    (void)unused;
    expect_but_one(SHED_ORIGIN_LOAD, SHED_ORIGIN_UNPUBLISHED);
    return NULL;
}

TEST(of_rows_that_are_published_together_one_may_be_refused)
{
    pthread_t thread;

    table_hold(&fixture.table);
    start_thread(&thread, get_all, NULL);
    WAIT_FOR(table_running(&fixture.table) > 0);
    ck_assert_int_eq(server_int(&fixture.server, "DEL t:{7}"), 1);
    table_release(&fixture.table);
    pthread_join(thread, NULL);
    ck_assert_int_eq(server_int(&fixture.server, "EXISTS t:{7}"), 0);
    expect_but_one(SHED_ORIGIN_REDIS, SHED_ORIGIN_LOAD);
}

TEST(without_the_right_to_mget_it_sends_gets_from_then_on)
{
    long long gets, mgets;

    get(EACH, SHED_ORIGIN_LOAD);
    server_do(&fixture.server, "ACL SETUSER default -mget");
    get(EACH, SHED_ORIGIN_REDIS);
    ck_assert_uint_eq(stats_of(fixture.cache).misses, EACH);
    server_do(&fixture.server, "ACL SETUSER default +mget");
    gets = calls("get");
    mgets = calls("mget");
    get(EACH, SHED_ORIGIN_REDIS);
    ck_assert_int_eq(calls("mget") - mgets, 0);
    ck_assert_int_eq(calls("get") - gets, EACH);
}

TEST(a_key_that_holds_something_else_costs_the_others_nothing)
{
    get(EACH, SHED_ORIGIN_LOAD);
    server_int(&fixture.server, "DEL t:{7}");
    server_int(&fixture.server, "RPUSH t:{7} x");
    expect_but_one(SHED_ORIGIN_REDIS, SHED_ORIGIN_LOAD);
    get(EACH, SHED_ORIGIN_REDIS);
}

TEST(rows_that_may_be_too_large_together_are_read_one_by_one)
{
    long long mgets;

    fixture_close(&fixture);
    fixture.cache_options.value_limit_bytes = (uint64_t)200 << 20;
    fixture_open(&fixture);
    get(EACH, SHED_ORIGIN_LOAD);
    mgets = calls("mget");
    get(EACH, SHED_ORIGIN_REDIS);
    ck_assert_int_eq(calls("mget") - mgets, 0);
}

int main(void)
{
    tcase_add_checked_fixture(test_case(), up, fixture_tear_down);
    return run_tests("get_many");
}
