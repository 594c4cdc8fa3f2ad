/* The fencing guard when something is wrong with the connection, the
 * transaction, or the table. Needs SHED_TEST_MYSQL; FENCE_SQL is the path of
 * sql/fence.sql. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "mysql/uri.h"
#include "support/mysql_testing.h"

#define STOCK shed_str("stock")

/* Names of the levels, for loop tests. */
enum { LEVELS = 2 };
static const char *const levels[LEVELS] = {"READ COMMITTED", "REPEATABLE READ"};

static struct site site;

/* Create the table from the file. */
static void load_fence_sql(void)
{
    enum { FILE_BYTES = 4096 };
    char sql[FILE_BYTES] = "";
    FILE *file = fopen(FENCE_SQL, "r");

    ck_assert_ptr_nonnull(file);
    ck_assert_uint_lt(fread(sql, 1, sizeof(sql), file), sizeof(sql) - 1);
    ck_assert_int_eq(fclose(file), 0);
    ck_assert_msg(mysql_query(site.admin, sql) == 0, "%s",
                  mysql_error(site.admin));
}

static void set_up(void)
{
    open_site(&site, getenv("SHED_TEST_MYSQL"));
    load_fence_sql();
    run_sql(&site, "CREATE TABLE shelf (id INT PRIMARY KEY, pieces INT) "
                   "ENGINE = InnoDB");
    run_sql(&site, "INSERT INTO shelf VALUES (1, 10), (2, 20)");
}

static void tear_down(void)
{
    close_site(&site);
}

/* ------------------------------------------------------------- connections */

static void say(MYSQL *mysql, const char *sql)
{
    ck_assert_msg(mysql_query(mysql, sql) == 0, "%s: %s", sql,
                  mysql_error(mysql));
}

/* A connection such as any program has, without flags. */
static MYSQL *join(const char *level)
{
    struct shed_mysql_uri uri;
    MYSQL *mysql = mysql_init(NULL);
    char sql[TEXT_BYTES];

    ck_assert_ptr_nonnull(mysql);
    EXPECT_OK(shed_mysql_uri_parse(site.uri, &uri, NULL));
    ck_assert_msg(mysql_real_connect(mysql, uri.host, uri.user, uri.password,
                                     uri.database, uri.port, uri.socket,
                                     CLIENT_MULTI_STATEMENTS) != NULL,
                  "%s", mysql_error(mysql));
    shed_mysql_uri_fini(&uri);
    snprintf(sql, sizeof(sql), "SET SESSION TRANSACTION ISOLATION LEVEL %s",
             level);
    say(mysql, sql);
    return mysql;
}

static unsigned long ask(MYSQL *mysql, const char *sql)
{
    MYSQL_RES *result;
    unsigned long number;
    MYSQL_ROW row;

    say(mysql, sql);
    result = mysql_store_result(mysql);
    ck_assert_ptr_nonnull(result);
    row = mysql_fetch_row(result);
    ck_assert(row != NULL && row[0] != NULL);
    number = strtoul(row[0], NULL, 10);
    mysql_free_result(result);
    return number;
}

/* Owners of different numbers differ. */
static struct shed_fence token(uint64_t number)
{
    struct shed_fence fence = {.number = number};

    memset(fence.owner, (int)(number & 0xff), sizeof(fence.owner));
    return fence;
}

static enum shed_code guard(MYSQL *mysql, struct shed_bytes resource,
                            uint64_t number, struct shed_error *err)
{
    struct shed_fence fence = token(number);

    return shed_mysql_fence(mysql, resource, &fence, NULL, err);
}

static enum shed_code transact(MYSQL *mysql, uint64_t number)
{
    enum shed_code code;

    say(mysql, "BEGIN");
    code = guard(mysql, STOCK, number, NULL);
    say(mysql, code == SHED_OK ? "COMMIT" : "ROLLBACK");
    return code;
}

/* Expect a refusal whose reason contains these words. */
static void assert_refused(MYSQL *mysql, uint64_t number, enum shed_code code,
                           const char *words)
{
    struct shed_error err = {0};

    ck_assert_int_eq(guard(mysql, STOCK, number, &err), code);
    ck_assert_int_eq(err.code, code);
    ck_assert_msg(strstr(err.reason, words) != NULL, "%s", err.reason);
}

/* A guard that waits in a thread of its own, which uses the connection until it
 * is joined. */
struct waiter {
    pthread_t thread;
    MYSQL *mysql;
    const char *resource;
    uint64_t number;
    enum shed_code code;
    struct shed_error err;
};

static void *run_waiter(void *arg)
{
    struct waiter *w = arg;

    mysql_thread_init();
    w->code = guard(w->mysql, shed_str(w->resource), w->number, &w->err);
    mysql_thread_end();
    return NULL;
}

/* Frequent reads of this table are answered from a copy: InnoDB makes a new one
 * only after 100 ms without a read. */
static void pause_look(void)
{
    struct timespec pause = {.tv_nsec = 110000000};

    (void)nanosleep(&pause, NULL);
}

/* Begin, and return when it waits for a lock in the server. */
static void begin_wait(struct waiter *w)
{
    uint64_t deadline_ms = test_deadline_ms();

    start_thread(&w->thread, run_waiter, w);
    while (ask_sql(&site, "SELECT COUNT(*) FROM lock_waits WHERE id = %lu",
                   mysql_thread_id(w->mysql)) == 0) {
        ck_assert_msg(shed_now_ms() < deadline_ms, "the guard does not wait");
        pause_look();
    }
}

static void end_wait(struct waiter *w)
{
    ck_assert_int_eq(pthread_join(w->thread, NULL), 0);
}

/* --------------------------------------------------------------- conflicts */

/* Run two transactions, each of which has a resource that the other wants.
 * Returns the one that the server has ended; the other is rolled back. */
static MYSQL *deadlock(MYSQL *first, MYSQL *second, struct shed_error *err)
{
    struct waiter w = {.mysql = first, .resource = "b", .number = 6};
    struct shed_error own = {0};
    enum shed_code code;

    say(first, "BEGIN");
    say(second, "BEGIN");
    EXPECT_OK(guard(first, shed_str("a"), 5, NULL));
    EXPECT_OK(guard(second, shed_str("b"), 5, NULL));
    begin_wait(&w);
    code = guard(second, shed_str("a"), 6, &own);
    if (code == SHED_OK)
        say(second, "ROLLBACK");
    end_wait(&w);
    ck_assert(code != w.code && (code == SHED_OK || w.code == SHED_OK));
    if (w.code == SHED_OK)
        say(first, "ROLLBACK");
    *err = w.code == SHED_OK ? own : w.err;
    return w.code == SHED_OK ? second : first;
}

TEST_EACH(a_deadlock_wants_the_whole_transaction_again, 0, LEVELS)
{
    MYSQL *first = join(levels[_i]), *second = join(levels[_i]), *loser;
    struct shed_error err;

    EXPECT_OK(transact(first, 1));
    loser = deadlock(first, second, &err);
    EXPECT_CODE(err.code, SHED_ETIMEDOUT);
    ck_assert_msg(strstr(err.reason, "roll back and repeat") != NULL &&
                      strstr(err.reason, "1213") != NULL,
                  "%s", err.reason);
    say(loser, "ROLLBACK");
    EXPECT_OK(transact(loser, 7));
    mysql_close(first);
    mysql_close(second);
}

/* The server has rolled it back; every further write would be committed at
 * once. */
TEST(after_a_deadlock_there_is_no_transaction)
{
    MYSQL *first = join(levels[0]), *second = join(levels[0]), *loser;
    struct shed_error err;

    loser = deadlock(first, second, &err);
    EXPECT_CODE(err.code, SHED_ETIMEDOUT);
    assert_refused(loser, 8, SHED_EINVAL, "transaction");
    mysql_close(first);
    mysql_close(second);
}

/* The snapshot does not hide later writes. */
TEST(an_old_snapshot_is_told_the_newest)
{
    MYSQL *old = join(levels[1]), *young = join(levels[1]);
    struct shed_fence fence = token(5);
    uint64_t newest = 0;

    EXPECT_OK(transact(old, 5));
    /* A server without this setting behaves as if it were off. */
    (void)mysql_query(old, "SET SESSION innodb_snapshot_isolation = OFF");
    say(old, "BEGIN");
    ck_assert_uint_eq(ask(old, "SELECT number FROM snowshed_fence"), 5);
    EXPECT_OK(transact(young, 6));
    ck_assert_uint_eq(ask(old, "SELECT number FROM snowshed_fence"), 5);
    EXPECT_CODE(shed_mysql_fence(old, STOCK, &fence, &newest, NULL),
                SHED_ELOST);
    ck_assert_uint_eq(newest, 6);
    mysql_close(old);
    mysql_close(young);
}

/* MariaDB can refuse to lock a row that is newer than the snapshot. */
TEST(a_snapshot_that_the_server_enforces_wants_a_new_transaction)
{
    MYSQL *old = join(levels[1]), *young = join(levels[1]);
    bool is_enforced =
        mysql_query(old, "SET SESSION innodb_snapshot_isolation = ON") == 0;

    EXPECT_OK(transact(old, 5));
    say(old, "BEGIN");
    ck_assert_uint_eq(ask(old, "SELECT pieces FROM shelf WHERE id = 1"), 10);
    EXPECT_OK(transact(young, 6));
    if (is_enforced)
        assert_refused(old, 7, SHED_ETIMEDOUT, "1020");
    else
        EXPECT_OK(guard(old, STOCK, 7, NULL));
    say(old, "ROLLBACK");
    EXPECT_OK(transact(old, 7));
    mysql_close(old);
    mysql_close(young);
}

/* The guard comes first in its transaction: later reads, even without a lock,
 * include everything that was written under older tokens. */
TEST_EACH(a_holder_that_waited_reads_earlier_writes, 0, LEVELS)
{
    MYSQL *first = join(levels[_i]), *second = join(levels[_i]);
    struct waiter w = {.mysql = second, .resource = "stock", .number = 6};

    say(first, "BEGIN");
    EXPECT_OK(guard(first, STOCK, 5, NULL));
    say(second, "BEGIN");
    begin_wait(&w);
    say(first, "UPDATE shelf SET pieces = 9 WHERE id = 1");
    say(first, "COMMIT");
    end_wait(&w);
    EXPECT_OK(w.code);
    ck_assert_uint_eq(ask(second, "SELECT pieces FROM shelf WHERE id = 1"), 9);
    mysql_close(first);
    mysql_close(second);
}

/* Two at once while there is no row yet: the second waits for the first. */
TEST_EACH(the_first_of_a_resource_is_waited_for, 0, LEVELS)
{
    MYSQL *first = join(levels[_i]), *second = join(levels[_i]);
    struct waiter w = {.mysql = second, .resource = "stock", .number = 5};

    say(first, "BEGIN");
    EXPECT_OK(guard(first, STOCK, 6, NULL));
    say(second, "BEGIN");
    begin_wait(&w);
    say(first, "ROLLBACK");
    end_wait(&w);
    EXPECT_OK(w.code);
    mysql_close(first);
    mysql_close(second);
}

/* ----------------------------------------------- the caller's connection */

TEST(an_unread_result_is_refused_and_can_be_read)
{
    MYSQL *mysql = join(levels[0]);
    MYSQL_RES *result;

    say(mysql, "BEGIN");
    say(mysql, "SELECT id FROM shelf ORDER BY id");
    assert_refused(mysql, 5, SHED_EINVAL, "unread result");
    result = mysql_use_result(mysql);
    ck_assert_ptr_nonnull(mysql_fetch_row(result));
    assert_refused(mysql, 5, SHED_EINVAL, "unread result");
    ck_assert_str_eq(mysql_fetch_row(result)[0], "2");
    ck_assert_ptr_null(mysql_fetch_row(result));
    mysql_free_result(result);
    EXPECT_OK(guard(mysql, STOCK, 5, NULL));
    mysql_close(mysql);
}

TEST(a_second_result_is_refused_and_can_be_read)
{
    MYSQL *mysql = join(levels[0]);

    say(mysql, "BEGIN");
    say(mysql, "SELECT id FROM shelf WHERE id = 1; SELECT 2");
    mysql_free_result(mysql_store_result(mysql));
    assert_refused(mysql, 5, SHED_EINVAL, "unread result");
    ck_assert_int_eq(mysql_next_result(mysql), 0);
    mysql_free_result(mysql_store_result(mysql));
    EXPECT_OK(guard(mysql, STOCK, 5, NULL));
    mysql_close(mysql);
}

TEST(a_statement_of_the_callers_is_refused_and_can_be_read)
{
    static const char sql[] = "SELECT id FROM shelf ORDER BY id";
    MYSQL *mysql = join(levels[0]);
    MYSQL_STMT *stmt = mysql_stmt_init(mysql);
    int id = 0;
    MYSQL_BIND bind = {.buffer_type = MYSQL_TYPE_LONG, .buffer = &id};

    say(mysql, "BEGIN");
    ck_assert_int_eq(mysql_stmt_prepare(stmt, sql, sizeof(sql) - 1), 0);
    ck_assert_int_eq(mysql_stmt_execute(stmt), 0);
    ck_assert_int_eq(mysql_stmt_bind_result(stmt, &bind), 0);
    ck_assert_int_eq(mysql_stmt_fetch(stmt), 0);
    assert_refused(mysql, 5, SHED_EINVAL, "unread result");
    ck_assert_int_eq(mysql_stmt_fetch(stmt), 0);
    ck_assert_int_eq(id, 2);
    ck_assert_int_eq(mysql_stmt_fetch(stmt), MYSQL_NO_DATA);
    EXPECT_OK(guard(mysql, STOCK, 5, NULL));
    /* and it still works */
    ck_assert_int_eq(mysql_stmt_execute(stmt), 0);
    ck_assert_int_eq(mysql_stmt_close(stmt), 0);
    mysql_close(mysql);
}

/* The server counts whether statements are closed; the libraries differ. */
TEST(no_statement_is_left_behind)
{
    MYSQL *mysql = join(levels[0]);
    char sql[2 * TEXT_BYTES];
    int size = snprintf(sql, sizeof(sql), "SELECT %s - ",
                        session_count(&site, "Prepare"));

    snprintf(sql + size, sizeof(sql) - (size_t)size, "%s",
             session_count(&site, "Close"));
    EXPECT_OK(transact(mysql, 5));
    EXPECT_CODE(transact(mysql, 4), SHED_ELOST);
    run_sql(&site, "DROP TABLE snowshed_fence");
    EXPECT_CODE(transact(mysql, 6), SHED_ESOURCE);
    /* the failed statement left nothing to close */
    ck_assert_uint_eq(ask(mysql, sql), 1);
    mysql_close(mysql);
}

TEST(a_lost_connection_is_a_failure_of_the_server)
{
    MYSQL *mysql = join(levels[0]);

    say(mysql, "BEGIN");
    run_sql(&site, "KILL CONNECTION %lu", mysql_thread_id(mysql));
    wait_sql(&site, 0,
             "SELECT COUNT(*) FROM sessions WHERE db = "
             "DATABASE() AND id <> CONNECTION_ID()");
    assert_refused(mysql, 5, SHED_ESOURCE, "MySQL");
    /* and stays lost */
    ck_assert_int_ne(guard(mysql, STOCK, 5, NULL), SHED_OK);
    mysql_close(mysql);
}

/* --------------------------------------------------------------- arguments */

TEST(what_is_none_is_refused)
{
    MYSQL *mysql = join(levels[0]);
    struct shed_fence fence = token(5);
    uint64_t newest = 1;

    say(mysql, "BEGIN");
    EXPECT_CODE(shed_mysql_fence(NULL, STOCK, &fence, &newest, NULL),
                SHED_EINVAL);
    ck_assert_uint_eq(newest, 0);
    EXPECT_CODE(
        shed_mysql_fence(mysql, shed_bytes(NULL, 5), &fence, NULL, NULL),
        SHED_EINVAL);
    EXPECT_CODE(shed_mysql_fence(mysql, STOCK, NULL, NULL, NULL), SHED_EINVAL);
    ck_assert_uint_eq(ask_sql(&site, "SELECT COUNT(*) FROM snowshed_fence"), 0);
    mysql_close(mysql);
}

TEST(resources_are_bytes)
{
    static const struct {
        const char *data;
        size_t size;
    } names[] = {{"a", 1},  {"A", 1},        {"a\0", 2},      {"a ", 2},
                 {"\0", 1}, {"\xff\xfe", 2}, {"\xe2\x82", 2}, {"'\\\"?", 4}};
    enum { NAMES = sizeof(names) / sizeof(*names) };
    MYSQL *mysql = join(levels[0]);

    /* with these, text is converted */
    say(mysql, "SET character_set_client = latin1, character_set_connection = "
               "utf8mb4");
    for (size_t i = 0; i < NAMES; i++) {
        say(mysql, "BEGIN");
        EXPECT_OK(guard(mysql, shed_bytes(names[i].data, names[i].size),
                        NAMES - i, NULL));
        say(mysql, "COMMIT");
    }
    ck_assert_uint_eq(ask_sql(&site, "SELECT COUNT(*) FROM snowshed_fence"),
                      NAMES);
    ck_assert_uint_eq(ask_sql(&site, "SELECT number FROM snowshed_fence WHERE "
                                     "resource = X'FFFE'"),
                      3);
    mysql_close(mysql);
}

TEST(numbers_reach_to_the_greatest)
{
    MYSQL *mysql = join(levels[0]);

    EXPECT_OK(transact(mysql, INT64_MAX));
    EXPECT_OK(transact(mysql, (uint64_t)INT64_MAX + 1));
    EXPECT_CODE(transact(mysql, INT64_MAX), SHED_ELOST);
    EXPECT_OK(transact(mysql, UINT64_MAX));
    EXPECT_CODE(transact(mysql, UINT64_MAX - 1), SHED_ELOST);
    EXPECT_OK(transact(mysql, UINT64_MAX));
    mysql_close(mysql);
}

/* ------------------------------------------------------------- the table */

static void replace_table(const char *columns, const char *engine)
{
    run_sql(&site, "DROP TABLE snowshed_fence");
    run_sql(&site, "CREATE TABLE snowshed_fence (%s) ENGINE = %s", columns,
            engine);
}

TEST(a_table_that_cuts_numbers_is_refused)
{
    MYSQL *mysql = join(levels[0]);

    replace_table("resource VARBINARY(255) PRIMARY KEY, number TINYINT "
                  "UNSIGNED, owner BINARY(16)",
                  "InnoDB");
    say(mysql, "SET SESSION sql_mode = ''");
    say(mysql, "BEGIN");
    assert_refused(mysql, 300, SHED_ESOURCE, "sql/fence.sql");
    mysql_close(mysql);
}

TEST(a_table_that_cuts_owners_is_refused)
{
    MYSQL *mysql = join(levels[0]);

    replace_table("resource VARBINARY(255) PRIMARY KEY, number BIGINT "
                  "UNSIGNED, owner BINARY(8)",
                  "InnoDB");
    say(mysql, "SET SESSION sql_mode = ''");
    say(mysql, "BEGIN");
    assert_refused(mysql, 5, SHED_ESOURCE, "sql/fence.sql");
    mysql_close(mysql);
}

/* With autocommit off, a transaction begins with its first table. */
TEST(a_table_without_transactions_is_refused)
{
    MYSQL *mysql = join(levels[0]);

    /* MySQL begins a transaction for its binary log, too, and shows only that
     * there is one */
    if (!is_mariadb(&site) && ask_sql(&site, "SELECT @@log_bin") == 1) {
        mysql_close(mysql);
        return;
    }
    replace_table("resource VARBINARY(255) PRIMARY KEY, number BIGINT "
                  "UNSIGNED, owner BINARY(16)",
                  "MyISAM");
    say(mysql, "SET SESSION autocommit = 0");
    assert_refused(mysql, 5, SHED_EINVAL, "InnoDB");
    mysql_close(mysql);
}

int main(void)
{
    tcase_add_checked_fixture(test_case(), set_up, tear_down);
    return run_tests("fence_trouble");
}
