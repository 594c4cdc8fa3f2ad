/* The fencing guard, in concurrent transactions. Needs SHED_TEST_MYSQL. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/random.h"
#include "mysql/uri.h"
#include "support/mysql_testing.h"

enum { LEVELS = 2 };
static const char *const levels[LEVELS] = {"READ COMMITTED", "REPEATABLE READ"};

static struct site site;

static void set_up(void)
{
    open_site(&site, getenv("SHED_TEST_MYSQL"));
    run_sql(&site, "CREATE TABLE snowshed_fence ("
                   "resource VARBINARY(255) NOT NULL PRIMARY KEY,"
                   "number BIGINT UNSIGNED NOT NULL,"
                   "owner BINARY(16) NOT NULL) ENGINE = InnoDB");
    run_sql(&site, "CREATE TABLE written ("
                   "id BIGINT PRIMARY KEY AUTO_INCREMENT,"
                   "number BIGINT UNSIGNED NOT NULL) ENGINE = InnoDB");
}

static void tear_down(void)
{
    close_site(&site);
}

static MYSQL *join(const char *level)
{
    struct shed_mysql_uri uri;
    MYSQL *mysql = mysql_init(NULL);
    char sql[TEXT_BYTES];

    EXPECT_OK(shed_mysql_uri_parse(site.uri, &uri, NULL));
    ck_assert_msg(mysql_real_connect(mysql, uri.host, uri.user, uri.password,
                                     site.database, uri.port, uri.socket,
                                     0) != NULL,
                  "%s", mysql_error(mysql));
    shed_mysql_uri_fini(&uri);
    snprintf(sql, sizeof(sql), "SET SESSION TRANSACTION ISOLATION LEVEL %s",
             level);
    ck_assert_int_eq(mysql_query(mysql, sql), 0);
    return mysql;
}

static void say(MYSQL *mysql, const char *sql)
{
    ck_assert_msg(mysql_query(mysql, sql) == 0, "%s: %s", sql,
                  mysql_error(mysql));
}

static struct shed_fence token(uint64_t number, unsigned char owner)
{
    struct shed_fence fence = {.number = number};

    memset(fence.owner, owner, sizeof(fence.owner));
    return fence;
}

static enum shed_code guard(MYSQL *mysql, uint64_t number, unsigned char owner,
                            uint64_t *newest)
{
    struct shed_fence fence = token(number, owner);

    return shed_mysql_fence(mysql, shed_str("stock"), &fence, newest, NULL);
}

/* Run the guard in a transaction of its own, and commit if it accepts. */
static enum shed_code transact(MYSQL *mysql, uint64_t number,
                               unsigned char owner, uint64_t *newest)
{
    enum shed_code code;

    say(mysql, "BEGIN");
    code = guard(mysql, number, owner, newest);
    say(mysql, code == SHED_OK ? "COMMIT" : "ROLLBACK");
    return code;
}

TEST_EACH(only_what_is_not_older_is_accepted, 0, LEVELS)
{
    MYSQL *mysql = join(levels[_i]);
    uint64_t newest;

    EXPECT_OK(transact(mysql, 7, 'a', &newest));
    ck_assert_uint_eq(newest, 7);
    EXPECT_OK(transact(mysql, 7, 'a', NULL));
    EXPECT_CODE(transact(mysql, 7, 'b', &newest), SHED_ELOST);
    EXPECT_CODE(transact(mysql, 6, 'a', &newest), SHED_ELOST);
    ck_assert_uint_eq(newest, 7);
    EXPECT_OK(transact(mysql, 9000000000000000000U, 'b', NULL));
    EXPECT_CODE(transact(mysql, 8, 'a', &newest), SHED_ELOST);
    ck_assert_uint_eq(newest, 9000000000000000000U);
    /* the connection is as it was */
    say(mysql, "DO 1");
    mysql_close(mysql);
}

TEST(another_resource_has_numbers_of_its_own)
{
    MYSQL *mysql = join(levels[0]);
    struct shed_fence fence = token(3, 'a');
    char name[256];

    memset(name, 'n', sizeof(name));
    EXPECT_OK(transact(mysql, 7, 'a', NULL));
    say(mysql, "BEGIN");
    EXPECT_OK(
        shed_mysql_fence(mysql, shed_bytes("\0'", 2), &fence, NULL, NULL));
    EXPECT_OK(
        shed_mysql_fence(mysql, shed_bytes(name, 255), &fence, NULL, NULL));
    EXPECT_CODE(
        shed_mysql_fence(mysql, shed_bytes(name, 256), &fence, NULL, NULL),
        SHED_EINVAL);
    EXPECT_CODE(
        shed_mysql_fence(mysql, shed_bytes(name, 0), &fence, NULL, NULL),
        SHED_EINVAL);
    fence.number = 0;
    EXPECT_CODE(
        shed_mysql_fence(mysql, shed_bytes(name, 9), &fence, NULL, NULL),
        SHED_EINVAL);
    say(mysql, "COMMIT");
    ck_assert_uint_eq(ask_sql(&site, "SELECT COUNT(*) FROM snowshed_fence"), 3);
    mysql_close(mysql);
}

TEST_EACH(a_rollback_takes_it_back, 0, LEVELS)
{
    MYSQL *mysql = join(levels[_i]);

    EXPECT_OK(transact(mysql, 5, 'a', NULL));
    say(mysql, "BEGIN");
    EXPECT_OK(guard(mysql, 8, 'b', NULL));
    say(mysql, "ROLLBACK");
    EXPECT_OK(transact(mysql, 6, 'c', NULL));
    mysql_close(mysql);
}

TEST(outside_of_a_transaction_it_refuses)
{
    MYSQL *mysql = join(levels[0]);
    shed_mysql_flag on = 1;

    EXPECT_CODE(guard(mysql, 5, 'a', NULL), SHED_EINVAL);
    ck_assert_uint_eq(ask_sql(&site, "SELECT COUNT(*) FROM snowshed_fence"), 0);
    say(mysql, "SET autocommit = 0");
    EXPECT_OK(guard(mysql, 5, 'a', NULL));
    say(mysql, "COMMIT");
    ck_assert_int_eq(mysql_options(mysql, MYSQL_OPT_RECONNECT, &on), 0);
    EXPECT_CODE(guard(mysql, 6, 'a', NULL), SHED_EINVAL);
    mysql_close(mysql);
}

/* A snapshot from before a newer token does not hide that token. */
TEST(an_old_snapshot_does_not_help)
{
    MYSQL *old = join(levels[1]), *new = join(levels[1]);

    EXPECT_OK(transact(old, 5, 'a', NULL));
    say(old, "START TRANSACTION WITH CONSISTENT SNAPSHOT");
    EXPECT_OK(transact(new, 6, 'b', NULL));
    ck_assert_int_ne(guard(old, 5, 'a', NULL), SHED_OK);
    say(old, "ROLLBACK");
    mysql_close(old);
    mysql_close(new);
}

struct call {
    pthread_t thread;
    MYSQL *mysql;
    uint64_t number;
    enum shed_code code;
    atomic_bool has_ended;
};

static void *transact_beside(void *arg)
{
    struct call *c = arg;

    mysql_thread_init();
    c->code = transact(c->mysql, c->number, (unsigned char)c->number, NULL);
    atomic_store(&c->has_ended, true);
    mysql_thread_end();
    return NULL;
}

/* Begin a call, and wait until it executes the statement in which it has to
 * wait. */
static void begin_call(struct call *c, MYSQL *mysql, uint64_t number)
{
    char sql[TEXT_BYTES];

    *c = (struct call){.mysql = mysql, .number = number};
    start_thread(&c->thread, transact_beside, c);
    snprintf(sql, sizeof(sql),
             "SELECT COUNT(*) FROM sessions WHERE id = "
             "%lu AND info LIKE 'INSERT INTO snowshed_fence%%'",
             mysql_thread_id(mysql));
    wait_sql(&site, 1, sql);
}

/* Others wait for a holder that was accepted and has not committed yet: newer
 * ones, which are then accepted, and older ones, which are not. */
TEST_EACH(others_wait_for_an_accepted_holder, 0, LEVELS)
{
    MYSQL *first = join(levels[_i]), *second = join(levels[_i]);
    struct call c;

    EXPECT_OK(transact(first, 3, 3, NULL));
    say(first, "BEGIN");
    EXPECT_OK(guard(first, 5, 5, NULL));
    begin_call(&c, second, 6);
    ck_assert(!atomic_load(&c.has_ended));
    say(first, "COMMIT");
    pthread_join(c.thread, NULL);
    EXPECT_OK(c.code);

    say(first, "BEGIN");
    EXPECT_OK(guard(first, 9, 9, NULL));
    begin_call(&c, second, 8);
    say(first, "COMMIT");
    pthread_join(c.thread, NULL);
    EXPECT_CODE(c.code, SHED_ELOST);
    mysql_close(first);
    mysql_close(second);
}

TEST(a_lock_wait_that_is_too_long_is_to_be_repeated)
{
    MYSQL *first = join(levels[0]), *second = join(levels[0]);
    struct shed_error err;
    struct shed_fence fence = token(6, 'b');

    EXPECT_OK(transact(first, 3, 'a', NULL));
    say(second, "SET innodb_lock_wait_timeout = 1");
    say(first, "BEGIN");
    EXPECT_OK(guard(first, 5, 'a', NULL));
    say(second, "BEGIN");
    EXPECT_CODE(shed_mysql_fence(second, shed_str("stock"), &fence, NULL, &err),
                SHED_ETIMEDOUT);
    ck_assert_ptr_nonnull(strstr(err.reason, "repeat"));
    say(second, "ROLLBACK");
    say(first, "COMMIT");
    EXPECT_OK(transact(second, 6, 'b', NULL));
    mysql_close(first);
    mysql_close(second);
}

TEST(without_its_table_it_says_what_makes_it)
{
    MYSQL *mysql = join(levels[0]);
    struct shed_error err;
    struct shed_fence fence = token(6, 'b');

    run_sql(&site, "DROP TABLE snowshed_fence");
    say(mysql, "BEGIN");
    EXPECT_CODE(shed_mysql_fence(mysql, shed_str("stock"), &fence, NULL, &err),
                SHED_ESOURCE);
    ck_assert_ptr_nonnull(strstr(err.reason, "sql/fence.sql"));
    say(mysql, "ROLLBACK");
    mysql_close(mysql);
}

/* --------------------------------------------------- many beside each other */

enum { WRITERS = 6, WRITES = 60, NUMBERS = 400 };

struct writer {
    pthread_t thread;
    MYSQL *mysql;
    unsigned accepted;
};

/* One transaction: the guard, then the write that it protects. */
static enum shed_code write_guarded(MYSQL *mysql, uint64_t number)
{
    char sql[TEXT_BYTES];
    enum shed_code code;

    say(mysql, "BEGIN");
    code = guard(mysql, number, (unsigned char)number, NULL);
    if (code == SHED_OK) {
        snprintf(sql, sizeof(sql), "INSERT INTO written (number) VALUES (%llu)",
                 (unsigned long long)number);
        say(mysql, sql);
    }
    say(mysql, code == SHED_OK ? "COMMIT" : "ROLLBACK");
    return code;
}

static void *write_at_random(void *arg)
{
    struct writer *w = arg;

    mysql_thread_init();
    for (unsigned i = 0; i < WRITES; i++) {
        /* tokens that mostly grow, as those of holders do, but some come
         * late */
        uint64_t number =
            1 + i * (NUMBERS / WRITES) + shed_random_jitter() % (NUMBERS / 4);
        enum shed_code code = write_guarded(w->mysql, number);
        ck_assert(code == SHED_OK || code == SHED_ELOST ||
                  code == SHED_ETIMEDOUT);
        w->accepted += code == SHED_OK;
    }
    mysql_thread_end();
    return NULL;
}

TEST_EACH(no_older_write_comes_after_a_newer_one, 0, LEVELS)
{
    struct writer writers[WRITERS] = {{.mysql = NULL}};
    unsigned accepted = 0;

    for (unsigned i = 0; i < WRITERS; i++) {
        writers[i].mysql = join(levels[_i]);
        start_thread(&writers[i].thread, write_at_random, &writers[i]);
    }
    for (unsigned i = 0; i < WRITERS; i++) {
        pthread_join(writers[i].thread, NULL);
        mysql_close(writers[i].mysql);
        accepted += writers[i].accepted;
    }
    ck_assert_uint_eq(ask_sql(&site, "SELECT COUNT(*) FROM written"), accepted);
    ck_assert_uint_gt(accepted, 1);
    ck_assert_uint_lt(accepted, WRITERS * WRITES);
    /* ids are assigned while the guard's row is locked */
    ck_assert_uint_eq(ask_sql(&site, "SELECT COUNT(*) FROM written a JOIN "
                                     "written b ON a.id < b.id AND "
                                     "a.number > b.number"),
                      0);
}

int main(void)
{
    tcase_add_checked_fixture(test_case(), set_up, tear_down);
    return run_tests("fence");
}
