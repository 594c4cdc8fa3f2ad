/* server_run: no server is taken for older than it can be. */
#include "redis/server_run.h"

#include <stdio.h>
#include <string.h>

#include "support/testing.h"

enum { NOW_MS = 1000000, S = 1000 };

static struct shed_server_run run;

static void set_up(void)
{
    shed_server_run_init(&run);
}

static void tear_down(void)
{
}

/* The server answers INFO. */
static bool is_noted(char id, long long uptime_s, uint64_t now_ms)
{
    char ids[SHED_RUN_BYTES + 1], text[200];

    memset(ids, id, SHED_RUN_BYTES);
    ids[SHED_RUN_BYTES] = '\0';
    snprintf(text, sizeof(text),
             "# Server\r\nrun_id:%s\r\nuptime_in_seconds:%lld\r\n"
             "uptime_in_days:0\r\nhz:10\r\n",
             ids, uptime_s);
    return shed_server_run_note(&run, text, strlen(text), now_ms);
}

static void note(char id, long long uptime_s, uint64_t now_ms)
{
    ck_assert(is_noted(id, uptime_s, now_ms));
}

static void check_age(uint64_t now_ms, uint64_t age_ms)
{
    ck_assert_uint_eq(shed_server_run_age_ms(&run, now_ms), age_ms);
}

static enum shed_code explain(void)
{
    struct shed_error err = {SHED_OK, ""};
    enum shed_code code = shed_server_run_explain(&run, "redis", &err);

    ck_assert_int_eq(err.code, code);
    return code;
}

TEST(it_is_unknown_until_it_is_told)
{
    check_age(NOW_MS, SHED_AGE_UNKNOWN);
    EXPECT_CODE(explain(), SHED_EREDIS);
    ck_assert(!shed_server_run_note(&run, "", 0, NOW_MS));
    ck_assert(!shed_server_run_note(&run, "run_id:", 7, NOW_MS));
    check_age(NOW_MS, SHED_AGE_UNKNOWN);
    note('a', 10, NOW_MS);
    check_age(NOW_MS + 5, 9 * S + 5);
    EXPECT_OK(explain());
    shed_server_run_lose(&run);
    check_age(NOW_MS, SHED_AGE_UNKNOWN);
}

TEST(a_server_that_refuses_to_tell_has_no_age)
{
    note('a', 10, NOW_MS);
    shed_server_run_lose(&run);
    shed_server_run_refuse(&run);
    check_age(NOW_MS, 0);
    EXPECT_CODE(explain(), SHED_EDENIED);
    note('a', 10, NOW_MS);
    EXPECT_OK(explain());
}

TEST(a_server_may_be_older_than_this_host)
{
    enum { DAY_S = 86400 };

    note('a', DAY_S + 1, NOW_MS);
    check_age(NOW_MS, (uint64_t)DAY_S * S);
}

/* It says then that it has been running for less than nothing. */
TEST(a_server_whose_clock_was_set_back_is_young)
{
    note('a', -3600, NOW_MS);
    check_age(NOW_MS + 7, 7);
}

TEST(a_restarted_server_whose_clock_was_set_forward_is_young)
{
    note('a', 5000, NOW_MS);
    shed_server_run_hear(&run, NOW_MS + 3 * S);
    shed_server_run_lose(&run);
    shed_server_run_hear(&run, NOW_MS + 9 * S); /* of which run, nobody knows */
    note('b', 3600, NOW_MS + 10 * S);
    check_age(NOW_MS + 10 * S, 7 * S);
}

/* The next answer to INFO comes over another connection. */
TEST(what_was_known_of_a_run_is_not_forgotten)
{
    note('a', 0, NOW_MS);
    shed_server_run_lose(&run);
    note('a', 3600, NOW_MS + 2 * S);
    check_age(NOW_MS + 2 * S, 2 * S);
}

static void expect_changes(unsigned count)
{
    ck_assert_uint_eq(run.changes, count);
}

/* What was written before its first answer went to the first run. */
TEST(another_run_is_a_change_and_the_first_is_none)
{
    note('a', 5, NOW_MS);
    expect_changes(0);
    shed_server_run_lose(&run);
    note('a', 6, NOW_MS + S);
    expect_changes(0);
    shed_server_run_lose(&run);
    note('b', 0, NOW_MS + 2 * S);
    expect_changes(1);
}

TEST(a_server_that_refuses_to_tell_may_be_another_after_each_connection)
{
    shed_server_run_refuse(&run);
    shed_server_run_refuse(&run);
    expect_changes(0);
    shed_server_run_lose(&run);
    shed_server_run_refuse(&run);
    shed_server_run_refuse(&run);
    expect_changes(1);
    shed_server_run_lose(&run);
    note('a', 0, NOW_MS);
    expect_changes(2);
}

int main(void)
{
    tcase_add_checked_fixture(test_case(), set_up, tear_down);
    return run_tests("server run");
}
