/* The MySQL source and its sessions, on a private server: how they begin, how
 * many there may be, what they keep, and what they report. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/own_site.h"

#define WORD "SELECT k, v FROM word WHERE k IN (?)"

#define WAITING_FOR_LOCK "FROM sessions WHERE state = 'User lock'"
#define WAITING "SELECT COUNT(*) " WAITING_FOR_LOCK
#define WAITING_ID "SELECT id " WAITING_FOR_LOCK

static void set_up(void)
{
    own_site_up();
    make_user(&site, "shop");
    run_sql(&site, "GRANT SELECT ON %s.* TO shop", site.database);
}

/* As an ordinary user, because servers make exceptions for the
 * administrator. */
#define OPEN_SHOP(...) OPEN_WITH(&site, __VA_ARGS__, .user = "shop")

/* Load a key whose value is the id of the connection. */
static unsigned long load_id(struct shed_source *source, const char *key)
{
    unsigned long id;
    struct ask ask;

    load_key(source, &ask, key);
    ck_assert_msg(ask.loaded.value != NULL, "%s", ask.loaded.error.reason);
    id = strtoul(ask.loaded.value->data, NULL, 10);
    shed_value_unref(ask.loaded.value);
    return id;
}

TEST(the_present_is_read_where_sessions_begin_in_transactions)
{
    struct shed_source *source;

    run_sql(&site, "SET GLOBAL init_connect = 'SET autocommit = 0'");
    source = OPEN_SHOP(WORD);
    expect_loaded(source, "a", "A");
    run_sql(&site, "UPDATE word SET v = 'new' WHERE k = 'a'");
    expect_loaded(source, "a", "new");
    shed_source_close(source);
}

/* MariaDB takes seconds with decimals, which a quotient need not have there. */
TEST(the_limit_is_exact_where_quotients_have_no_decimals)
{
    struct shed_source *source;
    char query[TEXT_BYTES];

    run_sql(&site, "SET GLOBAL div_precision_increment = 0");
    snprintf(query, sizeof(query), "SELECT k, %s FROM word WHERE k IN (?)",
             is_mariadb(&site) ? "ROUND(@@max_statement_time * 1000)"
                               : "@@max_execution_time");
    source = OPEN_SHOP(query, .load_timeout_ms = 12345);
    expect_loaded(source, "a", "12345");
    shed_source_close(source);
}

TEST(a_user_with_too_many_connections_fails_until_one_is_free)
{
    MYSQL *taken = mysql_init(NULL);
    struct shed_source *source;

    run_sql(&site, "ALTER USER shop WITH MAX_USER_CONNECTIONS 1");
    EXPECT_OK(shed_mysql_connect(taken, uri_for(&site, "shop"), NULL, 0, NULL));
    source = OPEN_SHOP(WORD);
    expect_unloaded(source, "a", "(1226)");
    mysql_close(taken);
    wait_loaded(source, "a", "A");
    shed_source_close(source);
}

/* ------------------------------------------------- what a new session cures */

/* Create the function that the query of the next source calls: what it does,
 * and the id of its connection. */
static void make_function(const char *deed)
{
    run_sql(&site, "DROP FUNCTION IF EXISTS act");
    run_sql(&site,
            "CREATE FUNCTION act() RETURNS BIGINT BEGIN %s; RETURN "
            "CONNECTION_ID(); END",
            deed);
    run_sql(&site, "GRANT EXECUTE ON %s.* TO shop", site.database);
}

/* A source with its connection open, whose id is *id, and whose query writes
 * from now on. */
static struct shed_source *open_writer(unsigned long *id)
{
    struct shed_source *source;

    make_function("DO 1");
    source =
        OPEN_SHOP("SELECT k, act() FROM word WHERE k IN (?)", .max_loads = 1);
    *id = load_id(source, "a");
    run_sql(&site, "CREATE TABLE seen (id BIGINT)");
    make_function("INSERT INTO seen VALUES (1)");
    return source;
}

/* As after a failover: the old connection leads to the former primary, and a
 * new one to the primary, which here is the same server in its new role. */
TEST(a_read_only_server_is_left_for_the_one_at_the_address_now)
{
    struct shed_source *source;
    unsigned long id, later;

    run_sql(&site, "CREATE PROCEDURE promote() SET GLOBAL read_only = 0");
    source = open_writer(&id);
    run_sql(&site, "SET GLOBAL read_only = 1");
    expect_unloaded(source, "a", "(1290)");
    run_sql(&site, "SET GLOBAL read_only = 0");
    later = load_id(source, "a");
    ck_assert_uint_gt(later, id);
    run_sql(&site, "SET GLOBAL init_connect = 'CALL %s.promote()'",
            site.database);
    run_sql(&site, "SET GLOBAL read_only = 1");
    ck_assert_uint_gt(load_id(source, "a"), later);
    shed_source_close(source);
}

static void set_read_only(bool is_read_only)
{
    run_sql(&site, "SET GLOBAL %s = %d",
            is_mariadb(&site) ? "tx_read_only" : "transaction_read_only",
            is_read_only);
}

TEST(a_session_that_began_read_only_is_left_for_a_new_one)
{
    struct shed_source *source;
    unsigned long id;

    set_read_only(true);
    source = open_writer(&id);
    set_read_only(false);
    ck_assert_uint_gt(load_id(source, "a"), id);
    shed_source_close(source);
}

/* MariaDB cannot be made to report these errors, so a stored function signals
 * their numbers. */
static const unsigned passing[] = {
    1053, /* shutting down */
    1243, /* the prepared statement is unknown, as behind a proxy */
    1615, /* it has to be prepared again, and cannot be */
    1836, /* read-only, and nothing but a restart changes that */
    1927, /* killed, MariaDB */
    4031, /* idle too long, MySQL */
};

TEST_EACH(an_error_of_the_session_or_its_statement_wants_a_new_connection, 0,
          COUNT_OF(passing))
{
    struct shed_source *source;
    char deed[TEXT_BYTES];
    unsigned long id;

    run_sql(&site, "CREATE TABLE troubled (id BIGINT)");
    snprintf(deed, sizeof(deed),
             "IF EXISTS (SELECT 1 FROM troubled WHERE id = CONNECTION_ID()) "
             "THEN SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = %u; END IF",
             passing[_i]);
    make_function(deed);
    source = OPEN_WITH(&site, "SELECT k, act() FROM word WHERE k IN (?)",
                       .max_loads = 1);
    id = load_id(source, "a");
    run_sql(&site, "INSERT INTO troubled VALUES (%lu)", id);
    ck_assert_uint_gt(load_id(source, "a"), id);
    shed_source_close(source);
}

/* By the statement's limit, or by that of such waits, which ends in the same
 * second. */
TEST(a_table_that_is_locked_is_waited_for_until_the_limit)
{
    struct shed_source *source =
        OPEN_SHOP(WORD, .load_timeout_ms = scaled_ms(1000));
    struct ask ask;

    run_sql(&site, "LOCK TABLES word WRITE");
    load_key(source, &ask, "a");
    ck_assert_msg(strstr(ask.loaded.error.reason, "(1205)") != NULL ||
                      strstr(ask.loaded.error.reason, "(1969)") != NULL,
                  "%s", ask.loaded.error.reason);
    assert_failure(&ask, "MySQL: ");
    run_sql(&site, "UNLOCK TABLES");
    wait_loaded(source, "a", "A");
    shed_source_close(source);
}

/* A new connection would only wait again. */
TEST(a_query_that_locks_its_row_waits_for_it_once)
{
    struct shed_source *source;

    run_sql(&site, "SET GLOBAL innodb_lock_wait_timeout = 1");
    source = OPEN_WITH(&site, WORD " FOR UPDATE", .max_loads = 1);
    run_sql(&site, "BEGIN");
    run_sql(&site, "UPDATE word SET v = 'new' WHERE k = 'a'");
    expect_unloaded(source, "a", "(1205)");
    run_sql(&site, "COMMIT");
    ck_assert_uint_eq(ask_status(&site, "Com_stmt_execute"), 1);
    expect_loaded(source, "a", "new");
    shed_source_close(source);
}

/* --------------------------------------------- statements, rows and reasons */

/* Load count keys as one batch; none of them has a row. */
static void load_nothing(struct shed_source *source, size_t count)
{
    enum { MOST = 64 };
    static char names[MOST][8];
    static struct ask asks[MOST];
    const char *keys[MOST];

    for (size_t i = 0; i < count; i++) {
        snprintf(names[i], sizeof(names[i]), "n%u", (unsigned)i);
        keys[i] = names[i];
    }
    load_keys(source, asks, keys, count);
    for (size_t i = 0; i < count; i++)
        assert_kind(&asks[i], SHED_KIND_ABSENT);
}

TEST(the_server_keeps_one_statement_for_each_power_of_two)
{
    enum { MOST = 64, POWERS = 7 };
    struct shed_source *source = OPEN_SHOP(WORD, .max_loads = 1);

    for (size_t count = 1; count <= MOST; count++)
        load_nothing(source, count);
    ck_assert_uint_eq(ask_status(&site, "Prepared_stmt_count"), POWERS);
    shed_source_close(source);
}

struct reader {
    pthread_t thread;
    struct shed_source *source;
    atomic_bool *is_over;
};

static void *read_on(void *arg)
{
    static const char *const keys[] = {"a", "b"}, *const texts[] = {"A", "B"};
    struct reader *r = arg;
    struct ask ask;

    for (size_t i = 0; !atomic_load(r->is_over); i = 1 - i) {
        load_key(r->source, &ask, keys[i]);
        if (ask.loaded.value != NULL)
            assert_text(&ask, texts[i]);
        else
            assert_failure(&ask, "MySQL: ");
    }
    return NULL;
}

TEST(readers_get_their_own_rows_or_a_failure_through_a_crash)
{
    enum { READERS = 4 };
    struct shed_source *source = OPEN_SHOP(WORD);
    struct reader readers[READERS];
    atomic_bool is_over = false;

    expect_loaded(source, "a", "A");
    for (size_t i = 0; i < READERS; i++) {
        readers[i].source = source;
        readers[i].is_over = &is_over;
        start_thread(&readers[i].thread, read_on, &readers[i]);
    }
    own_database_signal(&server, SIGKILL);
    expect_unloaded(source, "a", "MySQL: ");
    own_database_start(&server);
    wait_loaded(source, "a", "A");
    atomic_store(&is_over, true);
    for (size_t i = 0; i < READERS; i++)
        ck_assert_int_eq(pthread_join(readers[i].thread, NULL), 0);
    shed_source_close(source);
}

TEST(rows_of_a_try_that_broke_are_forgotten)
{
    struct shed_source *source = open_source(
        &site,
        "SELECT k, IF(k = 'b', GET_LOCK('gate', 20), REPEAT(v, 100000)) FROM "
        "word WHERE k IN (?) OR k = 'b' ORDER BY k",
        NULL);
    static char whole[100000];
    struct ask ask;

    /* The row of a is large, so it is sent while the row of b waits. */
    ck_assert_uint_eq(ask_sql(&site, "SELECT GET_LOCK('gate', 0)"), 1);
    begin_ask(source, &ask, "a", 1);
    wait_sql(&site, 1, WAITING);
    run_sql(&site, "KILL CONNECTION %lu", ask_sql(&site, WAITING_ID));
    run_sql(&site, "DO RELEASE_LOCK('gate')");
    end_ask(&ask);
    memset(whole, 'A', sizeof(whole));
    assert_row(&ask, whole, sizeof(whole));
    shed_source_close(source);
}

TEST(a_reason_has_no_control_characters_of_a_key)
{
    struct shed_source *source;

    run_sql(&site, "INSERT INTO word VALUES ('x\\ny', '')");
    run_sql(&site, "CREATE FUNCTION complain(k TEXT) RETURNS TEXT BEGIN "
                   "SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = k; RETURN ''; "
                   "END");
    source = open_source(
        &site, "SELECT k, complain(k) FROM word WHERE k IN (?)", NULL);
    expect_unloaded(source, "x\ny", "MySQL: x?y (1644)");
    shed_source_close(source);
}

/* In a comment, in quotes, or beside another one. */
static const char *const misread[] = {
    "SELECT k, v FROM word WHERE k IN ('a') /* OR k IN (?) */",
    "SELECT k, v FROM word WHERE k IN ('(?)')",
    "SELECT k, v FROM word WHERE k IN (?) AND v > ?"};

TEST_EACH(a_placeholder_that_only_we_see_is_told, 0, COUNT_OF(misread))
{
    struct shed_source *source = OPEN_SHOP(misread[_i], .max_loads = 1);

    expect_unloaded(source, "a", "parameters");
    shed_source_close(source);
}

int main(void)
{
    tcase_add_unchecked_fixture(test_case(), own_site_install, own_site_remove);
    tcase_add_checked_fixture(test_case(), set_up, own_site_down);
    return run_tests("mysql_sessions");
}
