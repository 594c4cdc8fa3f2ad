/* The MySQL source and a server that stops, hangs, is full or is absent: a
 * private MariaDB. */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <sys/socket.h>
#include <sys/un.h>

#include "base/breaker.h"
#include "support/bare.h"
#include "support/own_site.h"
#include "support/server.h"

#define WORD "SELECT k, v FROM word WHERE k IN (?)"
#define SLOW "SELECT k, SLEEP(25) FROM word WHERE k IN (?)"

/* The first failure opens the breaker, and each later load is a probe. */
TEST(a_probe_of_the_breaker_asks_the_server_in_spite_of_the_pause)
{
    enum { PROBES = 12 }; /* then the pause is 2.5 s at least */
    struct shed_source_options so = bare_source();
    struct shed_source *source;
    struct ask ask;

    so.breaker.failure_pct = 100;
    so.breaker.min_calls = 1;
    so.breaker.open_ms = 1;
    source = OPEN_WITH(&site, WORD, .breaker = so.breaker);
    own_database_signal(&server, SIGKILL);
    for (int i = 0; i <= PROBES; i++) {
        load_key(source, &ask, "a");
        ck_assert_ptr_null(strstr(ask.loaded.error.reason, "the next try"));
        assert_failure(&ask, "MySQL: ");
        WAIT_FOR(shed_source_look(source).breaker.state ==
                     SHED_BREAKER_HALF_OPEN &&
                 shed_source_ask_breaker(source, NULL) == SHED_OK);
    }
    own_database_start(&server);
    for (int i = 0; i < SHED_BREAKER_PROBES; i++)
        expect_loaded(source, "a", "A");
    WAIT_FOR(shed_source_look(source).breaker.state == SHED_BREAKER_CLOSED);
    shed_source_close(source);
}

/* The source reads no old snapshot, and leaves no transaction open. */
TEST(where_sessions_do_not_commit_by_themselves_the_sources_do)
{
    struct shed_source *source = open_source(
        &site, "SELECT k, @@autocommit FROM word WHERE k IN (?)", NULL);

    run_sql(&site, "SET GLOBAL autocommit = 0");
    expect_loaded(source, "a", "1");
    shed_source_close(source);
}

TEST(a_restart_that_nobody_saw_costs_nothing)
{
    struct shed_source *source = open_source(&site, WORD, NULL);

    expect_loaded(source, "a", "A");
    own_database_signal(&server, SIGTERM);
    own_database_start(&server);
    expect_loaded(source, "a", "A");
    shed_source_close(source);
}

TEST(a_query_of_a_server_that_dies_fails_long_before_its_limit)
{
    struct shed_source *source = open_source(&site, SLOW, NULL);
    struct ask ask;
    uint64_t begin_ms;

    begin_ask(source, &ask, "a", 1);
    wait_sleepers(&site, 1);
    own_database_signal(&server, SIGKILL);
    begin_ms = shed_now_ms();
    end_ask(&ask);
    ck_assert_uint_lt(shed_now_ms() - begin_ms, 10000);
    assert_failure(&ask, "MySQL: ");
    shed_source_close(source);
}

/* Of a connection, so that it is soon left. */
#define SHORT_MS 1000

TEST(a_stopped_server_keeps_a_slot_until_its_limit)
{
    enum { LIMIT_MS = 2000 };
    struct shed_source *source =
        OPEN_WITH(&site, WORD, .max_loads = 1, .load_timeout_ms = LIMIT_MS,
                  .timeout_ms = SHORT_MS);
    struct ask ask;
    uint64_t begin_ms, end_ms;

    expect_loaded(source, "a", "A");
    own_database_signal(&server, SIGSTOP);
    begin_ms = shed_now_ms();
    load_key(source, &ask, "a");
    end_ms = shed_now_ms();
    assert_failure(&ask, "no answer for 1");
    ck_assert_uint_ge(end_ms - begin_ms, LIMIT_MS);
    own_database_signal(&server, SIGCONT);
    wait_loaded(source, "b", "B");
    shed_source_close(source);
}

TEST(a_query_that_was_too_slow_is_not_repeated)
{
    struct shed_source *source = OPEN_WITH(&site, SLOW, .timeout_ms = SHORT_MS);

    expect_unloaded(source, "a", "no answer for 1");
    ck_assert_uint_eq(ask_status(&site, "Com_stmt_execute"), 1);
    shed_source_close(source);
}

/* The server checks only between rows whether the query is killed. */
TEST(a_slot_is_free_when_a_killed_query_is_gone_and_not_before)
{
    /* A limit that does not end the query even on a slow machine. */
    enum { SLOW_PARTS = 60, PART_BYTES = 64, LIMIT_MS = 3600000 };
    static char query[SLOW_PARTS * PART_BYTES];
    struct shed_source *source;
    struct ask ask;
    size_t used;

    used = (size_t)snprintf(query, sizeof(query), "SELECT k, CONCAT(k");
    for (int i = 0; i < SLOW_PARTS; i++)
        used += (size_t)snprintf(query + used, sizeof(query) - used,
                                 ", SHA2(REPEAT(k, %d), 512)", 16000000 + i);
    snprintf(query + used, sizeof(query) - used, ") FROM word WHERE k IN (?)");
    source = OPEN_WITH(&site, query, .load_timeout_ms = LIMIT_MS,
                       .timeout_ms = SHORT_MS);
    load_key(source, &ask, "a");
    ck_assert_uint_eq(ask_sql(&site, "SELECT COUNT(*) FROM sessions WHERE "
                                     "info LIKE 'SELECT k, CONCAT%%'"),
                      0);
    assert_failure(&ask, "no answer for 1");
    shed_source_close(source);
}

TEST(a_restart_has_ended_what_was_lost_before)
{
    enum { LIMIT_MS = 120000 };
    struct shed_source *source = OPEN_WITH(
        &site, SLOW, .load_timeout_ms = LIMIT_MS, .timeout_ms = SHORT_MS);
    struct ask ask;

    begin_ask(source, &ask, "a", 1);
    wait_sleepers(&site, 1);
    own_database_signal(&server, SIGSTOP);
    /* After its read has timed out it tries to connect again. That attempt is
     * not answered: a second connection is waiting in the listener's queue. */
    ck_assert(!shed_latch_wait(&ask.gate, shed_now_ms() + 2500));
    own_database_signal(&server, SIGKILL);
    own_database_start(&server);
    end_ask(&ask);
    assert_failure(&ask, "no answer for 1");
    shed_source_close(source);
}

/* More ids than a server that starts uses up before the test connects. */
enum { LATER_IDS = 50 };

static MYSQL *connect_guest(void)
{
    MYSQL *mysql = mysql_init(NULL);

    EXPECT_OK(shed_mysql_connect(mysql, site.uri, NULL, 0, NULL));
    return mysql;
}

/* Connect until the server, which numbers connections, assigns us this id. */
static MYSQL *connect_as(unsigned long id)
{
    MYSQL *mysql = connect_guest();

    while (mysql_thread_id(mysql) < id) {
        mysql_close(mysql);
        mysql = connect_guest();
    }
    ck_assert_uint_eq(mysql_thread_id(mysql), id);
    return mysql;
}

/* The second of the server's start shows the restart. */
TEST(a_connection_that_has_the_lost_ones_id_by_now_is_not_killed)
{
    struct shed_mysql_failure failure = {.cause = SHED_MYSQL_SILENT};
    struct shed_mysql_connection c;
    struct shed_mysql_config config;
    MYSQL *innocent;
    time_t opened_s;

    for (int i = 0; i < LATER_IDS; i++)
        mysql_close(connect_guest());
    open_connection(&site, &c, &config);
    opened_s = time(NULL);
    shed_mysql_connection_abandon(&c, &failure);
    ck_assert_uint_ne(c.lost.id, 0);
    own_database_signal(&server, SIGKILL);
    while (time(NULL) == opened_s)
        sched_yield();
    own_database_start(&server);
    innocent = connect_as(c.lost.id);
    shed_mysql_connection_end_lost(&c);
    ck_assert_uint_eq(c.lost.id, 0);
    ck_assert_int_eq(mysql_query(innocent, "DO 1"), 0);
    mysql_close(innocent);
    close_connection(&c, &config);
}

TEST(a_server_that_is_full_is_a_failure_that_passes)
{
    enum { CONNECTIONS = 10 }; /* as few as MariaDB allows */
    MYSQL *others[CONNECTIONS];
    struct shed_source *source;

    run_sql(&site, "CREATE USER guest");
    run_sql(&site, "GRANT SELECT ON *.* TO guest");
    run_sql(&site, "SET GLOBAL max_connections = %d", CONNECTIONS);
    source = OPEN_WITH(&site, WORD, .user = "guest");
    for (size_t i = 0; i < CONNECTIONS; i++) {
        others[i] = mysql_init(NULL);
        (void)!shed_mysql_connect(others[i], uri_for(&site, "guest"), NULL, 0,
                                  NULL);
    }
    expect_unloaded(source, "a", "(1040)");
    for (size_t i = 0; i < CONNECTIONS; i++)
        mysql_close(others[i]);
    wait_loaded(source, "a", "A");
    /* The failures are forgotten: the next connection is opened without a
     * pause. */
    run_sql(&site, "RENAME TABLE word TO gone");
    expect_unloaded(source, "b", "(1146)");
    run_sql(&site, "RENAME TABLE gone TO word");
    expect_loaded(source, "b", "B");
    shed_source_close(source);
}

/* It refuses the packet, in which the keys are, and ends the connection. */
TEST(a_packet_that_is_too_big_is_a_failure_and_not_absence)
{
    enum { LEAST_BYTES = 1024, KEYS = 40, KEY_BYTES = 1000 };
    static char texts[KEYS][KEY_BYTES + 1];
    const char *keys[KEYS];
    struct ask asks[KEYS], ask;
    struct shed_source *source;

    run_sql(&site, "SET GLOBAL max_allowed_packet = %d", LEAST_BYTES);
    source = open_source(&site, WORD, NULL);
    for (size_t i = 0; i < KEYS; i++) {
        snprintf(texts[i], sizeof(texts[i]), "%0*zu", KEY_BYTES, i);
        keys[i] = texts[i];
    }
    load_keys(source, asks, keys, KEYS);
    for (size_t i = 0; i < KEYS; i++)
        assert_failure(&asks[i], "MySQL: ");
    load_key(source, &ask, keys[0]);
    assert_kind(&ask, SHED_KIND_ABSENT);
    expect_loaded(source, "a", "A");
    shed_source_close(source);
}

/* As after a failover, for users that may not write there. */
TEST(a_server_that_is_read_only_is_read_and_refuses_the_guard)
{
    const struct shed_fence fence = {.number = 1};
    struct shed_source *source;
    struct shed_error err = {0};
    MYSQL *writer = mysql_init(NULL);

    make_user(&site, "guest");
    run_sql(&site, "GRANT SELECT, INSERT, UPDATE ON *.* TO guest");
    make_fence(&site);
    source = OPEN_WITH(&site, WORD, .user = "guest");
    EXPECT_OK(
        shed_mysql_connect(writer, uri_for(&site, "guest"), NULL, 0, NULL));
    run_sql(&site, "SET GLOBAL read_only = 1");
    expect_loaded(source, "a", "A");
    ck_assert_int_eq(mysql_query(writer, "BEGIN"), 0);
    EXPECT_CODE(shed_mysql_fence(writer, shed_str("stock"), &fence, NULL, &err),
                SHED_ESOURCE);
    ck_assert_ptr_nonnull(strstr(err.reason, "1290"));
    ck_assert_int_eq(mysql_query(writer, "ROLLBACK"), 0);
    run_sql(&site, "SET GLOBAL read_only = 0");
    ck_assert_int_eq(mysql_query(writer, "BEGIN"), 0);
    EXPECT_OK(shed_mysql_fence(writer, shed_str("stock"), &fence, NULL, &err));
    mysql_close(writer);
    shed_source_close(source);
}

/* --------------------------------------------------------- without a server */

struct listener {
    int fd;
    char uri[TEXT_BYTES];
    atomic_uint accepted;
    pthread_t thread;
};

static void *turn_away(void *arg)
{
    struct listener *l = arg;
    int fd;

    while ((fd = accept(l->fd, NULL, NULL)) >= 0) {
        atomic_fetch_add(&l->accepted, 1);
        close(fd);
    }
    return NULL;
}

static void start_listener(struct listener *l)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};

    snprintf(at.sun_path, sizeof(at.sun_path), "%s/listener", server.dir);
    snprintf(l->uri, sizeof(l->uri), "mysql://u@/d?socket=%s", at.sun_path);
    (void)unlink(at.sun_path);
    l->fd = socket(AF_UNIX, SOCK_STREAM, 0);
    ck_assert_int_ge(l->fd, 0);
    ck_assert_int_eq(bind(l->fd, (struct sockaddr *)&at, sizeof(at)), 0);
    ck_assert_int_eq(listen(l->fd, 64), 0);
    atomic_init(&l->accepted, 0);
    start_thread(&l->thread, turn_away, l);
}

static void stop_listener(struct listener *l)
{
    ck_assert_int_eq(shutdown(l->fd, SHUT_RDWR), 0);
    ck_assert_int_eq(pthread_join(l->thread, NULL), 0);
    close(l->fd);
}

/* A proxy in front of the server, at a port where connecting is not answered.
 */
static void start_blackhole(struct proxy *proxy, struct server *hidden,
                            struct site *behind)
{
    const char *socket_path = strstr(site.uri, "socket=") + strlen("socket=");

    *hidden = (struct server){0};
    snprintf(hidden->socket, sizeof(hidden->socket), "%s", socket_path);
    *proxy = (struct proxy){.is_tcp = true};
    proxy_start(proxy, hidden);
    proxy_set(proxy, PROXY_BLACKHOLE, 0, NULL);
    *behind = site;
    snprintf(behind->uri, sizeof(behind->uri), "mysql://root@127.0.0.1:%u/%s",
             proxy->port, site.database);
}

TEST(a_connect_without_an_answer_fails_at_its_timeout_and_frees_the_slot)
{
    struct shed_source *source;
    struct proxy proxy;
    struct server hidden;
    struct site behind;

    start_blackhole(&proxy, &hidden, &behind);
    source = OPEN_WITH(&behind, WORD, .max_loads = 1, .timeout_ms = SHORT_MS);
    for (int i = 0; i < 2; i++) {
        expect_unloaded(source, "a", "no answer to connect for 1");
    }
    proxy_set(&proxy, PROXY_PASS, 0, NULL);
    wait_loaded(source, "a", "A");
    shed_source_close(source);
    proxy_stop(&proxy);
}

TEST(pauses_grow_while_a_server_turns_us_away)
{
    enum { TRIES = 6, LEAST_MS = 25 + 50 + 100 + 200 + 400 };
    struct shed_source *source;
    struct listener listener;
    uint64_t begin_ms, deadline_ms;
    struct ask ask;

    start_listener(&listener);
    EXPECT_OK(shed_mysql_source_open(listener.uri, WORD, NULL, &source, NULL));
    begin_ms = shed_now_ms();
    deadline_ms = test_deadline_ms();
    while (atomic_load(&listener.accepted) < TRIES) {
        ck_assert_uint_lt(shed_now_ms(), deadline_ms);
        load_key(source, &ask, "a");
    }
    ck_assert_uint_ge(shed_now_ms() - begin_ms, LEAST_MS);
    shed_source_close(source);
    stop_listener(&listener);
}

int main(void)
{
    tcase_add_unchecked_fixture(test_case(), own_site_install, own_site_remove);
    tcase_add_checked_fixture(test_case(), own_site_up, own_site_down);
    return run_tests("mysql_server");
}
