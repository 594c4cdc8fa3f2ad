/* The fencing guard: what it accepts, in concurrent transactions, and what it
 * says of a connection, a transaction or a table with which something is wrong.
 * Needs SHED_TEST_MYSQL; FENCE_SQL is the path of sql/fence.sql. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/random.h"
#include "support/mysql_testing.h"

#define STOCK shed_str("stock")

enum { LEVELS = 2 };
static const char *const levels[LEVELS] = {"READ COMMITTED", "REPEATABLE READ"};

static struct site site;

static void set_up(void)
{
    open_site(&site, getenv("SHED_TEST_MYSQL"));
    load_sql(&site, FENCE_SQL);
    run_sql(&site, "CREATE TABLE shelf (id INT PRIMARY KEY, pieces INT) "
                   "ENGINE = InnoDB");
    run_sql(&site, "INSERT INTO shelf VALUES (1, 10), (2, 20)");
}

static void tear_down(void)
{
    close_site(&site);
}

static MYSQL *join(const char *level)
{
    MYSQL *mysql = join_program(&site);
    char sql[TEXT_BYTES];

    snprintf(sql, sizeof(sql), "SET SESSION TRANSACTION ISOLATION LEVEL %s",
             level);
    say(mysql, sql);
    return mysql;
}

static struct shed_fence token(uint64_t number, unsigned char owner)
{
    struct shed_fence fence = {.number = number};

    memset(fence.owner, owner, sizeof(fence.owner));
    return fence;
}

/* Owners of different numbers differ. */
static enum shed_code guard(MYSQL *mysql, struct shed_bytes resource,
                            uint64_t number, struct shed_error *err)
{
    struct shed_fence fence = token(number, (unsigned char)number);

    return shed_mysql_fence(mysql, resource, &fence, NULL, err);
}

/* Run the guard in a transaction of its own, and commit if it accepts. */
static enum shed_code transact_as(MYSQL *mysql, uint64_t number,
                                  unsigned char owner, uint64_t *newest)
{
    struct shed_fence fence = token(number, owner);
    enum shed_code code;

    say(mysql, "BEGIN");
    code = shed_mysql_fence(mysql, STOCK, &fence, newest, NULL);
    say(mysql, code == SHED_OK ? "COMMIT" : "ROLLBACK");
    return code;
}

static enum shed_code transact(MYSQL *mysql, uint64_t number)
{
    return transact_as(mysql, number, (unsigned char)number, NULL);
}

/* Expect a refusal whose reason contains these words. */
static void assert_refused(MYSQL *mysql, uint64_t number, enum shed_code code,
                           const char *words)
{
    struct shed_error err = {0};

    EXPECT_CODE(guard(mysql, STOCK, number, &err), code);
    EXPECT_CODE(err.code, code);
    ck_assert_msg(strstr(err.reason, words) != NULL, "%s", err.reason);
}

static unsigned long count_tokens(void)
{
    return ask_sql(&site, "SELECT COUNT(*) FROM snowshed_fence");
}

/* ----------------------------------------------------- what it is given */

TEST_EACH(only_what_is_not_older_is_accepted, 0, LEVELS)
{
    static const struct {
        uint64_t number;
        unsigned char owner;
        enum shed_code code;
    } steps[] = {{7, 'a', SHED_OK},
                 {7, 'a', SHED_OK},
                 {7, 'b', SHED_ELOST},
                 {6, 'a', SHED_ELOST},
                 {9000000000000000000U, 'b', SHED_OK},
                 {8, 'a', SHED_ELOST},
                 {INT64_MAX, 'a', SHED_OK},
                 {(uint64_t)INT64_MAX + 1, 'a', SHED_OK},
                 {INT64_MAX, 'a', SHED_ELOST},
                 {UINT64_MAX, 'a', SHED_OK},
                 {UINT64_MAX - 1, 'a', SHED_ELOST},
                 {UINT64_MAX, 'a', SHED_OK}};
    MYSQL *mysql = join(levels[_i]);
    uint64_t greatest = 0, newest;

    for (size_t i = 0; i < COUNT_OF(steps); i++) {
        EXPECT_CODE(
            transact_as(mysql, steps[i].number, steps[i].owner, &newest),
            steps[i].code);
        if (steps[i].code == SHED_OK)
            greatest = steps[i].number;
        ck_assert_uint_eq(newest, greatest);
    }
    /* the connection is as it was */
    say(mysql, "DO 1");
    mysql_close(mysql);
}

TEST(what_is_none_is_refused)
{
    static char name[256];
    MYSQL *mysql = join(levels[0]);
    const struct shed_fence fence = token(5, 'a'), none = token(0, 'a');
    const struct {
        MYSQL *mysql;
        struct shed_bytes resource;
        const struct shed_fence *fence;
    } calls[] = {{NULL, STOCK, &fence},        {mysql, {NULL, 5}, &fence},
                 {mysql, STOCK, NULL},         {mysql, STOCK, &none},
                 {mysql, {name, 256}, &fence}, {mysql, {name, 0}, &fence}};

    say(mysql, "BEGIN");
    for (size_t i = 0; i < COUNT_OF(calls); i++) {
        uint64_t newest = 1;
        EXPECT_CODE(shed_mysql_fence(calls[i].mysql, calls[i].resource,
                                     calls[i].fence, &newest, NULL),
                    SHED_EINVAL);
        ck_assert_uint_eq(newest, 0);
    }
    ck_assert_uint_eq(count_tokens(), 0);
    mysql_close(mysql);
}

/* Each has numbers of its own. */
TEST(resources_are_bytes)
{
    static char name[255];
    static const struct shed_bytes names[] = {
        {"\xff\xfe", 2},     {"a", 1},        {"A", 1},
        {"a\0", 2},          {"a ", 2},       {"\0", 1},
        {"\0'", 2},          {"\xe2\x82", 2}, {"'\\\"?", 4},
        {name, sizeof(name)}};
    MYSQL *mysql = join(levels[0]);

    memset(name, 'n', sizeof(name));
    /* with these, text is converted */
    say(mysql, "SET character_set_client = latin1, character_set_connection = "
               "utf8mb4");
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        say(mysql, "BEGIN");
        EXPECT_OK(guard(mysql, names[i], COUNT_OF(names) - i, NULL));
        say(mysql, "COMMIT");
    }
    ck_assert_uint_eq(count_tokens(), COUNT_OF(names));
    ck_assert_uint_eq(ask_sql(&site, "SELECT number FROM snowshed_fence WHERE "
                                     "resource = X'FFFE'"),
                      COUNT_OF(names));
    mysql_close(mysql);
}

/* ---------------------------------------------------------- transactions */

TEST_EACH(a_rollback_takes_it_back, 0, LEVELS)
{
    MYSQL *mysql = join(levels[_i]);

    EXPECT_OK(transact(mysql, 5));
    say(mysql, "BEGIN");
    EXPECT_OK(guard(mysql, STOCK, 8, NULL));
    say(mysql, "ROLLBACK");
    EXPECT_OK(transact(mysql, 6));
    mysql_close(mysql);
}

TEST(outside_of_a_transaction_it_refuses)
{
    MYSQL *mysql = join(levels[0]);
    shed_mysql_flag on = 1;

    EXPECT_CODE(guard(mysql, STOCK, 5, NULL), SHED_EINVAL);
    ck_assert_uint_eq(count_tokens(), 0);
    say(mysql, "SET autocommit = 0");
    EXPECT_OK(guard(mysql, STOCK, 5, NULL));
    say(mysql, "COMMIT");
    ck_assert_int_eq(mysql_options(mysql, MYSQL_OPT_RECONNECT, &on), 0);
    EXPECT_CODE(guard(mysql, STOCK, 6, NULL), SHED_EINVAL);
    mysql_close(mysql);
}

/* The snapshot does not hide later writes. */
TEST(an_old_snapshot_is_told_the_newest)
{
    MYSQL *old = join(levels[1]), *young = join(levels[1]);
    struct shed_fence fence = token(5, 5);
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

/* --------------------------------------------------------------- conflicts */

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

/* Begin, and return when it waits for a lock in the server. Frequent reads of
 * this table are answered from a copy: InnoDB makes a new one only after 100 ms
 * without a read. */
static void begin_wait(struct waiter *w)
{
    const struct timespec pause = {.tv_nsec = 110000000};
    uint64_t deadline_ms = test_deadline_ms();

    start_thread(&w->thread, run_waiter, w);
    while (ask_sql(&site, "SELECT COUNT(*) FROM lock_waits WHERE id = %lu",
                   mysql_thread_id(w->mysql)) == 0) {
        ck_assert_msg(shed_now_ms() < deadline_ms, "the guard does not wait");
        (void)nanosleep(&pause, NULL);
    }
}

static void end_wait(struct waiter *w)
{
    ck_assert_int_eq(pthread_join(w->thread, NULL), 0);
}

static const struct {
    uint64_t holder, waiter;
    const char *end; /* of the holder */
    enum shed_code code;
    unsigned long pieces; /* that the waiter reads */
} waits[] = {{5, 6, "COMMIT", SHED_OK, 9},
             {9, 8, "COMMIT", SHED_ELOST, 9},
             {6, 5, "ROLLBACK", SHED_OK, 10}};

/* Others wait for a holder that was accepted and has not committed yet, also
 * where its guard has just made the row. The guard comes first in its
 * transaction: later reads, even without a lock, include everything that was
 * written under older tokens. */
TEST_EACH(others_wait_for_an_accepted_holder, 0, 2 * LEVELS * COUNT_OF(waits))
{
    const char *level = levels[_i % LEVELS];
    bool has_row = _i / LEVELS % 2 == 1;
    size_t i = (size_t)_i / (2 * LEVELS);
    MYSQL *first = join(level), *second = join(level);
    struct waiter w = {
        .mysql = second, .resource = "stock", .number = waits[i].waiter};

    if (has_row)
        EXPECT_OK(transact(first, 3));
    say(first, "BEGIN");
    EXPECT_OK(guard(first, STOCK, waits[i].holder, NULL));
    say(second, "BEGIN");
    begin_wait(&w);
    say(first, "UPDATE shelf SET pieces = 9 WHERE id = 1");
    say(first, waits[i].end);
    end_wait(&w);
    EXPECT_CODE(w.code, waits[i].code);
    ck_assert_uint_eq(ask(second, "SELECT pieces FROM shelf WHERE id = 1"),
                      waits[i].pieces);
    mysql_close(first);
    mysql_close(second);
}

TEST(a_lock_wait_that_is_too_long_is_to_be_repeated)
{
    MYSQL *first = join(levels[0]), *second = join(levels[0]);

    EXPECT_OK(transact(first, 3));
    say(second, "SET innodb_lock_wait_timeout = 1");
    say(first, "BEGIN");
    EXPECT_OK(guard(first, STOCK, 5, NULL));
    say(second, "BEGIN");
    assert_refused(second, 6, SHED_ETIMEDOUT, "repeat");
    say(second, "ROLLBACK");
    say(first, "COMMIT");
    EXPECT_OK(transact(second, 6));
    mysql_close(first);
    mysql_close(second);
}

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

/* The server has rolled it back; every further write would be committed at
 * once. */
TEST_EACH(a_deadlock_wants_the_whole_transaction_again, 0, LEVELS)
{
    MYSQL *first = join(levels[_i]), *second = join(levels[_i]), *loser;
    struct shed_error err;

    loser = deadlock(first, second, &err);
    EXPECT_CODE(err.code, SHED_ETIMEDOUT);
    ck_assert_msg(strstr(err.reason, "roll back and repeat") != NULL &&
                      strstr(err.reason, "1213") != NULL,
                  "%s", err.reason);
    assert_refused(loser, 8, SHED_EINVAL, "transaction");
    say(loser, "ROLLBACK");
    EXPECT_OK(transact(loser, 9));
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
    /* and a second result */
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
    say(mysql, "BEGIN");
    assert_refused(mysql, 6, SHED_ESOURCE, "sql/fence.sql");
    say(mysql, "ROLLBACK");
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

/* ------------------------------------------------------------- the table */

static const struct {
    const char *number, *owner, *engine;
    uint64_t token;
    enum shed_code code;
    const char *words;
} tables[] = {
    {"TINYINT", "BINARY(16)", "InnoDB", 300, SHED_ESOURCE, "sql/fence.sql"},
    {"BIGINT", "BINARY(8)", "InnoDB", 5, SHED_ESOURCE, "sql/fence.sql"},
    {"BIGINT", "BINARY(16)", "MyISAM", 5, SHED_EINVAL, "InnoDB"}};

/* It would cut numbers or owners, or has no transactions. With autocommit off,
 * a transaction begins with its first table. */
TEST_EACH(a_table_that_keeps_no_promise_is_refused, 0, COUNT_OF(tables))
{
    MYSQL *mysql = join(levels[0]);

    run_sql(&site, "DROP TABLE snowshed_fence");
    run_sql(&site,
            "CREATE TABLE snowshed_fence (resource VARBINARY(255) PRIMARY KEY, "
            "number %s UNSIGNED, owner %s) ENGINE = %s",
            tables[_i].number, tables[_i].owner, tables[_i].engine);
    say(mysql, "SET SESSION sql_mode = '', autocommit = 0");
    /* MySQL begins a transaction for its binary log, too, and shows only that
     * there is one */
    if (is_mariadb(&site) || tables[_i].code != SHED_EINVAL ||
        ask_sql(&site, "SELECT @@log_bin") == 0)
        assert_refused(mysql, tables[_i].token, tables[_i].code,
                       tables[_i].words);
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
    code = guard(mysql, STOCK, number, NULL);
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

    run_sql(&site, "CREATE TABLE written ("
                   "id BIGINT PRIMARY KEY AUTO_INCREMENT,"
                   "number BIGINT UNSIGNED NOT NULL) ENGINE = InnoDB");
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
