/* See mysql_testing.h. */
#include "support/bare.h"
#include "support/mysql_testing.h"

#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "mysql/config.h"

/* ------------------------------------------------------------ the server */

static void connect_admin(struct site *site, const char *text)
{
    struct shed_mysql_uri uri;
    struct shed_error err = {0};

    ck_assert_msg(shed_mysql_uri_parse(text, &uri, &err) == SHED_OK, "%s",
                  err.reason);
    site->admin = mysql_init(NULL);
    ck_assert_ptr_nonnull(site->admin);
    ck_assert_int_eq(
        mysql_options(site->admin, MYSQL_SET_CHARSET_NAME, "utf8mb4"), 0);
    ck_assert_msg(mysql_real_connect(site->admin, uri.host, uri.user,
                                     uri.password, NULL, uri.port, uri.socket,
                                     0) != NULL,
                  "%s", mysql_error(site->admin));
    shed_mysql_uri_fini(&uri);
}

/* Make the URI, with the site's database in place of the original one. */
static void make_uri(struct site *site, const char *text)
{
    const char *authority = text + strlen("mysql://");
    const char *slash = strchr(authority, '/');
    const char *parameters = strchr(slash, '?');

    snprintf(site->uri, sizeof(site->uri), "%.*s/%s%s", (int)(slash - text),
             text, site->database, parameters != NULL ? parameters : "");
}

/* The sessions of the server, and which of them wait for the lock of a row. In
 * MySQL, information_schema can show neither while a query of any session has
 * bytes that are no text. */
static void make_views(struct site *site)
{
    bool has_trx = is_mariadb(site);

    run_sql(site, "CREATE VIEW sessions AS %s",
            has_trx ? "SELECT id, db, state, info FROM "
                      "information_schema.processlist"
                    : "SELECT processlist_id AS id, processlist_db AS db, "
                      "processlist_state AS state, processlist_info AS info "
                      "FROM performance_schema.threads "
                      "WHERE processlist_id IS NOT NULL");
    run_sql(site, "CREATE VIEW lock_waits AS %s",
            has_trx ? "SELECT trx_mysql_thread_id AS id FROM "
                      "information_schema.innodb_trx "
                      "WHERE trx_state = 'LOCK WAIT'"
                    : "SELECT DISTINCT processlist_id AS id "
                      "FROM performance_schema.data_lock_waits "
                      "JOIN performance_schema.threads "
                      "ON thread_id = requesting_thread_id");
}

void open_site(struct site *site, const char *uri)
{
    ck_assert_msg(uri != NULL, "SHED_TEST_MYSQL is not set: the URI of a "
                               "server where databases may be made");
    snprintf(site->database, sizeof(site->database), "shed_test_%ld",
             (long)getpid());
    connect_admin(site, uri);
    make_uri(site, uri);
    run_sql(site, "DROP DATABASE IF EXISTS %s", site->database);
    run_sql(site, "CREATE DATABASE %s CHARACTER SET utf8mb4", site->database);
    run_sql(site, "USE %s", site->database);
    make_views(site);
}

void join_site(struct site *site)
{
    connect_admin(site, site->uri);
    run_sql(site, "USE %s", site->database);
}

void reopen_site(struct site *site)
{
    mysql_close(site->admin);
    join_site(site);
}

void make_words(struct site *site)
{
    run_sql(site, "CREATE TABLE word (k VARCHAR(100) COLLATE utf8mb4_bin "
                  "PRIMARY KEY, v TEXT)");
    run_sql(site, "INSERT INTO word VALUES ('a', 'A'), ('b', 'B')");
}

void close_site(struct site *site)
{
    run_sql(site, "DROP DATABASE %s", site->database);
    mysql_close(site->admin);
}

MYSQL *join_program(const struct site *site)
{
    struct shed_mysql_uri uri;
    MYSQL *mysql = mysql_init(NULL);

    ck_assert_ptr_nonnull(mysql);
    EXPECT_OK(shed_mysql_uri_parse(site->uri, &uri, NULL));
    ck_assert_msg(mysql_real_connect(mysql, uri.host, uri.user, uri.password,
                                     uri.database, uri.port, uri.socket,
                                     CLIENT_MULTI_STATEMENTS) != NULL,
                  "%s", mysql_error(mysql));
    shed_mysql_uri_fini(&uri);
    return mysql;
}

void say(MYSQL *mysql, const char *sql)
{
    ck_assert_msg(mysql_query(mysql, sql) == 0, "%s: %s", sql,
                  mysql_error(mysql));
}

void run_sql(struct site *site, const char *format, ...)
{
    char sql[TEXT_BYTES];
    va_list args;

    va_start(args, format);
    vsnprintf(sql, sizeof(sql), format, args);
    va_end(args);
    say(site->admin, sql);
}

/* Of the first row. */
static unsigned long take_number(MYSQL *mysql, unsigned column)
{
    MYSQL_RES *result = mysql_store_result(mysql);
    unsigned long number;
    MYSQL_ROW row;

    ck_assert_msg(result != NULL, "%s", mysql_error(mysql));
    row = mysql_fetch_row(result);
    ck_assert(row != NULL && row[column] != NULL);
    number = strtoul(row[column], NULL, 10);
    mysql_free_result(result);
    return number;
}

unsigned long ask(MYSQL *mysql, const char *sql)
{
    say(mysql, sql);
    return take_number(mysql, 0);
}

unsigned long ask_sql(struct site *site, const char *format, ...)
{
    char sql[TEXT_BYTES];
    va_list args;

    va_start(args, format);
    vsnprintf(sql, sizeof(sql), format, args);
    va_end(args);
    return ask(site->admin, sql);
}

unsigned long ask_status(struct site *site, const char *name)
{
    char sql[TEXT_BYTES];

    snprintf(sql, sizeof(sql), "SHOW GLOBAL STATUS LIKE '%s'", name);
    say(site->admin, sql);
    return take_number(site->admin, 1);
}

void load_sql(struct site *site, const char *path)
{
    enum { FILE_BYTES = 8192, LINE_BYTES = 256 };
    char sql[FILE_BYTES] = "", line[LINE_BYTES], delimiter[8] = ";";
    FILE *file = fopen(path, "r");

    ck_assert_ptr_nonnull(file);
    while (fgets(line, sizeof(line), file) != NULL) {
        size_t size = strcspn(line, "\n"), mark = strlen(delimiter);
        if (sscanf(line, "DELIMITER %7s", delimiter) == 1 ||
            strncmp(line, "--", 2) == 0)
            continue;
        ck_assert_uint_lt(strlen(sql) + size + 2, sizeof(sql));
        strncat(sql, line, size + 1);
        if (size < mark || strncmp(&line[size - mark], delimiter, mark) != 0)
            continue;
        sql[strlen(sql) - mark - 1] = '\0';
        say(site->admin, sql);
        sql[0] = '\0';
    }
    ck_assert_int_eq(fclose(file), 0);
}

void make_user(struct site *site, const char *user)
{
    run_sql(site, "DROP USER IF EXISTS %s", user);
    run_sql(site, "CREATE USER %s", user);
}

void wait_sql(struct site *site, unsigned long wanted, const char *sql)
{
    uint64_t deadline_ms = test_deadline_ms();

    while (ask_sql(site, "%s", sql) != wanted) {
        ck_assert_msg(shed_now_ms() < deadline_ms, "not %lu: %s", wanted, sql);
        sched_yield();
    }
}

void make_numbers(struct site *site, unsigned count)
{
    run_sql(site, "CREATE TABLE num (n INT PRIMARY KEY)");
    run_sql(site, "INSERT INTO num VALUES (0)");
    for (unsigned have = 1; have < count; have *= 2)
        run_sql(site, "INSERT INTO num SELECT n + %u FROM num WHERE n < %u",
                have, count - have);
}

bool is_mariadb(const struct site *site)
{
    return strstr(mysql_get_server_info(site->admin), "MariaDB") != NULL;
}

static char session_sql[TEXT_BYTES];

const char *session_sum(const struct site *site, const char *name)
{
    snprintf(session_sql, sizeof(session_sql),
             "(SELECT CAST(SUM(variable_value) AS UNSIGNED) FROM "
             "%s.session_status WHERE variable_name LIKE '%s')",
             is_mariadb(site) ? "information_schema" : "performance_schema",
             name);
    return session_sql;
}

const char *session_count(const struct site *site, const char *command)
{
    char name[64];

    snprintf(name, sizeof(name), "Com_stmt_%s", command);
    if (is_mariadb(site))
        return session_sum(site, name);
    /* MySQL's performance_schema has no variables that count commands */
    snprintf(
        session_sql, sizeof(session_sql),
        "(SELECT SUM(count_star) FROM performance_schema."
        "events_statements_summary_by_thread_by_event_name WHERE thread_id "
        "= PS_CURRENT_THREAD_ID() AND event_name LIKE "
        "'statement/com/%s%%')",
        command);
    return session_sql;
}

#define CONNECTIONS                                                            \
    "FROM sessions WHERE db = '%s' AND "                                       \
    "id <> CONNECTION_ID()"

unsigned long count_connections(struct site *site)
{
    return ask_sql(site, "SELECT COUNT(*) " CONNECTIONS, site->database);
}

#define SLEEPERS "SELECT COUNT(*) " CONNECTIONS " AND info LIKE '%%SLEEP(%%'"

unsigned long count_sleepers(struct site *site)
{
    return ask_sql(site, SLEEPERS, site->database);
}

void wait_sleepers(struct site *site, unsigned long wanted)
{
    char sql[TEXT_BYTES];

    snprintf(sql, sizeof(sql), SLEEPERS, site->database);
    wait_sql(site, wanted, sql);
}

unsigned long only_connection(struct site *site)
{
    char sql[TEXT_BYTES];

    /* one that was closed may still be listed */
    snprintf(sql, sizeof(sql), "SELECT COUNT(*) " CONNECTIONS, site->database);
    wait_sql(site, 1, sql);
    return ask_sql(site, "SELECT id " CONNECTIONS, site->database);
}

/* -------------------------------------------------------------- the source */

enum { PATIENCE_S = 60 };

/* The default limits would end what a busy machine only delays. A test's own
 * settings are kept. */
static struct shed_mysql_options
patient(const struct shed_mysql_options *options)
{
    enum { PATIENCE_MS = PATIENCE_S * 1000 };
    const struct shed_mysql_options defaults = SHED_MYSQL_OPTIONS_INIT;
    struct shed_mysql_options o = options != NULL ? *options : defaults;

    if (o.connect_timeout_ms == defaults.connect_timeout_ms)
        o.connect_timeout_ms = PATIENCE_MS;
    if (o.read_timeout_ms == defaults.read_timeout_ms)
        o.read_timeout_ms = PATIENCE_MS;
    return o;
}

struct shed_source *open_source(struct site *site, const char *query,
                                const struct shed_mysql_options *options)
{
    const struct shed_source_options bare = bare_source();
    struct shed_mysql_options o = patient(options);
    struct shed_source *source;
    struct shed_error err = {0};

    if (o.source == NULL)
        o.source = &bare;
    ck_assert_msg(shed_mysql_source_open(site->uri, query, &o, &source, &err) ==
                      SHED_OK,
                  "%s", err.reason);
    return source;
}

const char *uri_for(const struct site *site, const char *user)
{
    static char uri[sizeof(site->uri)];

    snprintf(uri, sizeof(uri), "mysql://%s%s", user, strchr(site->uri, '@'));
    return uri;
}

struct shed_source *open_with(struct site *site, const char *query,
                              const struct terms *terms)
{
    struct shed_source_options load = bare_source();
    struct shed_mysql_options o = SHED_MYSQL_OPTIONS_INIT;
    struct site of_user = *site;

    if (terms->max_loads > 0)
        load.max_loads = terms->max_loads;
    if (terms->max_batch > 0)
        load.max_batch = terms->max_batch;
    if (terms->load_timeout_ms > 0)
        load.load_timeout_ms = terms->load_timeout_ms;
    if (terms->breaker.failure_pct > 0)
        load.breaker = terms->breaker;
    if (terms->timeout_ms > 0)
        o.connect_timeout_ms = o.read_timeout_ms = terms->timeout_ms;
    if (terms->user != NULL)
        snprintf(of_user.uri, sizeof(of_user.uri), "%s",
                 uri_for(site, terms->user));
    o.source = &load;
    return open_source(&of_user, query, &o);
}

static void note_loaded(struct shed_job *job)
{
    struct ask *ask = (struct ask *)job;

    ask->loaded = job->loaded;
    shed_latch_count_down(&ask->gate, 1);
}

static const struct shed_row_version no_version;

enum { VALUE_LIMIT_BYTES = 1048576 };

static void make_ask(struct shed_list *jobs, struct ask *ask, const void *key,
                     size_t size, struct shed_row_version old)
{
    ask->job = (struct shed_job){.key = key,
                                 .key_size = size,
                                 .deadline_ms = UINT64_MAX,
                                 .value_limit_bytes = VALUE_LIMIT_BYTES,
                                 .old_version = old,
                                 .settle = note_loaded};
    shed_latch_init(&ask->gate, 1);
    shed_list_append(jobs, &ask->job.node);
}

void begin_ask(struct shed_source *source, struct ask *ask, const void *key,
               size_t size)
{
    struct shed_list jobs = {NULL, NULL};

    make_ask(&jobs, ask, key, size, no_version);
    shed_source_submit(source, &jobs);
}

void begin_ask_again(struct shed_source *source, struct ask *ask,
                     const void *key, size_t size, uint64_t old_version)
{
    struct shed_list jobs = {NULL, NULL};

    make_ask(
        &jobs, ask, key, size,
        (struct shed_row_version){.number = old_version, .is_known = true});
    shed_source_submit(source, &jobs);
}

void end_ask(struct ask *ask)
{
    enum { LONGEST = 3 }; /* a query of a test may take some seconds */
    uint64_t now_ms = shed_now_ms();
    uint64_t patience_ms = (test_deadline_ms() - now_ms) * LONGEST;

    ck_assert(shed_latch_wait(&ask->gate, now_ms + patience_ms));
}

void load_key(struct shed_source *source, struct ask *ask, const char *key)
{
    begin_ask(source, ask, key, strlen(key));
    end_ask(ask);
}

void load_keys(struct shed_source *source, struct ask *asks,
               const char *const *keys, size_t count)
{
    struct shed_list jobs = {NULL, NULL};

    for (size_t i = 0; i < count; i++)
        make_ask(&jobs, &asks[i], keys[i], strlen(keys[i]), no_version);
    shed_source_submit(source, &jobs);
    for (size_t i = 0; i < count; i++)
        end_ask(&asks[i]);
}

void open_connection(struct site *site, struct shed_mysql_connection *c,
                     struct shed_mysql_config *config)
{
    struct shed_mysql_failure failure = {0};

    *config = (struct shed_mysql_config){.connect_timeout_s = PATIENCE_S,
                                         .read_timeout_s = PATIENCE_S,
                                         .statement_limit_ms = 60000};
    EXPECT_OK(shed_mysql_uri_parse(site->uri, &config->uri, NULL));
    *c = (struct shed_mysql_connection){.config = config};
    ck_assert_msg(shed_mysql_connection_open(c, &failure), "%s",
                  failure.error.reason);
}

void close_connection(struct shed_mysql_connection *c,
                      struct shed_mysql_config *config)
{
    shed_mysql_connection_close(c);
    shed_mysql_uri_fini(&config->uri);
}

/* ----------------------------------------------------------- what is loaded */

void assert_kind(struct ask *ask, enum shed_kind kind)
{
    ck_assert_msg(ask->loaded.value != NULL, "%.*s: %s", (int)ask->job.key_size,
                  (const char *)ask->job.key, ask->loaded.error.reason);
    ck_assert_int_eq(ask->loaded.value->kind, kind);
    shed_value_unref(ask->loaded.value);
}

void assert_row(struct ask *ask, const void *data, size_t size)
{
    struct shed_value *value = ask->loaded.value;

    if (value != NULL && value->kind == SHED_KIND_ROW) {
        ck_assert_uint_eq(value->size, size);
        if (size > 0)
            ck_assert_int_eq(memcmp(value->data, data, size), 0);
    }
    assert_kind(ask, SHED_KIND_ROW);
}

void assert_text(struct ask *ask, const char *text)
{
    assert_row(ask, text, strlen(text));
}

void assert_failure(struct ask *ask, const char *why)
{
    ck_assert_ptr_null(ask->loaded.value);
    EXPECT_CODE(ask->loaded.error.code, SHED_ESOURCE);
    ck_assert_msg(strstr(ask->loaded.error.reason, why) != NULL, "%s",
                  ask->loaded.error.reason);
}

void expect_loaded(struct shed_source *source, const char *key,
                   const char *text)
{
    struct ask ask;

    load_key(source, &ask, key);
    assert_text(&ask, text);
}

void expect_unloaded(struct shed_source *source, const char *key,
                     const char *why)
{
    struct ask ask;

    load_key(source, &ask, key);
    assert_failure(&ask, why);
}

void wait_loaded(struct shed_source *source, const char *key, const char *text)
{
    enum { LONGEST_PAUSE_MS = 10000 };
    uint64_t deadline_ms = test_deadline_ms() + LONGEST_PAUSE_MS;
    struct ask ask;

    load_key(source, &ask, key);
    while (ask.loaded.value == NULL) {
        ck_assert_msg(shed_now_ms() < deadline_ms, "%s",
                      ask.loaded.error.reason);
        assert_failure(&ask, "MySQL: ");
        usleep(1000);
        load_key(source, &ask, key);
    }
    assert_text(&ask, text);
}

void make_fence(struct site *site)
{
    run_sql(site, "CREATE TABLE snowshed_fence ("
                  "resource VARBINARY(255) NOT NULL PRIMARY KEY,"
                  "number BIGINT UNSIGNED NOT NULL,"
                  "owner BINARY(16) NOT NULL) ENGINE = InnoDB");
}
