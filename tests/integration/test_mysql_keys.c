/* Unexpected keys, with a real server: they do not make it read a whole table,
 * and one of them does not fail other keys. Needs SHED_TEST_MYSQL. */
#include <stdio.h>
#include <string.h>

#include "support/mysql_testing.h"

static struct site site;

static void set_up(void)
{
    open_site(&site, getenv("SHED_TEST_MYSQL"));
}

static void tear_down(void)
{
    close_site(&site);
}

enum { MANY = 100 };

/* One loader, so that there is one connection, and batches of MANY. */
static struct shed_source *open_by(const char *query)
{
    return OPEN_WITH(&site, query, .max_loads = 1, .max_batch = MANY);
}

/* Load a key whose value is a number about the session. */
static unsigned long load_number(struct shed_source *source, const char *key)
{
    char text[32] = "";
    struct ask ask;

    load_key(source, &ask, key);
    ck_assert_msg(ask.loaded.value != NULL, "%s", ask.loaded.error.reason);
    ck_assert_int_eq(ask.loaded.value->kind, SHED_KIND_ROW);
    ck_assert_uint_lt(ask.loaded.value->size, sizeof(text));
    memcpy(text, ask.loaded.value->data, ask.loaded.value->size);
    shed_value_unref(ask.loaded.value);
    return strtoul(text, NULL, 10);
}

/* A query of table t whose value is a number about the session. */
static const char *number_query(const char *number)
{
    static char query[2 * TEXT_BYTES];

    snprintf(query, sizeof(query), "SELECT k, %s FROM t WHERE k IN (?)",
             number);
    return query;
}

/* ------------------------------------------------------- rows that are read */

enum { ROWS = 20000, HOSTILE = 8 };

static const struct {
    const char *type, *row; /* row: for the number n */
    const char *key;        /* a key that has a row */
    const char *hostile[HOSTILE];
} tables[] = {
    {"INT",
     "n",
     "42",
     {"99999999999999999999", "18446744073709551615", "99999999999", "-1",
      "042", "x", "1e3", "42.0"}},
    {"TINYINT UNSIGNED",
     "n MOD 256",
     "42",
     {"99999999999999999999", "256", "-1", "-9223372036854775808"}},
    {"BIGINT",
     "n",
     "42",
     {"99999999999999999999", "18446744073709551615", "-1"}},
    {"DECIMAL(10,0)",
     "n",
     "42",
     {"99999999999999999999", "18446744073709551615", "10000000000", "-1"}},
    {"DATE",
     "DATE_ADD('2000-01-01', INTERVAL n DAY)",
     "2000-02-01",
     {"abc", "99999999999999999999", "", "2000-2-1", "2000-02-30", "2000-99-99",
      "0000-00-00", "\xff\xfe"}},
    {"DATETIME(3)",
     "DATE_ADD('2000-01-01', INTERVAL n SECOND)",
     "2000-01-01 00:00:42.000",
     {"abc", "99999999999999999999", "2000-01-01", "2000-01-01 00:00:42",
      "2000-01-01 00:00:99.000"}},
    {"VARCHAR(20) COLLATE utf8mb4_bin",
     "n",
     "42",
     {"99999999999999999999", "\xff\xfe", "\xf0\x9f\x8f\x94", "042",
      "0123456789012345678901234567890123456789"}},
};

/* Checked by the server's own numbers: comparing a key of twenty digits would
 * read every row. */
TEST_EACH(keys_that_no_row_has_read_no_table, 0, COUNT_OF(tables))
{
    struct shed_source *source;
    struct ask asks[HOSTILE + 1];
    const char *keys[HOSTILE + 1];
    unsigned long before;
    size_t count = 0;

    make_numbers(&site, ROWS);
    run_sql(&site, "CREATE TABLE t (k %s, KEY (k))", tables[_i].type);
    run_sql(&site, "INSERT INTO t SELECT DISTINCT %s FROM num", tables[_i].row);
    run_sql(&site, "INSERT INTO t SELECT NULL FROM num");
    source = open_by(number_query(session_sum(&site, "Handler_read%")));
    keys[count++] = tables[_i].key;
    for (size_t i = 0; i < HOSTILE && tables[_i].hostile[i] != NULL; i++)
        if (tables[_i].hostile[i][0] != '\0')
            keys[count++] = tables[_i].hostile[i];
    before = load_number(source, tables[_i].key);
    load_keys(source, asks, keys, count);
    assert_kind(&asks[0], SHED_KIND_ROW);
    for (size_t i = 1; i < count; i++)
        assert_kind(&asks[i], SHED_KIND_ABSENT);
    load_keys(source, asks, keys + 1, count - 1);
    for (size_t i = 0; i < count - 1; i++)
        assert_kind(&asks[i], SHED_KIND_ABSENT);
    ck_assert_uint_lt(load_number(source, tables[_i].key) - before, ROWS / 2);
    shed_source_close(source);
}

static const struct {
    const char *type;
    const char *row; /* a value of the type, as SQL and without its quotes */
    bool is_for_keys;
} types[] = {
    {"INT", "42", true},
    {"BIGINT UNSIGNED", "42", true},
    {"DECIMAL(20,0)", "42", true},
    {"DECIMAL(30,0)", "123456789012345678901234567890", true},
    {"VARCHAR(9)", "42", true},
    {"CHAR(9)", "42", true},
    {"VARBINARY(9)", "42", true},
    {"TEXT", "42", true},
    {"ENUM('41', '42')", "42", true},
    {"DATE", "2042-01-01", true},
    {"DATETIME", "2042-01-01 00:00:00", true},
    {"DECIMAL(10,2)", "42", false},
    {"FLOAT", "42", false},
    {"DOUBLE", "42", false},
    {"TIMESTAMP NULL", "2030-01-01 00:00:00", false},
    {"TIME", "00:00:42", false},
    {"YEAR", "2042", false},
    {"BIT(8)", "4", false},
};

TEST_EACH(the_type_of_the_column_says_what_its_keys_are, 0, COUNT_OF(types))
{
    struct shed_source *source;
    unsigned long id;
    struct ask ask;

    run_sql(&site, "CREATE TABLE t (k %s)", types[_i].type);
    run_sql(&site, "INSERT INTO t VALUES ('%s')", types[_i].row);
    source = open_by("SELECT k, 'row' FROM t WHERE k IN (?)");
    load_key(source, &ask, types[_i].row);
    id = only_connection(&site);
    if (types[_i].is_for_keys)
        assert_text(&ask, "row");
    else
        assert_failure(&ask, "its type suits no key");
    /* a type that suits no key must not cause a connection for each load */
    load_key(source, &ask, types[_i].row);
    ck_assert_uint_eq(only_connection(&site), id);
    shed_value_unref(ask.loaded.value);
    shed_source_close(source);
}

static const struct {
    const char *type;
    const char *least, *greatest, *below, *above;
} ends[] = {
    {"TINYINT", "-128", "127", "-129", "128"},
    {"TINYINT UNSIGNED", "0", "255", "-1", "256"},
    {"SMALLINT", "-32768", "32767", "-32769", "32768"},
    {"MEDIUMINT", "-8388608", "8388607", "-8388609", "8388608"},
    {"MEDIUMINT UNSIGNED", "0", "16777215", "-1", "16777216"},
    {"INT", "-2147483648", "2147483647", "-2147483649", "2147483648"},
    {"INT UNSIGNED", "0", "4294967295", "-1", "4294967296"},
    {"INT ZEROFILL", "0", "4294967295", "-1", "4294967296"},
    {"BIGINT", "-9223372036854775808", "9223372036854775807",
     "-9223372036854775809", "9223372036854775808"},
    {"BIGINT UNSIGNED", "0", "18446744073709551615", "-1",
     "18446744073709551616"},
    {"DECIMAL(3,0)", "-999", "999", "-1000", "1000"},
    {"DECIMAL(3,0) UNSIGNED", "0", "999", "-1", "1000"},
    {"DECIMAL(5,0) ZEROFILL", "7", "99999", "-1", "100000"},
};

TEST_EACH(the_ends_of_an_integer_type_are_found_and_nothing_beyond, 0,
          COUNT_OF(ends))
{
    const char *keys[] = {ends[_i].least, ends[_i].greatest, ends[_i].below,
                          ends[_i].above};
    struct shed_source *source;
    struct ask asks[4];

    run_sql(&site, "CREATE TABLE t (k %s PRIMARY KEY)", ends[_i].type);
    run_sql(&site, "INSERT INTO t VALUES (%s), (%s)", ends[_i].least,
            ends[_i].greatest);
    source = open_by("SELECT k, 'row' FROM t WHERE k IN (?)");
    load_keys(source, asks, keys, 4);
    assert_text(&asks[0], "row");
    assert_text(&asks[1], "row");
    assert_kind(&asks[2], SHED_KIND_ABSENT);
    assert_kind(&asks[3], SHED_KIND_ABSENT);
    shed_source_close(source);
}

/* A key that did not fit before the table was altered is not absent. */
TEST_EACH(a_column_that_has_grown_has_new_keys, 0, 2)
{
    static const char *const keys[] = {"5", "3000000000"};
    struct shed_source *source;
    struct ask asks[2];

    run_sql(&site, "CREATE TABLE t (k INT PRIMARY KEY)");
    run_sql(&site, "INSERT INTO t VALUES (5)");
    source = open_by("SELECT k, 'row' FROM t WHERE k IN (?)");
    load_keys(source, asks, keys, 2);
    assert_text(&asks[0], "row");
    assert_kind(&asks[1], SHED_KIND_ABSENT);
    run_sql(&site, "ALTER TABLE t MODIFY k BIGINT");
    run_sql(&site, "INSERT INTO t VALUES (3000000000)");
    /* alone, or with others */
    load_keys(source, asks, keys + _i, 2 - (size_t)_i);
    for (size_t i = 0; i < 2 - (size_t)_i; i++)
        assert_text(&asks[i], "row");
    shed_source_close(source);
}

TEST(a_column_that_has_become_a_number_is_asked_for_numbers)
{
    struct shed_source *source;
    struct ask ask;

    run_sql(&site, "CREATE TABLE t (k VARCHAR(20) PRIMARY KEY)");
    run_sql(&site, "INSERT INTO t VALUES ('5')");
    source = open_by("SELECT k, 'row' FROM t WHERE k IN (?)");
    expect_loaded(source, "5", "row");
    run_sql(&site, "ALTER TABLE t MODIFY k INT");
    expect_loaded(source, "5", "row");
    load_key(source, &ask, "05");
    assert_kind(&ask, SHED_KIND_ABSENT);
    shed_source_close(source);
}

TEST(a_query_that_has_another_column_now_is_prepared_again)
{
    struct shed_source *source;

    run_sql(&site, "CREATE TABLE t (k INT PRIMARY KEY, v INT)");
    run_sql(&site, "INSERT INTO t VALUES (5, 1)");
    source = open_by("SELECT * FROM t WHERE k IN (?)");
    expect_loaded(source, "5", "1");
    run_sql(&site, "ALTER TABLE t ADD version INT");
    expect_loaded(source, "5", "1");
    shed_source_close(source);
}

/* ----------------------------------------------------------------- odd keys */

#define NO_LATIN1 "\xd0\xb6" /* a letter that is not in latin1 */

static char names[MANY][32];
static const char *keys[MANY];

/* Make keys of the form "wordN", of which those with N below rows have a
 * row. */
static void make_keys(size_t count)
{
    for (size_t i = 0; i < count; i++) {
        snprintf(names[i], sizeof(names[i]), "word%zu", i);
        keys[i] = names[i];
    }
}

static void make_latin1(unsigned rows)
{
    make_numbers(&site, rows);
    run_sql(&site, "CREATE TABLE t (k VARCHAR(20) CHARACTER SET latin1 COLLATE "
                   "latin1_bin PRIMARY KEY)");
    run_sql(&site, "INSERT INTO t SELECT CONCAT('word', n) FROM num");
}

/* Load the first keys as one batch. there: a key that has a row. Returns: how
 * many queries that took. */
static unsigned long load_counted(const char *there, struct ask *asks,
                                  size_t count)
{
    struct shed_source *source =
        open_by(number_query(session_count(&site, "Execute")));
    unsigned long before = load_number(source, there), id, queries;

    id = only_connection(&site);
    load_keys(source, asks, keys, count);
    queries = load_number(source, there) - before;
    ck_assert_uint_eq(only_connection(&site), id);
    shed_source_close(source);
    return queries;
}

enum { ODD_PLACES = 21 };

TEST_EACH(a_key_that_the_column_cannot_hold_fails_alone, 0, ODD_PLACES)
{
    enum { KEYS = 21, ROWS_THERE = 15, LOG = 5 };
    struct ask asks[KEYS];

    make_latin1(ROWS_THERE);
    make_keys(KEYS);
    keys[_i] = NO_LATIN1;
    ck_assert_uint_le(load_counted("word14", asks, KEYS), 2 + 2 * LOG);
    for (int i = 0; i < KEYS; i++) {
        if (i == _i)
            assert_failure(&asks[i], "MySQL: ");
        else
            assert_kind(&asks[i],
                        i < ROWS_THERE ? SHED_KIND_ROW : SHED_KIND_ABSENT);
    }
}

TEST(many_odd_keys_do_not_multiply_the_queries)
{
    enum {
        ODD = 3,
        LOG = 7
    }; /* every third key; two to the seventh is more than 100 */
    static struct ask asks[MANY];

    make_latin1(MANY);
    make_keys(MANY);
    for (size_t i = 0; i < MANY; i += ODD)
        snprintf(names[i], sizeof(names[i]), NO_LATIN1 "%zu", i);
    ck_assert_uint_le(load_counted("word1", asks, MANY), 2 + 6 * LOG);
    for (size_t i = 0; i < MANY; i++) {
        if (asks[i].loaded.value != NULL && i % ODD != 0)
            assert_kind(&asks[i], SHED_KIND_ROW);
        else
            assert_failure(&asks[i], "MySQL: ");
    }
}

/* The other keys' rows have been sent when the error comes. */
TEST(a_key_whose_row_cannot_be_made_fails_alone)
{
    enum { KEYS = 10, WITHOUT = 6 };
    struct ask asks[KEYS];
    struct shed_source *source;

    make_latin1(KEYS);
    make_keys(KEYS);
    run_sql(&site, "CREATE TABLE twice (k VARCHAR(20), v TEXT)");
    run_sql(&site, "INSERT INTO twice SELECT CONCAT('word', n), n FROM num");
    run_sql(&site, "INSERT INTO twice VALUES ('word%d', 'x')", WITHOUT);
    source = open_by("SELECT k, (SELECT v FROM twice WHERE twice.k = t.k) FROM "
                     "t WHERE k IN (?)");
    load_keys(source, asks, keys, KEYS);
    for (int i = 0; i < KEYS; i++) {
        if (i == WITHOUT)
            assert_failure(&asks[i], "(1242)");
        else
            assert_text(&asks[i], keys[i] + strlen("word"));
    }
    shed_source_close(source);
}

static void make_careless(void)
{
    run_sql(&site, "CREATE TABLE t (k VARCHAR(20) COLLATE utf8mb4_general_ci "
                   "PRIMARY KEY)");
    run_sql(&site, "INSERT INTO t SELECT CONCAT('WORD', n) FROM num");
    run_sql(&site, "INSERT INTO t VALUES ('counter')");
}

TEST(a_key_that_only_the_collation_finds_fails_alone)
{
    enum { KEYS = 20, LOG = 5 };
    struct ask asks[KEYS];

    make_numbers(&site, 1);
    make_careless();
    make_keys(KEYS);
    keys[KEYS - 1] = "counter";
    ck_assert_uint_le(load_counted("counter", asks, KEYS), 2 + 2 * LOG);
    assert_failure(&asks[0], "collation");
    for (int i = 1; i < KEYS - 1; i++)
        assert_kind(&asks[i], SHED_KIND_ABSENT);
    assert_kind(&asks[KEYS - 1], SHED_KIND_ROW);
}

TEST(many_that_only_the_collation_finds_do_not_multiply_the_queries)
{
    enum { LOG = 7 };
    static struct ask asks[MANY];

    make_numbers(&site, MANY);
    make_careless();
    make_keys(MANY);
    ck_assert_uint_le(load_counted("counter", asks, MANY), 2 + 6 * LOG);
    for (size_t i = 0; i < MANY; i++)
        assert_failure(&asks[i], "collation");
}

int main(void)
{
    tcase_add_checked_fixture(test_case(), set_up, tear_down);
    return run_tests("mysql_keys");
}
