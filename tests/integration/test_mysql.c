/* The MySQL source with a real server: SHED_TEST_MYSQL is its URI. */
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "entry/entry.h"
#include "mysql/connection.h"
#include "support/mysql_testing.h"

static struct site site;

static void set_up(void)
{
    open_site(&site, getenv("SHED_TEST_MYSQL"));
    run_sql(&site, "CREATE TABLE item (id BIGINT PRIMARY KEY, v LONGBLOB)");
    run_sql(&site, "INSERT INTO item VALUES (42, 'answer'), (-7, 'minus'), "
                   "(1, NULL), (2, ''), (3, 'c')");
    make_words(&site);
}

static void tear_down(void)
{
    close_site(&site);
}

#define ITEM "SELECT id, v FROM item WHERE id IN (?)"
#define WORD "SELECT k, v FROM word WHERE k IN (?)"

/* Load keys as one batch, and close their source. */
static void load_by(struct shed_source *source, struct ask *asks,
                    const char *const *keys, size_t count)
{
    load_keys(source, asks, keys, count);
    shed_source_close(source);
}

/* A key, and what a load brings for it. */
struct wanted {
    const char *key;
    const char *text; /* of the row; NULL: there is none */
    const char *why;  /* in the reason of the failure; NULL: it is none */
    bool is_null;
};

/* Load the keys as one batch, of which the last is NULL, and close the source.
 */
static void check_load(struct shed_source *source, const struct wanted *wanted)
{
    enum { MOST = 5 };
    const char *keys[MOST] = {NULL};
    struct ask asks[MOST];
    size_t count = 0;

    for (; wanted[count].key != NULL; count++)
        keys[count] = wanted[count].key;
    load_by(source, asks, keys, count);
    for (size_t i = 0; i < count; i++)
        if (wanted[i].why != NULL)
            assert_failure(&asks[i], wanted[i].why);
        else if (wanted[i].text != NULL)
            assert_text(&asks[i], wanted[i].text);
        else
            assert_kind(&asks[i],
                        wanted[i].is_null ? SHED_KIND_NULL : SHED_KIND_ABSENT);
}

#define ROW(k, t)                                                              \
    {                                                                          \
        .key = (k), .text = (t)                                                \
    }
#define ABSENT(k)                                                              \
    {                                                                          \
        .key = (k)                                                             \
    }
#define FAILS(k, reason)                                                       \
    {                                                                          \
        .key = (k), .why = (reason)                                            \
    }
#define CHECK_OF(source, ...)                                                  \
    check_load(source, (const struct wanted[]){__VA_ARGS__, {.key = NULL}})
#define CHECK_LOAD(query, ...)                                                 \
    CHECK_OF(open_source(&site, query, NULL), __VA_ARGS__)

/* ------------------------------------------------------------------- keys */

TEST(integer_keys_find_their_rows)
{
    CHECK_LOAD(ITEM, ROW("42", "answer"), ROW("-7", "minus"), ROW("3", "c"));
}

TEST(string_keys_find_their_rows)
{
    CHECK_LOAD(WORD, ROW("a", "A"), ROW("b", "B"), ABSENT("c"),
               ABSENT("x') OR ('1'='1"));
}

TEST(keys_are_any_bytes_where_the_column_is)
{
    static const char key[] = "\0\xff\x80'\\\n";
    struct shed_source *source;
    struct ask ask, other;

    run_sql(&site, "CREATE TABLE raw (k VARBINARY(20) PRIMARY KEY, v BLOB)");
    run_sql(&site, "INSERT INTO raw VALUES (x'00ff80275c0a', x'fe00')");
    source = open_source(&site, "SELECT k, v FROM raw WHERE k IN (?)", NULL);
    begin_ask(source, &ask, key, sizeof(key) - 1);
    begin_ask(source, &other, key, sizeof(key) - 2);
    end_ask(&ask);
    end_ask(&other);
    shed_source_close(source);
    assert_row(&ask, "\xfe\0", 2);
    assert_kind(&other, SHED_KIND_ABSENT);
}

TEST(characters_of_four_bytes_come_through)
{
    run_sql(&site, "INSERT INTO word VALUES (x'f09f8f94', x'f09f9a82')");
    CHECK_LOAD(WORD, ROW("\xf0\x9f\x8f\x94", "\xf0\x9f\x9a\x82"));
}

TEST(a_key_given_twice_is_answered_twice)
{
    CHECK_LOAD(WORD, ROW("b", "B"), ROW("a", "A"), ROW("b", "B"), ABSENT("c"),
               ABSENT("c"));
}

TEST(a_key_with_two_rows_fails)
{
    run_sql(&site, "CREATE TABLE twice (k VARCHAR(9), v TEXT)");
    run_sql(&site, "INSERT INTO twice VALUES ('a', 1), ('b', 2), ('a', 3)");
    CHECK_LOAD("SELECT k, v FROM twice WHERE k IN (?)",
               FAILS("a", "more than one row"), ROW("b", "2"));
}

TEST(batches_of_every_size_are_answered)
{
    enum { MOST = 300 };
    static struct ask asks[MOST];
    static char names[MOST][8];
    static const char *keys[MOST];
    char query[2 * TEXT_BYTES];
    struct shed_source *source;

    make_numbers(&site, MOST);
    run_sql(&site, "DELETE FROM item");
    run_sql(&site, "INSERT INTO item SELECT n, n FROM num");
    snprintf(query, sizeof(query), ITEM " UNION ALL SELECT -1, %s",
             session_count(&site, "Prepare"));
    source = OPEN_WITH(&site, query, .max_loads = 1, .max_batch = MOST);
    for (size_t i = 0; i < MOST; i++) {
        snprintf(names[i], sizeof(names[i]), "%zu", i);
        keys[i] = names[i];
    }
    for (size_t count = 1; count <= MOST; count++) {
        load_keys(source, asks, keys, count);
        for (size_t i = 0; i < count; i++)
            assert_text(&asks[i], keys[i]);
    }
    /* One statement for 1, 2, 4 ... 256, and one for 300. */
    load_key(source, &asks[0], "-1");
    assert_text(&asks[0], "10");
    ck_assert_uint_eq(count_connections(&site), 1);
    shed_source_close(source);
}

/* ----------------------------------------------------------------- values */

TEST(a_null_is_not_an_empty_row_and_not_an_absent_one)
{
    CHECK_LOAD(ITEM, {.key = "1", .is_null = true}, ROW("2", ""), ABSENT("4"));
}

TEST(values_come_whole_up_to_the_limit)
{
    static const size_t sizes[] = {1, 4095, 4096, 4097, 1048575, 1048576};
    struct shed_source *source = open_source(&site, ITEM, NULL);
    char *expected = malloc(sizes[5]);
    struct ask ask;

    ck_assert_ptr_nonnull(expected);
    for (size_t i = 0; i < sizes[5]; i++)
        expected[i] = "abcdefg"[i % 7];
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        run_sql(&site,
                "UPDATE item SET v = RPAD('', %zu, 'abcdefg') WHERE id = 3",
                sizes[i]);
        load_key(source, &ask, "3");
        assert_row(&ask, expected, sizes[i]);
    }
    shed_source_close(source);
    free(expected);
}

TEST(a_value_over_the_limit_is_too_big_for_its_key_alone)
{
    static const char *const keys[] = {"42", "3"};
    struct ask asks[2];

    run_sql(&site, "UPDATE item SET v = REPEAT('x', 1048577) WHERE id = 42");
    load_by(open_source(&site, ITEM, NULL), asks, keys, 2);
    ck_assert_ptr_null(asks[0].loaded.value);
    EXPECT_CODE(asks[0].loaded.error.code, SHED_ETOOBIG);
    ck_assert_str_eq(asks[0].loaded.error.reason,
                     "MySQL: the value has 1048577 bytes, value_limit_bytes is "
                     "1048576");
    assert_text(&asks[1], "c");
}

TEST(a_value_of_any_type_is_its_text)
{
    CHECK_LOAD("SELECT id, CAST(12.50 AS DECIMAL(6,2)) FROM item WHERE id IN "
               "(?)",
               ROW("3", "12.50"));
    CHECK_LOAD("SELECT id, -17 FROM item WHERE id IN (?)", ROW("3", "-17"));
    CHECK_LOAD("SELECT id, 0.25e0 FROM item WHERE id IN (?)", ROW("3", "0.25"));
    CHECK_LOAD("SELECT id, TIMESTAMP'2024-02-29 01:02:03' FROM item WHERE id "
               "IN (?)",
               ROW("3", "2024-02-29 01:02:03"));
    CHECK_LOAD("SELECT id, JSON_OBJECT('a', 1) FROM item WHERE id IN (?)",
               ROW("3", "{\"a\": 1}"));
}

/* --------------------------------------------------------------- the query */

TEST(a_query_names_what_it_selects_behind_the_value)
{
    CHECK_LOAD("SELECT id FROM item WHERE id IN (?)",
               FAILS("3", "selects 1 columns, it must select the key, the"));
    CHECK_LOAD("SELECT id, v, 1 AS price FROM item WHERE id IN (?)",
               FAILS("3", "the query selects \"price\", where it may select"));
    CHECK_LOAD(
        "SELECT id, v, 1 AS version, 2 AS Version FROM item WHERE id IN (?)",
        FAILS("3", "the query selects \"Version\", where it may select"));
    CHECK_LOAD("SELECT id, v, v AS version FROM item WHERE id IN (?)",
               FAILS("3", "must be an integer"));
}

#define VERSIONED "SELECT id, v, n AS version FROM versioned WHERE id IN (?)"

static void make_versioned(const char *type, const char *rows)
{
    run_sql(&site, "CREATE TABLE versioned (id INT PRIMARY KEY, v TEXT, n %s)",
            type);
    run_sql(&site, "INSERT INTO versioned VALUES %s", rows);
}

TEST(a_column_version_is_the_rows_version)
{
    static const char *const keys[] = {"1", "2", "3"};
    struct ask asks[3];

    make_versioned("BIGINT UNSIGNED",
                   "(1, 'a', 7), (2, NULL, 18446744073709551615)");
    load_by(open_source(&site, VERSIONED, NULL), asks, keys, 3);
    ck_assert(asks[0].loaded.version.is_known);
    ck_assert_uint_eq(asks[0].loaded.version.number, 7);
    ck_assert_uint_eq(asks[1].loaded.version.number, UINT64_MAX);
    ck_assert(!asks[2].loaded.version.is_known);
    assert_text(&asks[0], "a");
    assert_kind(&asks[1], SHED_KIND_NULL);
    assert_kind(&asks[2], SHED_KIND_ABSENT);
}

TEST(a_row_of_the_old_version_is_unmodified)
{
    struct shed_source *source;
    struct ask asks[2];

    make_versioned("TINYINT UNSIGNED", "(1, 'a', 255)");
    source = open_source(&site, VERSIONED, NULL);
    for (size_t i = 0; i < 2; i++) {
        begin_ask_again(source, &asks[i], "1", 1, 254 + i);
        end_ask(&asks[i]);
        ck_assert_int_eq(asks[i].loaded.is_unmodified, i == 1);
        ck_assert_uint_eq(asks[i].loaded.version.number, 255);
    }
    assert_text(&asks[0], "a");
    assert_text(&asks[1], "");
    shed_source_close(source);
}

TEST(null_and_negative_versions_are_none)
{
    static const char *const keys[] = {"1", "2", "3"};
    struct ask asks[3];

    make_versioned("INT", "(1, 'a', NULL), (2, 'b', -1), (3, 'c', 0)");
    load_by(open_source(&site, VERSIONED, NULL), asks, keys, 3);
    ck_assert(!asks[0].loaded.version.is_known);
    ck_assert(!asks[1].loaded.version.is_known);
    ck_assert(asks[2].loaded.version.is_known);
    assert_text(&asks[0], "a");
    assert_text(&asks[1], "b");
    assert_text(&asks[2], "c");
}

/* As strtoull would, which takes " -5" for 18446744073709551611. */
TEST(a_version_that_is_a_text_must_be_digits_alone)
{
    static const char *const keys[] = {"1", "2", "3"};
    struct ask asks[3];

    make_versioned("TEXT", "(1, 'a', ' -5'), (2, 'b', '+5'), (3, 'c', '5')");
    load_by(open_source(&site, VERSIONED, NULL), asks, keys, 3);
    assert_failure(&asks[0], "must be an integer");
    assert_failure(&asks[1], "must be an integer");
    ck_assert_uint_eq(asks[2].loaded.version.number, 5);
    assert_text(&asks[2], "c");
}

#define TAGGED "SELECT id, v, n AS tags FROM versioned WHERE id IN (?)"

/* Release what a load has brought, and say whether these are its tags. */
static void expect_tags(struct ask *ask, const char *const *tags)
{
    const struct shed_loaded *l = &ask->loaded;
    const unsigned char *tag;
    size_t at = 0, size;

    while ((tag = shed_entry_next_tag(l->tags, l->tags_size, &at, &size)) !=
           NULL) {
        ck_assert_ptr_nonnull(*tags);
        ck_assert_uint_eq(size, strlen(*tags));
        ck_assert_mem_eq(tag, *tags++, size);
    }
    ck_assert_ptr_null(*tags);
    free(ask->loaded.tags);
}

TEST(a_column_tags_has_the_rows_tags)
{
    static const char *const keys[] = {"1", "2", "3", "4"};
    static const char *const two[] = {"red", "dark-blue", NULL}, *const none[] =
                                                                     {NULL};
    struct ask asks[4];

    make_versioned("TEXT", "(1, 'a', ', red, dark-blue '), (2, 'b', NULL), "
                           "(3, 'c', REPEAT('x ', 2500)), "
                           "(4, 'd', REPEAT('x', 251))");
    load_by(open_source(&site, TAGGED, NULL), asks, keys, 4);
    ck_assert(!asks[0].loaded.version.is_known);
    expect_tags(&asks[0], two);
    expect_tags(&asks[1], none);
    assert_text(&asks[0], "a");
    assert_text(&asks[1], "b");
    assert_failure(&asks[2], "more than 4096 bytes");
    assert_failure(&asks[3], "longer than 250 bytes");
    free(asks[3].loaded.tags);
}

TEST(a_query_that_writes_is_not_run)
{
    CHECK_LOAD("DELETE FROM item WHERE id IN (?)",
               FAILS("3", "selects 0 columns"));
    ck_assert_uint_eq(ask_sql(&site, "SELECT COUNT(*) FROM item"), 5);
}

TEST(the_servers_error_is_the_reason_and_passes_with_its_cause)
{
    struct shed_source *source =
        open_source(&site, "SELECT id, v FROM later WHERE id IN (?)", NULL);

    expect_unloaded(source, "3", "later' doesn't exist (1146)");
    run_sql(&site, "CREATE TABLE later AS SELECT * FROM item");
    expect_loaded(source, "3", "c");
    shed_source_close(source);
}

TEST(each_load_reads_the_present)
{
    struct shed_source *source = OPEN_WITH(&site, ITEM, .max_loads = 1);

    expect_loaded(source, "3", "c");
    run_sql(&site, "UPDATE item SET v = 'd' WHERE id = 3");
    expect_loaded(source, "3", "d");
    shed_source_close(source);
}

TEST(the_session_is_as_promised)
{
    char query[TEXT_BYTES];

    snprintf(query, sizeof(query),
             "SELECT 1, CONCAT_WS(' ', %s, @@lock_wait_timeout, "
             "@@character_set_client, @@character_set_results) FROM dual WHERE "
             "1 IN (?)",
             is_mariadb(&site) ? "ROUND(@@max_statement_time * 1000)"
                               : "@@max_execution_time");
    CHECK_OF(OPEN_WITH(&site, query, .load_timeout_ms = 12345),
             ROW("1", "12345 13 utf8mb4 utf8mb4"));
}

/* ------------------------------------------------------ what goes wrong */

TEST(a_statement_over_its_time_leaves_nothing_half_read)
{
    const char *why = is_mariadb(&site) ? "(1969)" : "(3024)";

    CHECK_OF(OPEN_WITH(&site,
                       "SELECT id, CONCAT(v, SLEEP(0.4)) FROM item WHERE "
                       "id IN (?)",
                       .load_timeout_ms = 1000),
             FAILS("42", why), FAILS("-7", why), FAILS("2", why),
             FAILS("3", why));
}

/* The rows are sent while the statement still runs, and its error comes last.
 */
TEST(rows_before_an_error_do_not_count)
{
    make_numbers(&site, 3001);
    run_sql(&site,
            "INSERT INTO item SELECT n, REPEAT('x', 1000) FROM num WHERE "
            "n >= 1000");
    CHECK_LOAD("SELECT id, IF(id < 3000, v, (SELECT v FROM item)) FROM item "
               "WHERE id IN (?) OR id >= 1000 ORDER BY id",
               FAILS("42", "(1242)"), FAILS("3", "(1242)"));
}

/* What the newest result is bound to, until its statement is closed; linked
 * with
 * --wrap=mysql_stmt_bind_result,--wrap=mysql_stmt_close,--wrap=free. */
static _Atomic(char *) bound;
static atomic_bool was_freed_early;

WRAPPED(mysql_stmt_bind_result);
WRAPPED(mysql_stmt_close);
WRAPPED(free);

shed_mysql_flag __wrap_mysql_stmt_bind_result(MYSQL_STMT *stmt,
                                              MYSQL_BIND *binds)
{
    bound = (char *)binds[0].length;
    return __real_mysql_stmt_bind_result(stmt, binds);
}

shed_mysql_flag __wrap_mysql_stmt_close(MYSQL_STMT *stmt)
{
    bound = NULL;
    return __real_mysql_stmt_close(stmt);
}

void __wrap_free(void *memory)
{
    char *start = memory, *inside = bound;

    if (inside != NULL && start != NULL && start <= inside &&
        inside < start + malloc_usable_size(memory))
        was_freed_early = true;
    __real_free(memory);
}

/* Oracle's library writes to it in the next execution, too. */
TEST(what_a_result_is_bound_to_lives_as_long_as_its_statement)
{
    struct shed_source *source = OPEN_WITH(&site, WORD, .max_loads = 1);

    was_freed_early = false;
    expect_loaded(source, "a", "A");
    ck_assert_ptr_nonnull(bound);
    expect_loaded(source, "b", "B");
    shed_source_close(source);
    ck_assert(!was_freed_early);
}

TEST(a_connection_killed_while_idle_is_opened_again)
{
    struct shed_source *source = OPEN_WITH(&site, WORD, .max_loads = 1);
    unsigned long id;

    expect_loaded(source, "a", "A");
    id = only_connection(&site);
    run_sql(&site, "KILL CONNECTION %lu", id);
    expect_loaded(source, "b", "B");
    ck_assert_uint_ne(only_connection(&site), id);
    shed_source_close(source);
}

/* Wait until a query of another connection waits for the table that the site's
 * has locked, which can read no other. Returns the waiting connection. */
static unsigned long wait_blocked(unsigned long other_than)
{
    struct site looker = site;
    unsigned long id;
    char sql[TEXT_BYTES];

    join_site(&looker);
    snprintf(sql, sizeof(sql),
             "SELECT IFNULL(MAX(id), 0) FROM sessions WHERE db = '%s' AND "
             "id <> %lu AND state = 'Waiting for table metadata lock'",
             site.database, other_than);
    WAIT_FOR((id = ask_sql(&looker, "%s", sql)) != 0);
    mysql_close(looker.admin);
    return id;
}

/* What is killed twice fails. */
TEST_EACH(a_connection_killed_in_a_query_is_tried_once_again, 1, 3)
{
    struct shed_source *source = open_source(&site, WORD, NULL);
    unsigned long id = 0;
    struct ask ask;

    run_sql(&site, "LOCK TABLES word WRITE");
    begin_ask(source, &ask, "a", 1);
    for (int i = 0; i < _i; i++) {
        id = wait_blocked(id);
        run_sql(&site, "KILL CONNECTION %lu", id);
    }
    if (_i == 2)
        end_ask(&ask);
    run_sql(&site, "UNLOCK TABLES");
    if (_i == 1)
        end_ask(&ask);
    if (_i == 1)
        assert_text(&ask, "A");
    else
        assert_failure(&ask, "MySQL: ");
    shed_source_close(source);
}

TEST(a_query_that_is_killed_fails_at_once)
{
    /* If MySQL finds the row before the query runs (by its primary key), it
     * takes a killed SLEEP for one that has ended. */
    struct shed_source *source = open_source(
        &site, "SELECT k, SLEEP(20) FROM word WHERE CONCAT(k) IN (?)", NULL);
    struct ask ask;

    begin_ask(source, &ask, "a", 1);
    wait_sleepers(&site, 1);
    run_sql(&site, "KILL QUERY %lu", only_connection(&site));
    end_ask(&ask);
    assert_failure(&ask, "(1317)");
    shed_source_close(source);
}

TEST(the_reason_of_a_refused_login_has_no_password)
{
    struct shed_source *source;
    char uri[TEXT_BYTES];
    struct ask ask;
    const char *at = strchr(site.uri, '@');

    snprintf(uri, sizeof(uri), "mysql://nobody:geheim%s",
             at != NULL ? at : "@/x?socket=/nowhere");
    EXPECT_OK(shed_mysql_source_open(uri, WORD, NULL, &source, NULL));
    do { /* on a slow machine the first pauses may be over already; they grow */
        load_key(source, &ask, "a");
        assert_failure(&ask, "(1045)");
        ck_assert_ptr_null(strstr(ask.loaded.error.reason, "geheim"));
    } while (strstr(ask.loaded.error.reason, "the next try is in") == NULL);
    shed_source_close(source);
}

TEST(no_tls_where_it_is_required_is_a_failure)
{
    struct shed_mysql_options o = SHED_MYSQL_OPTIONS_INIT;

    o.tls_ca = "/etc/ssl/certs/ca-certificates.crt";
    CHECK_OF(open_source(&site, WORD, &o), FAILS("a", "MySQL: "));
}

/* ---------------------------------------------------------- a connection */

TEST(a_connection_in_a_transaction_is_not_fit)
{
    struct shed_mysql_connection c;
    struct shed_mysql_config config;

    open_connection(&site, &c, &config);
    ck_assert(shed_mysql_connection_is_fit(&c));
    ck_assert_int_eq(mysql_query(c.mysql, "BEGIN"), 0);
    ck_assert(!shed_mysql_connection_is_fit(&c));
    ck_assert_int_eq(mysql_query(c.mysql, "ROLLBACK"), 0);
    ck_assert(shed_mysql_connection_is_fit(&c));
    ck_assert_int_eq(mysql_query(c.mysql, "SET autocommit = 0"), 0);
    ck_assert(!shed_mysql_connection_is_fit(&c));
    close_connection(&c, &config);
    ck_assert(!shed_mysql_connection_is_fit(&c));
}

TEST(a_lost_query_is_ended_over_a_new_connection)
{
    struct shed_mysql_failure failure = {.cause = SHED_MYSQL_SILENT};
    struct shed_mysql_connection c;
    struct shed_mysql_config config;

    open_connection(&site, &c, &config);
    /* Sent, and never read. */
    ck_assert_int_eq(mysql_send_query(c.mysql, "SELECT SLEEP(50)", 16), 0);
    wait_sleepers(&site, 1);
    shed_mysql_connection_abandon(&c, &failure);
    ck_assert_uint_ne(c.lost.id, 0);
    shed_mysql_connection_end_lost(&c);
    ck_assert_uint_eq(count_sleepers(&site), 0);
    ck_assert(shed_mysql_connection_is_fit(&c));
    failure = (struct shed_mysql_failure){.number = 1146}; /* an answer */
    shed_mysql_connection_abandon(&c, &failure);
    ck_assert_uint_eq(c.lost.id, 0);
    close_connection(&c, &config);
}

/* After a failover the same name leads to another server. */
TEST(a_connection_of_another_server_is_not_killed)
{
    struct shed_mysql_connection innocent, c;
    struct shed_mysql_config innocent_config, config;

    open_connection(&site, &innocent, &innocent_config);
    open_connection(&site, &c, &config);
    c.lost = innocent.place;
    snprintf(c.lost.server, sizeof(c.lost.server), "elsewhere 3306 1");
    c.lost_over_ms = shed_now_ms() + 50;
    shed_mysql_connection_end_lost(&c);
    ck_assert_uint_ge(shed_now_ms(), c.lost_over_ms);
    ck_assert_int_eq(mysql_query(innocent.mysql, "DO 1"), 0);
    close_connection(&innocent, &innocent_config);
    close_connection(&c, &config);
}

/* ---------------------------------------------------------------- the host */

TEST(closing_the_source_closes_its_connections)
{
    CHECK_LOAD(WORD, ROW("a", "A"));
    WAIT_FOR(count_connections(&site) == 0);
}

enum { READERS = 4, READS = 300 };

static void *read_often(void *arg)
{
    struct shed_source *source = arg;
    char key[16], text[16];

    for (int i = 0; i < READS; i++) {
        snprintf(key, sizeof(key), "%d", 1000 + i);
        snprintf(text, sizeof(text), "v%d", 1000 + i);
        expect_loaded(source, key, text);
    }
    return NULL;
}

TEST(many_threads_get_their_own_rows)
{
    struct shed_source *source;
    pthread_t threads[READERS];

    make_numbers(&site, 2000);
    run_sql(&site, "INSERT INTO item SELECT n, CONCAT('v', n) FROM num WHERE n "
                   ">= 1000");
    source = open_source(&site, ITEM, NULL);
    for (size_t i = 0; i < READERS; i++)
        start_thread(&threads[i], read_often, source);
    for (size_t i = 0; i < READERS; i++)
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
    ck_assert_uint_le(count_connections(&site), 4);
    shed_source_close(source);
}

int main(void)
{
    tcase_add_checked_fixture(test_case(), set_up, tear_down);
    return run_tests("mysql");
}
