/* The MySQL source without a server: queries and their "(?)", URIs, and what
 * shed_mysql_source_open refuses. */
#include <snowshed/mysql.h>

#include <string.h>

#include "mysql/connection.h"
#include "mysql/query.h"
#include "mysql/config.h"
#include "support/bare.h"
#include "support/testing.h"

/* ------------------------------------------------------------------ queries */

/* Expand text for a batch of up to room keys. Returns "" if it is refused, with
 * the reason in err. */
static const char *expand(const char *text, size_t room, struct shed_error *err)
{
    static char out[512];
    struct shed_mysql_query query;
    char *expanded;

    if (shed_mysql_query_parse(text, &query, err) != SHED_OK)
        return "";
    expanded = shed_mysql_query_expand(&query, room);
    ck_assert_ptr_nonnull(expanded);
    ck_assert_uint_lt(strlen(expanded), sizeof(out));
    strcpy(out, expanded);
    free(expanded);
    shed_mysql_query_fini(&query);
    return out;
}

TEST(placeholder_becomes_as_many_as_are_wanted)
{
    const char *text = "SELECT k, v FROM t WHERE k IN (?) LIMIT 9";

    ck_assert_str_eq(expand(text, 1, NULL), text);
    ck_assert_str_eq(expand(text, 4, NULL),
                     "SELECT k, v FROM t WHERE k IN (?,?,?,?) LIMIT 9");
    ck_assert_str_eq(expand("(?)", 2, NULL), "(?,?)");
    ck_assert_str_eq(
        expand("SELECT k, v FROM t WHERE k IN ( ?\n) LIMIT 9", 2, NULL),
        "SELECT k, v FROM t WHERE k IN (?,?) LIMIT 9");
}

static const struct {
    const char *text;
    const char *names; /* what the reason must say */
} bad_queries[] = {
    {"SELECT k, v FROM t", "no \"(?)\""},
    {"", "no \"(?)\""},
    {"SELECT k, v FROM t WHERE k IN (?) OR v IN (?)", "two \"(?)\""},
    {"SELECT k, v FROM t WHERE k IN /*!(?)*/ OR v IN (?)", "two \"(?)\""},
    {"SELECT k, v FROM t WHERE k = ?", "no \"(?)\""},
    {"SELECT k, v FROM t WHERE k IN ( ? ) OR v IN (?)", "two \"(?)\""},
    {"SELECT k, v FROM t WHERE k IN ( ?, ? )", "no \"(?)\""},
    {"SELECT k, v FROM t WHERE k IN (?", "no \"(?)\""},
};

TEST_EACH(queries_without_one_clear_placeholder_are_refused, 0,
          COUNT_OF(bad_queries))
{
    const char *text = bad_queries[_i].text;
    struct shed_error err = {0};

    ck_assert_str_eq(expand(text, 1, &err), "");
    ck_assert_int_eq(err.code, SHED_EINVAL);
    ck_assert_msg(strstr(err.reason, bad_queries[_i].names) != NULL, "%s: %s",
                  text, err.reason);
}

/* ------------------------------------------------------------------- errors */

static const struct {
    unsigned number;
    const char *sqlstate;
    bool is_by_key, is_conflict;
} errors[] = {
    {1267, "HY000", true, false},  /* no such character in the column's set */
    {1270, "HY000", true, false},  /* the same */
    {1271, "HY000", true, false},  /* the same */
    {3988, "HY000", true, false},  /* the same, MySQL */
    {1242, "21000", true, false},  /* a subquery with two rows */
    {1690, "22003", true, false},  /* out of range */
    {1644, "45000", true, false},  /* a function of the user's signals */
    {1146, "42S02", false, false}, /* no such table */
    {1142, "42000", false, false}, /* not allowed */
    {1020, "HY000", false, true},  /* record changed, MariaDB */
    {1205, "HY000", false, true},  /* lock wait */
    {1213, "40001", false, true},  /* deadlock */
    {1040, "08004", false, false}, /* too many connections */
    {1317, "70100", false, false}, /* killed */
    {1969, "70100", false, true},  /* over its time, MariaDB */
    {3024, "HY000", false, true},  /* over its time, MySQL */
    {2013, "HY000", false, false}, /* connection lost */
    {2013, "22000", false, false},
};

TEST(an_error_that_only_the_statement_has_is_explained)
{
    static const struct shed_mysql_config config = {.read_timeout_s = 1};
    struct shed_mysql_connection c = {.config = &config,
                                      .mysql = mysql_init(NULL)};
    MYSQL_STMT *stmt = mysql_stmt_init(c.mysql);
    struct shed_mysql_failure failure;
    MYSQL_BIND bind = {0};

    ck_assert_ptr_nonnull(stmt);
    ck_assert(mysql_stmt_bind_result(stmt, &bind) != 0);
    ck_assert_uint_eq(mysql_errno(c.mysql), 0);
    shed_mysql_connection_explain(&c, stmt, &failure);
    ck_assert_uint_eq(failure.number, 2030); /* not prepared */
    ck_assert_ptr_nonnull(strstr(failure.error.reason, "repared"));
    mysql_stmt_close(stmt);
    mysql_close(c.mysql);
}

TEST_EACH(causes_of_errors_are_known, 0, COUNT_OF(errors))
{
    static const struct shed_mysql_config config = {.read_timeout_s = 1};
    struct shed_mysql_failure failure;

    shed_mysql_failure_set(&failure, &config, errors[_i].number,
                           errors[_i].sqlstate, "", 0);
    ck_assert_int_eq(failure.cause == SHED_MYSQL_KEYS, errors[_i].is_by_key);
    ck_assert_int_eq(failure.cause == SHED_MYSQL_CONFLICT,
                     errors[_i].is_conflict);
}

/* --------------------------------------------------------------------- URIs
 *
 * What all URIs have in common is in test_uri. */

#define ck_same(a, b)                                                          \
    ck_assert_msg(((a) == NULL) == ((b) == NULL) &&                            \
                      ((a) == NULL || strcmp(a, b) == 0),                      \
                  "%s: %s is not %s", uris[_i].text, (a) != NULL ? (a) : "-",  \
                  (b) != NULL ? (b) : "-")

static const struct {
    const char *text, *user, *password, *host, *socket, *database;
    unsigned port;
} uris[] = {
    {"mysql://db.example/shop", NULL, NULL, "db.example", NULL, "shop", 3306},
    {"mysql://u@h:3307/d", "u", NULL, "h", NULL, "d", 3307},
    {"mysql://u:p@h/d", "u", "p", "h", NULL, "d", 3306},
    {"mysql://u:@h/d", "u", "", "h", NULL, "d", 3306},
    {"mysql://[::1]:4000/d", NULL, NULL, "::1", NULL, "d", 4000},
    {"mysql:///d?socket=/run/my.sock", NULL, NULL, NULL, "/run/my.sock", "d",
     3306},
    {"mysql://u:p@/d?socket=/run/my%20db.sock", "u", "p", NULL,
     "/run/my db.sock", "d", 3306},
    {"mysql://%68/%64%2Fe", NULL, NULL, "h", NULL, "d/e", 3306},
    {"mysql:///d?socket=/a@b:c[d]?e=f", NULL, NULL, NULL, "/a@b:c[d]?e=f", "d",
     3306},
    {"mysql://u:p@/d?socket=%2Fa%26b@c", "u", "p", NULL, "/a&b@c", "d", 3306},
    {"mysql://h:65535/gr%C3%BCn", NULL, NULL, "h", NULL, "gr\xc3\xbcn", 65535},
};

TEST_EACH(uris_are_taken_apart, 0, COUNT_OF(uris))
{
    struct shed_mysql_uri uri;
    struct shed_error err = {0};
    enum shed_code code = shed_mysql_uri_parse(uris[_i].text, &uri, &err);

    ck_assert_msg(code == SHED_OK, "%s: %s", uris[_i].text, err.reason);
    ck_same(uri.user, uris[_i].user);
    ck_same(uri.password, uris[_i].password);
    ck_same(uri.host, uris[_i].host);
    ck_same(uri.socket, uris[_i].socket);
    ck_same(uri.database, uris[_i].database);
    ck_assert_uint_eq(uri.port, uris[_i].port);
    shed_mysql_uri_fini(&uri);
    ck_assert_ptr_null(uri.parts.buffer);
}

/* Their password is "s3cret", so that the test can look for it. */
static const struct {
    const char *text;
    const char *names;
} bad_uris[] = {
    {"", "mysql://"},
    {"redis://u:s3cret@h/d", "mysql://"},
    {"mysql:/u:s3cret@h/d", "mysql://"},
    {"mysql://u:s3cret@h", "database"},
    {"mysql://u:s3cret@h/", "database"},
    {"mysql://u:s3cret@h/d/e", "database"},
    {"mysql://u:12/s3cret@h", "database"}, /* a '/' that is not encoded */
    {"mysql://u:12?s3cret@h/d", "%3F"},    /* a '?' likewise */
    {"mysql://u:s3cret@/d", "no host and no socket"},
    {"mysql:///d", "no host and no socket"},
    {"mysql://u:s3cret@h/d?socket=/s", "both a host and a socket"},
    {"mysql://u:s3cret@/d?socket=s", "socket"},
    {"mysql://u:s3cret@/d?socket=", "socket"},
    {"mysql://u:s3cret@/d?socket=/s&ssl=1", "parameter"},
    {"mysql://u:s3cret@h/d?ssl=1", "parameter"},
    {"mysql://u:s3cret@h:/d", "port"},
    {"mysql://u:s3cret@:3306/d?socket=/s", "a host is missing"},
    {"mysql://u:s3cret@h,i/d", "several hosts"},
    {"mysql://u:s3cret@[]/d?socket=/s", "a host is missing"},
    {"mysql://:s3cret@h/d", "user"},
    {"mysql://@h/d", "user"},
};

TEST_EACH(bad_uris_are_refused_without_a_word_of_the_password, 0,
          COUNT_OF(bad_uris))
{
    const char *text = bad_uris[_i].text;
    struct shed_error err = {0};
    struct shed_mysql_uri uri;

    ck_assert_msg(shed_mysql_uri_parse(text, &uri, &err) == SHED_EINVAL, "%s",
                  text);
    ck_assert_int_eq(err.code, SHED_EINVAL);
    ck_assert_msg(strstr(err.reason, bad_uris[_i].names) != NULL, "%s: %s",
                  text, err.reason);
    ck_assert_ptr_null(strstr(err.reason, "s3cret"));
    ck_assert_ptr_null(uri.parts.buffer);
}

/* ------------------------------------------------------------------ opening */

#define GOOD_URI "mysql://u:s3cret@127.0.0.1:1/d"
#define GOOD_QUERY "SELECT k, v FROM t WHERE k IN (?)"

/* Expect that the source is not opened, and that the reason names this. */
static void expect_refused(const char *uri, const char *query,
                           const struct shed_mysql_options *options,
                           const char *names)
{
    struct shed_source *source = (struct shed_source *)&source;
    struct shed_error err = {0};

    EXPECT_CODE(shed_mysql_source_open(uri, query, options, &source, &err),
                SHED_EINVAL);
    ck_assert_msg(strstr(err.reason, names) != NULL, "%s", err.reason);
    ck_assert_ptr_null(source);
}

static void expect_bad_options(const struct shed_mysql_options *options,
                               const char *names)
{
    expect_refused(GOOD_URI, GOOD_QUERY, options, names);
}

TEST(source_opens_while_no_server_is_there)
{
    struct shed_mysql_options options = SHED_MYSQL_OPTIONS_INIT;
    struct shed_source *source;

    for (int i = 0; i < 2; i++) {
        EXPECT_OK(shed_mysql_source_open(
            GOOD_URI, GOOD_QUERY, i == 0 ? NULL : &options, &source, NULL));
        shed_source_close(source);
    }
}

TEST(options_out_of_range_are_named)
{
    static const uint64_t connect[] = {999, 600001, 1500},
                          reading[] = {0, 3600001, 1001};

    for (size_t i = 0; i < COUNT_OF(connect); i++) {
        struct shed_mysql_options options = SHED_MYSQL_OPTIONS_INIT;
        options.connect_timeout_ms = connect[i];
        expect_bad_options(&options, "connect_timeout_ms");
        options = (struct shed_mysql_options)SHED_MYSQL_OPTIONS_INIT;
        options.read_timeout_ms = reading[i];
        expect_bad_options(&options, "read_timeout_ms");
    }
}

static void *no_start(void *user)
{
    return user;
}

TEST(callbacks_and_options_of_the_load_are_checked)
{
    struct shed_source_options load = bare_source();
    struct shed_mysql_options options = SHED_MYSQL_OPTIONS_INIT;

    options.source = &load;
    load.thread_start = no_start;
    expect_bad_options(&options, "callbacks");
    load.thread_start = NULL;
    load.max_batch = 0;
    expect_bad_options(&options, "max_batch");
}

TEST(tls_key_without_its_certificate_is_refused)
{
    struct shed_mysql_options options = SHED_MYSQL_OPTIONS_INIT;

    options.tls_key = "/nowhere/key.pem";
    expect_bad_options(&options, "tls_cert");
}

TEST(missing_arguments_are_named)
{
    struct shed_error err = {0};

    expect_refused(NULL, GOOD_QUERY, NULL, "uri");
    expect_refused(GOOD_URI, NULL, NULL, "query");
    expect_refused(GOOD_URI, "SELECT 1", NULL, "(?)");
    expect_refused("mysql://h", GOOD_QUERY, NULL, "database");
    EXPECT_CODE(shed_mysql_source_open(GOOD_URI, GOOD_QUERY, NULL, NULL, &err),
                SHED_EINVAL);
    ck_assert_ptr_nonnull(strstr(err.reason, "out"));
}

int main(void)
{
    return run_tests("mysql_query");
}
