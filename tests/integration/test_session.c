/* A client and its Redis: what it has to send again, what it is refused, its
 * leases, and fork. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <snowshed/lock.h>
#include <snowshed/stats.h>

#include "entry/entry.h"
#include "client/client.h"
#include "support/bare.h"
#include "support/fixture.h"

static char uri[SERVER_URI_BYTES + 64];

/* ----------------------------------------------------------- said once more */

TEST(a_new_connection_says_who_it_is_and_which_database_it_means)
{
    uint64_t before;

    server_do(&fixture.server, "ACL SETUSER u on >p@ss ~* &* +@all");
    snprintf(uri, sizeof(uri), "unix://u:p%%40ss@%s?db=3",
             fixture.server.socket);
    fixture.uri = uri;
    fixture_open(&fixture);
    for (int i = 0; i < 20; i++) {
        expect_text(fixture.cache, "k", "k@1");
        invalidate(fixture.cache, "k");
        ck_assert_int_gt(server_int(&fixture.server, "CLIENT KILL USER u"), 0);
    }
    /* just after both connections were lost, one get may be answered by the
     * source */
    before = stats_of(fixture.cache).published;
    WAIT_FOR((expect_text(fixture.cache, "k", "k@1"),
              stats_of(fixture.cache).published > before));
    ck_assert_int_eq(server_int(&fixture.server, "DBSIZE"), 0);
    server_do(&fixture.server, "SWAPDB 0 3");
    ck_assert_int_eq(server_int(&fixture.server, "EXISTS t:{k}"), 1);
}

static void expect_refused_lock(uint64_t wait_ms)
{
    struct shed_lock *lock = NULL;

    EXPECT_OK(
        shed_lock_open(fixture.client, shed_str("job"), NULL, &lock, NULL));
    EXPECT_CODE(shed_lock_acquire(lock, wait_ms, NULL), SHED_EDENIED);
    shed_lock_close(lock);
}

static const struct refused {
    const char *set_up; /* a command; NULL: none */
    const char *uri;
    const char *count; /* the command by which its tries are counted */
} refused[] = {
    {"ACL SETUSER u on >right ~* &* +@all", "unix://u:hunter2@%s", "auth"},
    /* nobody asks for the password */
    {NULL, "unix://:hunter2@%s", "auth"},
    /* such a database is not there */
    {"ACL SETUSER u on >hunter2 ~* &* +@all", "unix://u:hunter2@%s?db=999",
     "select"},
    /* ours is missing; the test's own connections send AUTH once each */
    {"CONFIG SET requirepass hunter2", "unix:%s", "select"},
};

/* What a refused client gets, and how often it has tried. */
TEST_EACH(a_wrong_password_is_denied_without_a_storm_and_never_told, 0,
          COUNT_OF(refused))
{
    enum { GETS = 500, TRIES_MAX = 40, SPAN_MS = 300 };
    const struct refused *r = &refused[_i];
    struct shed_value *value = NULL;
    struct shed_error err = {0};
    uint64_t begin_ms = shed_now_ms(), spans;

    if (r->set_up != NULL)
        server_do(&fixture.server, r->set_up);
    if (r->set_up != NULL && strstr(r->set_up, "requirepass") != NULL)
        fixture.server.password = "hunter2";
    snprintf(uri, sizeof(uri), r->uri, fixture.server.socket);
    fixture.uri = uri;
    fixture_open(&fixture);
    for (int i = 0; i < GETS || shed_now_ms() < begin_ms + SPAN_MS; i++) {
        err.reason[0] = '\0';
        EXPECT_CODE(shed_get(fixture.cache, shed_str("k"), NULL, &value, &err),
                    SHED_EDENIED);
        ck_assert_ptr_null(strstr(err.reason, "hunter2"));
    }
    ck_assert_uint_gt(strlen(err.reason), 0);
    EXPECT_CODE(shed_invalidate(fixture.cache, shed_str("k"), 0, &err),
                SHED_EDENIED);
    ck_assert_ptr_null(strstr(err.reason, "hunter2"));
    EXPECT_CODE(
        shed_put(fixture.cache, shed_str("k"), shed_str("v"), NULL, &err),
        SHED_EDENIED);
    expect_refused_lock(0);
    expect_refused_lock(200);
    spans = (shed_now_ms() - begin_ms) / SPAN_MS; /* many on a slow machine */
    ck_assert_int_le(server_calls(&fixture.server, r->count),
                     TRIES_MAX * (long long)spans);
    ck_assert_uint_eq(table_loads(&fixture.table), 0);
}

/* Its error quotes what it was sent. */
TEST(a_server_without_auth_is_denied_and_the_password_not_told)
{
    struct server server = {.options = {"--rename-command", "AUTH", ""}};
    struct shed_client_status status = {0};
    struct shed_client *client;

    server_start(&server);
    snprintf(uri, sizeof(uri), "unix://:hunter2@%s", server.socket);
    EXPECT_OK(shed_client_open(uri, BARE_CLIENT, &client, NULL));
    WAIT_FOR(shed_client_status_read(client, &status, sizeof(status), NULL) ==
                 SHED_OK &&
             status.last.code == SHED_EDENIED);
    ck_assert_ptr_nonnull(strstr(status.last.reason, "AUTH"));
    ck_assert_ptr_null(strstr(status.last.reason, "hunter2"));
    shed_client_close(client);
    server_stop(&server);
}

/* ----------------------------------------------------------- what is told */

#define LINES_MAX 16

static struct {
    pthread_mutex_t mu;
    /* under mu */
    size_t count;
    enum shed_log_level level[LINES_MAX];
    char text[LINES_MAX][512];
} told = {.mu = PTHREAD_MUTEX_INITIALIZER};

static void write_down(void *user, enum shed_log_level level, const char *text)
{
    ck_assert_ptr_eq(user, &told);
    pthread_mutex_lock(&told.mu);
    if (told.count < LINES_MAX) {
        told.level[told.count] = level;
        snprintf(told.text[told.count], sizeof(told.text[0]), "%s", text);
    }
    told.count++;
    pthread_mutex_unlock(&told.mu);
}

static size_t told_count(void)
{
    size_t count;

    pthread_mutex_lock(&told.mu);
    count = told.count;
    pthread_mutex_unlock(&told.mu);
    return count;
}

/* Expect a line in the text for Prometheus. */
static void expect_gauge(const char *line)
{
    static char text[65536];

    ck_assert_uint_lt(
        shed_stats_prometheus(&fixture.cache, 1, NULL, 0, text, sizeof(text)),
        sizeof(text));
    ck_assert_ptr_nonnull(strstr(text, line));
}

static long long connections(void)
{
    char number[32];

    server_info(&fixture.server, "total_connections_received", number,
                sizeof(number));
    return strtoll(number, NULL, 10);
}

TEST(each_change_of_the_standing_is_reported_once)
{
    enum { TRIES = 20 };
    static const enum shed_log_level levels[] = {
        SHED_LOG_INFO, SHED_LOG_WARNING, SHED_LOG_INFO, SHED_LOG_WARNING,
        SHED_LOG_ERROR};
    size_t count = sizeof(levels) / sizeof(*levels);
    struct shed_client_status status;
    uint64_t again_ms;
    long long before;

    fixture.client_options.on_log = write_down;
    fixture.client_options.log_user = &told;
    fixture_open(&fixture);
    WAIT_FOR(status_of(fixture.client).is_up);
    expect_gauge("snowshed_redis_up{cache=\"t\"} 1\n");
    server_kill(&fixture.server);
    WAIT_FOR(!status_of(fixture.client).is_up);
    expect_gauge("snowshed_redis_up{cache=\"t\"} 0\n");
    server_start_again(&fixture.server);
    WAIT_FOR(status_of(fixture.client).is_up);
    again_ms = shed_now_ms();
    server_do(&fixture.server, "CONFIG SET requirepass hunter2");
    fixture.server.password = "hunter2";
    server_do(&fixture.server, "CLIENT KILL TYPE normal SKIPME yes");
    WAIT_FOR(told_count() == count);
    before = connections();
    WAIT_FOR(connections() > before + TRIES);
    ck_assert_uint_eq(told_count(), count);
    for (size_t i = 0; i < count; i++)
        ck_assert_int_eq(told.level[i], levels[i]);
    EXPECT_OK(
        shed_client_status_read(fixture.client, &status, sizeof(status), NULL));
    ck_assert_uint_eq(status.is_up, 0);
    ck_assert_uint_gt(status.since_ms, 0); /* the tries took longer */
    ck_assert_uint_le(status.since_ms, shed_now_ms() - again_ms);
    EXPECT_CODE(status.last.code, SHED_EDENIED);
    ck_assert_ptr_nonnull(strstr(told.text[count - 1], status.last.reason));
    fixture_close(&fixture);
    server_stop(&fixture.server);
}

/* URIs that are refused, where commands would otherwise run in database 0, or
 * as the default user, which has all rights. */
static const char *const refused_uris[] = {"unix://u:pw@%s?db=999",
                                           "unix://u:wrong@%s"};
static const char *const sent_commands[] = {
    "get",         "set",       "evalsha",   "eval",
    "script|load", "client|id", "subscribe", "client|tracking"};

static void use_all(void)
{
    struct shed_lock_options o = SHED_LOCK_OPTIONS_INIT;
    struct shed_value *value = NULL;
    struct shed_lock *lock = NULL;

    (void)!shed_get(fixture.cache, shed_str("k"), NULL, &value, NULL);
    shed_value_unref(value);
    (void)!shed_put(fixture.cache, shed_str("k"), shed_str("v"), NULL, NULL);
    (void)!shed_invalidate(fixture.cache, shed_str("k"), 0, NULL);
    EXPECT_OK(shed_lock_open(fixture.client, shed_str("zoo"), &o, &lock, NULL));
    ck_assert_int_ne(shed_lock_acquire(lock, 200, NULL), SHED_OK);
    shed_lock_close(lock);
}

/* The link has not noticed that the server was away: its next call finds it
 * again. */
TEST(a_server_that_a_link_has_found_again_is_found_by_the_session)
{
    fixture_open(&fixture);
    expect_text(fixture.cache, "k", "k@1");
    server_kill(&fixture.server);
    WAIT_FOR(!shed_client_is_up(fixture.client));
    server_start_again(&fixture.server);
    expect_text(fixture.cache, "k", "k@1");
    WAIT_FOR(shed_client_is_up(fixture.client));
    expect_text(fixture.cache, "l", "l@1");
    expect_origin(fixture.cache, "l", "l@1", SHED_ORIGIN_REDIS);
}

TEST_EACH(where_we_are_refused_nothing_else_is_sent, 0, COUNT_OF(refused_uris))
{
    size_t count = sizeof(sent_commands) / sizeof(*sent_commands);

    server_do(&fixture.server, "ACL SETUSER u on >pw ~* &* +@all");
    snprintf(uri, sizeof(uri), refused_uris[_i], fixture.server.socket);
    fixture.uri = uri;
    fixture_open(&fixture);
    /* which connection a command uses depends on their state */
    for (int i = 0; i < 10; i++)
        use_all();
    for (size_t i = 0; i < count; i++)
        ck_assert_msg(server_calls(&fixture.server, sent_commands[i]) == 0,
                      "%s was executed", sent_commands[i]);
}

TEST(scripts_that_the_server_has_forgotten_are_sent_again)
{
    struct getter getter = {0};

    fixture_open(&fixture);
    expect_text(fixture.cache, "warm", "warm@1");
    server_do(&fixture.server, "SCRIPT FLUSH");
    table_hold(&fixture.table);
    getter_start(&getter, fixture.cache, "k"); /* acquire */
    WAIT_FOR(table_running(&fixture.table) == 1);
    server_do(&fixture.server, "SCRIPT FLUSH");
    table_release(&fixture.table); /* publish */
    getter_expect(&getter, "k@1", SHED_ORIGIN_LOAD);
    server_do(&fixture.server, "SCRIPT FLUSH");
    invalidate(fixture.cache, "k");
    ck_assert_int_eq(server_int(&fixture.server, "EXISTS t:{k}"), 0);
    server_do(&fixture.server, "SCRIPT FLUSH");
    put(fixture.cache, "k", "mine");
    expect_text(fixture.cache, "k", "mine");
    table_hold(&fixture.table);
    getter = (struct getter){0};
    getter_start(&getter, fixture.cache, "fail");
    WAIT_FOR(table_running(&fixture.table) == 1);
    server_do(&fixture.server, "SCRIPT FLUSH");
    table_release(&fixture.table); /* fail */
    getter_join(&getter);
    EXPECT_CODE(getter.code, SHED_ESOURCE);
    WAIT_FOR(server_int(&fixture.server, "STRLEN t:{fail}") !=
             SHED_ENTRY_HEADER_BYTES); /* of the lease record */
}

/* ------------------------------------------------------------------- leases */

/* When the lease of a key ends, by the server's clock. */
static uint64_t lease_end_ms(const char *key)
{
    enum { UNTIL_OFFSET = 48, LAST = 55 };
    redisReply *bytes = server_run(&fixture.server, "GETRANGE %s %d %d", key,
                                   UNTIL_OFFSET, LAST);
    uint64_t end_ms = 0;

    for (size_t i = 0; i < (size_t)bytes->len; i++)
        end_ms = end_ms << 8 | (unsigned char)bytes->str[i];
    freeReplyObject(bytes);
    return end_ms;
}

/* A load takes ten leases. Returns whether its lease was always renewed, so
 * that a waiter of another client did not load as well. */
static bool is_renewed_for_ten(uint64_t lease_ms, bool is_flushed)
{
    enum { LEASES = 10 };
    struct getter here = {0}, there = {0};
    uint64_t first_ms;
    struct peer peer;
    bool is_renewed;

    fixture.cache_options.lease_ms = lease_ms;
    fixture_open(&fixture);
    peer_open(&peer, &fixture);
    getter_hold(&here, &fixture, "k");
    if (is_flushed)
        server_do(&fixture.server, "SCRIPT FLUSH");
    getter_start(&there, peer.cache, "k");
    WAIT_FOR(stats_of(peer.cache).waits == 1);
    first_ms = lease_end_ms("t:{k}");
    WAIT_FOR(lease_end_ms("t:{k}") >= first_ms + LEASES * lease_ms);
    table_release(&fixture.table);
    getter_join(&here);
    getter_join(&there);
    is_renewed = table_loads(&fixture.table) == 1 &&
                 stats_of(peer.cache).leases_taken_over == 0;
    if (is_renewed) {
        ck_assert_int_eq(here.value->origin, SHED_ORIGIN_LOAD);
        ck_assert_int_eq(there.value->origin, SHED_ORIGIN_WAITED);
    }
    check_text(here.value, "k@1");
    check_text(there.value, "k@1");
    shed_value_unref(here.value);
    shed_value_unref(there.value);
    peer_close(&peer);
    fixture_down(&fixture);
    return is_renewed;
}

/* On a busy machine a process can stop for longer than a short lease; without
 * renewals even the longest lease ends. 1: the server has forgotten the
 * script. */
TEST_EACH(a_lease_is_renewed_as_long_as_the_load_lasts, 0, 2)
{
    enum { SHORTEST_MS = 100, LONGEST_MS = 3000, FACTOR = 3 };
    uint64_t lease_ms = SHORTEST_MS;

    while (!is_renewed_for_ten(lease_ms, _i == 1)) {
        lease_ms *= FACTOR;
        ck_assert_uint_le(lease_ms, LONGEST_MS);
        fixture_init(&fixture);
    }
}

TEST(a_revoked_lease_is_noticed_and_counted)
{
    struct getter getter = {0};

    fixture.cache_options.lease_ms = 100;
    fixture_open(&fixture);
    getter_hold(&getter, &fixture, "k");
    server_do(&fixture.server, "DEL t:{k}");
    WAIT_FOR(stats_of(fixture.cache).leases_lost == 1);
    table_release(&fixture.table);
    getter_expect(&getter, "k@1", SHED_ORIGIN_UNPUBLISHED);
}

/* --------------------------------------------------------------------- fork */

/* Run a function in a child, which must return 0. The parent keeps its
 * connections. */
static void expect_in_child(int (*run)(void))
{
    long long before;
    pid_t child;

    fixture_open(&fixture);
    expect_text(fixture.cache, "k", "k@1");
    wait_for_pushes(&fixture);
    before = server_clients(&fixture.server, "");
    child = fork();
    if (child == 0)
        _exit(run());
    expect_success(child);
    expect_origin(fixture.cache, "k", "k@1", SHED_ORIGIN_REDIS);
    expect_text(fixture.cache, "l", "l@1");
    ck_assert_int_eq(server_clients(&fixture.server, ""), before);
}

static int use_in_child(void)
{
    struct shed_value *value = NULL;
    struct shed_item item = {{"k", 1}, NULL, 0};
    struct shed_cache *cache = NULL;
    struct shed_error err = {0};

    if (shed_get(fixture.cache, shed_str("k"), NULL, &value, &err) !=
            SHED_EFORKED ||
        strstr(err.reason, "fork") == NULL)
        return 1;
    if (shed_get_many(fixture.cache, &item, 1, NULL, NULL) != SHED_EFORKED)
        return 2;
    if (shed_put(fixture.cache, shed_str("k"), shed_str("v"), NULL, NULL) !=
        SHED_EFORKED)
        return 3;
    if (shed_invalidate(fixture.cache, shed_str("k"), 0, NULL) != SHED_EFORKED)
        return 4;
    if (shed_cache_open(fixture.client, "u", fixture.source, BARE_CACHE, &cache,
                        NULL) != SHED_EFORKED)
        return 5;
    shed_cache_close(fixture.cache);
    shed_client_close(fixture.client);
    return 0;
}

TEST(a_child_is_told_so_and_the_parent_goes_on)
{
    expect_in_child(use_in_child);
}

/* Returns: how many sockets are left. */
static int close_in_child(void)
{
    char path[64], target[64];
    int sockets = 0;

    shed_cache_close(fixture.cache);
    shed_client_close(fixture.client);
    for (int fd = 3; fd < 256; fd++) {
        ssize_t n;
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        n = readlink(path, target, sizeof(target));
        sockets += n > 6 && memcmp(target, "socket", 6) == 0;
    }
    return sockets;
}

/* A child that has closed its copy keeps no connection open: when the parent
 * dies, the server notices. */
TEST(a_child_that_closes_the_client_keeps_no_connection_of_it)
{
    expect_in_child(close_in_child);
}

int main(void)
{
    return run_fixture_tests("session");
}
