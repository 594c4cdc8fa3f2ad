/* The MySQL source and its sessions, on a private server: how they begin, how
 * many there may be, what they keep, and what they report. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "support/own_site.h"

#define WORD "SELECT k, v FROM word WHERE k IN (?)"

#define WAITING_FOR_LOCK                                                       \
    "FROM information_schema.processlist WHERE state = 'User lock'"
#define WAITING "SELECT COUNT(*) " WAITING_FOR_LOCK
#define WAITING_ID "SELECT id " WAITING_FOR_LOCK

static char shop_uri[TEXT_BYTES]; /* of a user without privileges */

static void set_up(void)
{
    own_site_up();
    run_sql(&site, "CREATE OR REPLACE USER shop");
    run_sql(&site, "GRANT SELECT ON %s.* TO shop", site.database);
    snprintf(shop_uri, sizeof(shop_uri), "mysql://shop%s",
             strchr(site.uri, '@'));
}

/* As an ordinary user, because servers make exceptions for the
 * administrator. */
static struct shed_source *open_shop(const struct shed_mysql_options *options)
{
    struct shed_source *source;

    ck_assert_int_eq(
        shed_mysql_source_open(shop_uri, WORD, options, &source, NULL),
        SHED_OK);
    return source;
}

static void check_text(struct shed_source *source, const char *key,
                       const char *text)
{
    struct ask ask;

    load_key(source, &ask, key);
    assert_text(&ask, text);
}

static bool works(struct shed_source *source)
{
    struct ask ask;
    bool is_answered;

    load_key(source, &ask, "a");
    is_answered = ask.loaded.value != NULL;
    shed_value_unref(ask.loaded.value);
    return is_answered;
}

/* After failures the source pauses for a few seconds at most. */
static void wait_works(struct shed_source *source)
{
    enum { LONGEST = 2, LOOK_US = 1000 };
    uint64_t now_ms = shed_now_ms();
    uint64_t patience_ms = (test_deadline_ms() - now_ms) * LONGEST;

    while (!works(source)) {
        ck_assert_msg(shed_now_ms() < now_ms + patience_ms,
                      "loads go on failing");
        usleep(LOOK_US);
    }
}

START_TEST(the_present_is_read_where_sessions_begin_in_transactions)
{
    struct shed_source *source;

    run_sql(&site, "SET GLOBAL init_connect = 'SET autocommit = 0'");
    source = open_shop(NULL);
    check_text(source, "a", "A");
    run_sql(&site, "UPDATE word SET v = 'new' WHERE k = 'a'");
    check_text(source, "a", "new");
    shed_source_close(source);
}
END_TEST

START_TEST(a_user_with_too_many_connections_fails_until_one_is_free)
{
    MYSQL *taken = mysql_init(NULL);
    struct shed_source *source;
    struct ask ask;

    run_sql(&site, "ALTER USER shop WITH MAX_USER_CONNECTIONS 1");
    ck_assert_ptr_nonnull(
        mysql_real_connect(taken, NULL, "shop", NULL, NULL, 0,
                           strstr(site.uri, "socket=") + strlen("socket="), 0));
    source = open_shop(NULL);
    load_key(source, &ask, "a");
    assert_failure(&ask, "(1226)");
    mysql_close(taken);
    wait_works(source);
    shed_source_close(source);
}
END_TEST

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

START_TEST(the_server_keeps_one_statement_for_each_power_of_two)
{
    enum { MOST = 64, POWERS = 7 };
    struct shed_source_options load = SHED_SOURCE_OPTIONS_INIT;
    struct shed_mysql_options o = SHED_MYSQL_OPTIONS_INIT;
    struct shed_source *source;

    load.max_loads = 1;
    o.source = &load;
    source = open_shop(&o);
    for (size_t count = 1; count <= MOST; count++)
        load_nothing(source, count);
    ck_assert_uint_eq(ask_sql(&site, "SELECT variable_value FROM "
                                     "information_schema.global_status WHERE "
                                     "variable_name = 'Prepared_stmt_count'"),
                      POWERS);
    shed_source_close(source);
}
END_TEST

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

START_TEST(readers_get_their_own_rows_or_a_failure_through_a_crash)
{
    enum { READERS = 4 };
    struct shed_source *source = open_shop(NULL);
    struct reader readers[READERS];
    atomic_bool is_over = false;

    check_text(source, "a", "A");
    for (size_t i = 0; i < READERS; i++) {
        readers[i].source = source;
        readers[i].is_over = &is_over;
        ck_assert_int_eq(
            pthread_create(&readers[i].thread, NULL, read_on, &readers[i]), 0);
    }
    own_mariadb_signal(&server, SIGKILL);
    ck_assert(!works(source));
    own_mariadb_start(&server);
    wait_works(source);
    atomic_store(&is_over, true);
    for (size_t i = 0; i < READERS; i++)
        ck_assert_int_eq(pthread_join(readers[i].thread, NULL), 0);
    shed_source_close(source);
}
END_TEST

START_TEST(rows_of_a_try_that_broke_are_forgotten)
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
END_TEST

START_TEST(a_reason_has_no_control_characters_of_a_key)
{
    struct shed_source *source;
    struct ask ask;

    run_sql(&site, "INSERT INTO word VALUES ('x\\ny', '')");
    run_sql(&site, "CREATE FUNCTION complain(k TEXT) RETURNS TEXT BEGIN "
                   "SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = k; RETURN ''; "
                   "END");
    source = open_source(
        &site, "SELECT k, complain(k) FROM word WHERE k IN (?)", NULL);
    load_key(source, &ask, "x\ny");
    assert_failure(&ask, "MySQL: x?y (1644)");
    shed_source_close(source);
}
END_TEST

START_TEST(a_placeholder_that_only_we_see_is_told)
{
    struct shed_source *source;
    struct ask ask;

    /* only a server newer than any existing one would execute this; here it is
     * a comment */
    source = open_source(&site,
                         "SELECT k, v FROM word WHERE k IN ('a') /*!999999 "
                         "OR k IN (?) */",
                         NULL);
    load_key(source, &ask, "a");
    assert_failure(&ask, "parameters");
    shed_source_close(source);
}
END_TEST

int main(void)
{
    TCase *tc = tcase_create("mysql_sessions");

    tcase_add_unchecked_fixture(tc, own_site_install, own_site_remove);
    tcase_add_checked_fixture(tc, set_up, own_site_down);
    tcase_set_timeout(tc, TEST_TIMEOUT_S);
    tcase_add_test(tc,
                   the_present_is_read_where_sessions_begin_in_transactions);
    tcase_add_test(tc,
                   a_user_with_too_many_connections_fails_until_one_is_free);
    tcase_add_test(tc, the_server_keeps_one_statement_for_each_power_of_two);
    tcase_add_test(tc, readers_get_their_own_rows_or_a_failure_through_a_crash);
    tcase_add_test(tc, rows_of_a_try_that_broke_are_forgotten);
    tcase_add_test(tc, a_reason_has_no_control_characters_of_a_key);
    tcase_add_test(tc, a_placeholder_that_only_we_see_is_told);
    return run_tests("mysql_sessions", tc);
}
