/* The slots of sql/capacity.sql, from many connections at once. Needs
 * SHED_TEST_MYSQL; CAPACITY_SQL is the path of the file. */
#include <stdio.h>
#include <string.h>

#include "support/mysql_testing.h"

#define LONG_US "600000000" /* longer than any test */

enum { SESSIONS = 8 };

static struct site site;
static MYSQL *sessions[SESSIONS];

/* ------------------------------------------------------------------- set-up */

static void set_up(void)
{
    open_site(&site, getenv("SHED_TEST_MYSQL"));
    load_sql(&site, CAPACITY_SQL);
    for (size_t i = 0; i < SESSIONS; i++)
        sessions[i] = join_program(&site);
}

/* A running query would keep the database open. */
static void tear_down(void)
{
    char sql[TEXT_BYTES];

    for (size_t i = 0; i < SESSIONS; i++) {
        snprintf(sql, sizeof(sql), "KILL %lu", mysql_thread_id(sessions[i]));
        (void)mysql_query(site.admin,
                          sql); /* a test may have done so already */
        mysql_close(sessions[i]);
    }
    close_site(&site);
}

/* ------------------------------------------------------------------ queries */

static void begin_work(size_t session, const char *lane)
{
    char sql[TEXT_BYTES];
    int size = snprintf(sql, sizeof(sql), "SELECT db_work('%s')", lane);

    ck_assert_int_eq(
        mysql_send_query(sessions[session], sql, (unsigned long)size), 0);
}

/* Returns what the query returned, 0 if it failed. */
static unsigned long end_work(size_t session)
{
    MYSQL *mysql = sessions[session];
    unsigned long number = 0;
    MYSQL_RES *result;
    MYSQL_ROW row;

    if (mysql_read_query_result(mysql) != 0 ||
        (result = mysql_store_result(mysql)) == NULL)
        return 0;
    if ((row = mysql_fetch_row(result)) != NULL)
        number = strtoul(row[0], NULL, 10);
    mysql_free_result(result);
    return number;
}

static void kill_session(const char *what, size_t session)
{
    run_sql(&site, "KILL %s %lu", what, mysql_thread_id(sessions[session]));
}

/* Wait until this many queries work. */
static void wait_working(unsigned long wanted)
{
    char sql[TEXT_BYTES];

    snprintf(sql, sizeof(sql),
             "SELECT COUNT(*) FROM sessions WHERE "
             "db = '%s' AND state = 'User sleep'",
             site.database);
    wait_sql(&site, wanted, sql);
}

/* Wait until this many queries wait for a slot. InnoDB shows a new state only
 * if nobody has looked for 100 ms. */
static void wait_queued(unsigned long wanted)
{
    enum { LOOK_US = 150000 };
    uint64_t deadline_ms = test_deadline_ms();
    unsigned long queued;

    while ((queued = ask_sql(&site,
                             "SELECT COUNT(*) FROM lock_waits JOIN sessions "
                             "USING (id) WHERE db = '%s'",
                             site.database)) != wanted) {
        ck_assert_msg(shed_now_ms() < deadline_ms, "%lu queued, not %lu",
                      queued, wanted);
        usleep(LOOK_US);
    }
}

/* Whether this session is the one that works. */
static bool is_working(size_t session)
{
    return ask_sql(&site,
                   "SELECT COUNT(*) FROM sessions WHERE "
                   "id = %lu AND state = 'User sleep'",
                   mysql_thread_id(sessions[session])) == 1;
}

/* -------------------------------------------------------------------- tests */

static const struct {
    unsigned slots, working;
} capacities[] = {
    {3, 3}, {SESSIONS, SESSIONS}, {0, SESSIONS}}; /* 0: no limit */

TEST_EACH(as_many_work_as_there_are_slots, 0, COUNT_OF(capacities))
{
    run_sql(&site, "CALL set_capacity('a', %u, " LONG_US ")",
            capacities[_i].slots);
    for (size_t i = 0; i < SESSIONS; i++)
        begin_work(i, "a");
    wait_queued(SESSIONS - capacities[_i].working);
    wait_working(capacities[_i].working);
}

TEST(all_that_wait_have_their_turn)
{
    enum { ROUNDS = 10 };

    run_sql(&site, "CALL set_capacity('a', 2, 1000)");
    for (size_t round = 0; round < ROUNDS; round++) {
        for (size_t i = 0; i < SESSIONS; i++)
            begin_work(i, "a");
        for (size_t i = 0; i < SESSIONS; i++)
            ck_assert_uint_eq(end_work(i), 1);
    }
}

/* The first session works in the only slot, the second one waits for it. */
static void up_waiting(void)
{
    run_sql(&site, "CALL set_capacity('a', 1, " LONG_US ")");
    begin_work(0, "a");
    wait_working(1);
    begin_work(1, "a");
    wait_queued(1);
}

static const char *const kills[] = {"QUERY", "CONNECTION"};

TEST_EACH(a_killed_query_gives_its_slot_back, 0, COUNT_OF(kills))
{
    up_waiting();
    kill_session(kills[_i], 0);
    ck_assert_uint_eq(end_work(0), 0);
    wait_queued(0);
    WAIT_FOR(is_working(1));
    /* nobody waits now: the next query gets the slot although the sessions of
     * the killed queries may still exist */
    kill_session(kills[_i], 1);
    ck_assert_uint_eq(end_work(1), 0);
    begin_work(2, "a");
    WAIT_FOR(is_working(2));
}

TEST(a_killed_waiter_leaves_the_queue)
{
    up_waiting();
    kill_session("QUERY", 1);
    ck_assert_uint_eq(end_work(1), 0);
    wait_queued(0);
    ck_assert(is_working(0));
}

TEST(lanes_do_not_wait_for_each_other)
{
    run_sql(&site, "CALL set_capacity('b', 1, 0)");
    up_waiting();
    begin_work(2, "b");
    ck_assert_uint_eq(end_work(2), 1);
}

TEST(a_lane_that_does_not_exist_costs_nothing)
{
    ck_assert_uint_eq(ask_sql(&site, "SELECT db_work('z')"), 1);
    ck_assert_uint_eq(mysql_warning_count(site.admin), 0);
}

TEST(a_lane_can_change_while_queries_wait)
{
    up_waiting();
    run_sql(&site, "CALL set_capacity('a', 2, 0)");
    begin_work(2, "a");
    ck_assert_uint_eq(end_work(2), 1);
    ck_assert(is_working(0));
}

/* The load test relies on this to count its queries. */
TEST(a_query_counts_as_two_selects)
{
    const char *selects = session_sum(&site, "Com_select");
    unsigned long before;

    run_sql(&site, "CALL set_capacity('a', 1, 1)");
    before = ask_sql(&site, "SELECT %s", selects);
    ask_sql(&site, "SELECT db_work('a')");
    /* and the question itself */
    ck_assert_uint_eq(ask_sql(&site, "SELECT %s", selects), before + 3);
}

TEST(the_file_can_be_loaded_again)
{
    run_sql(&site, "CALL set_capacity('a', 1, 0)");
    load_sql(&site, CAPACITY_SQL);
    ck_assert_uint_eq(ask_sql(&site, "SELECT db_work('a')"), 1);
}

int main(void)
{
    tcase_add_checked_fixture(test_case(), set_up, tear_down);
    return run_tests("capacity");
}
