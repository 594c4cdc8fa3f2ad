/* How shed_get_many reads: with MGET where it can, with GETs where it cannot.
 */
#include <stdio.h>
#include <string.h>

#include "support/fixture.h"

enum { KEYS = 250, EACH = 100 /* of one MGET */ };

static struct fixture fixture;
static char names[KEYS][8];
static struct shed_item items[KEYS];

static void up(void)
{
    for (unsigned i = 0; i < KEYS; i++) {
        snprintf(names[i], sizeof(names[i]), "%u", i);
        items[i] = (struct shed_item){.key = shed_str(names[i])};
    }
    fixture_up(&fixture);
}

static void down(void)
{
    fixture_down(&fixture);
}

/* Get the first so many, which all have their rows, from there. */
static void get(size_t count, enum shed_origin origin)
{
    ck_assert_int_eq(shed_get_many(fixture.cache, items, count, NULL, NULL),
                     SHED_OK);
    for (size_t i = 0; i < count; i++) {
        char row[32];
        snprintf(row, sizeof(row), "%zu@1", i);
        ck_assert_int_eq(items[i].code, SHED_OK);
        ck_assert_uint_eq(items[i].value->size, strlen(row));
        ck_assert_mem_eq(items[i].value->data, row, strlen(row));
        ck_assert_int_eq((int)items[i].value->origin, (int)origin);
        shed_value_unref(items[i].value);
    }
}

static long long calls(const char *command)
{
    return server_calls(&fixture.server, command);
}

START_TEST(hits_of_many_keys_cost_an_mget_for_each_hundred)
{
    long long gets, mgets;

    get(KEYS, SHED_ORIGIN_LOAD);
    gets = calls("get");
    mgets = calls("mget");
    get(KEYS, SHED_ORIGIN_REDIS);
    ck_assert_int_eq(calls("mget") - mgets, 3);
    ck_assert_int_eq(calls("get") - gets, 0);
    get(1, SHED_ORIGIN_REDIS);
    ck_assert_int_eq(calls("get") - gets, 1);
}
END_TEST

START_TEST(without_the_right_to_mget_it_sends_gets_from_then_on)
{
    long long gets, mgets;

    get(KEYS, SHED_ORIGIN_LOAD);
    server_do(&fixture.server, "ACL SETUSER default -mget");
    get(EACH, SHED_ORIGIN_REDIS);
    gets = calls("get");
    mgets = calls("mget");
    get(EACH, SHED_ORIGIN_REDIS);
    ck_assert_int_eq(calls("mget") - mgets, 0);
    ck_assert_int_eq(calls("get") - gets, EACH);
}
END_TEST

START_TEST(a_key_that_holds_something_else_costs_the_others_nothing)
{
    get(EACH, SHED_ORIGIN_LOAD);
    server_int(&fixture.server, "DEL t:{7}");
    server_int(&fixture.server, "RPUSH t:{7} x");
    ck_assert_int_eq(shed_get_many(fixture.cache, items, EACH, NULL, NULL),
                     SHED_OK);
    for (size_t i = 0; i < EACH; i++) {
        ck_assert_int_eq((int)items[i].value->origin,
                         i == 7 ? SHED_ORIGIN_LOAD : SHED_ORIGIN_REDIS);
        shed_value_unref(items[i].value);
    }
    get(EACH, SHED_ORIGIN_REDIS);
}
END_TEST

START_TEST(rows_that_may_be_too_large_together_are_read_one_by_one)
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
END_TEST

int main(void)
{
    TCase *tc = tcase_create("get_many");

    tcase_set_timeout(tc, TEST_TIMEOUT_S);
    tcase_add_checked_fixture(tc, up, down);
    tcase_add_test(tc, hits_of_many_keys_cost_an_mget_for_each_hundred);
    tcase_add_test(tc, without_the_right_to_mget_it_sends_gets_from_then_on);
    tcase_add_test(tc,
                   a_key_that_holds_something_else_costs_the_others_nothing);
    tcase_add_test(tc, rows_that_may_be_too_large_together_are_read_one_by_one);
    return run_tests("get_many", tc);
}
