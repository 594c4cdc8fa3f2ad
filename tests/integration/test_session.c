/* A client's dealings with its Redis: what it is allowed, what it has to say
 * again, its leases, and fork. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <snowshed/lock.h>
#include <snowshed/stats.h>

#include "cache/entry.h"
#include "support/rig.h"

static struct rig rig;
static char uri[SERVER_URI_BYTES + 64];

/* ---------------------------------------------------------- what is allowed */

/* A user that lacks something; the caches of two clients work all the same:
 * one load, and a waiter that hears of it. */
static void work_as_user(const char *rights)
{
    struct getter here = {0}, there = {0};
    struct peer peer;

    rig_init(&rig);
    server_do(&rig.server, rights);
    snprintf(uri, sizeof(uri), "unix://u:pw@%s", rig.server.socket);
    rig.uri = uri;
    rig_open(&rig);
    peer_open(&peer, &rig);
    table_hold(&rig.table);
    getter_start(&here, rig.cache, "k");
    WAIT_FOR(table_running(&rig.table) == 1);
    getter_start(&there, peer.cache, "k");
    WAIT_FOR(stats_of(peer.cache).polls > 2);
    table_release(&rig.table);
    getter_expect(&here, "k@1", SHED_ORIGIN_LOAD);
    getter_expect(&there, "k@1", SHED_ORIGIN_REDIS);
    ck_assert_uint_eq(table_loads(&rig.table), 1);
    ck_assert_uint_eq(stats_of(peer.cache).pushes, 0);
    ck_assert_int_eq(server_clients(&rig.server, "flags=t"), 0);
    peer_close(&peer);
    rig_down(&rig);
}

START_TEST(without_the_right_to_track_waiters_poll)
{
    work_as_user("ACL SETUSER u on >pw ~* &* +@all -client|tracking");
}
END_TEST

START_TEST(without_the_right_to_ask_for_subscribers_waiters_poll)
{
    work_as_user("ACL SETUSER u on >pw ~* &* +@all -client|tracking -pubsub");
}
END_TEST

START_TEST(without_the_right_to_channels_waiters_poll)
{
    work_as_user("ACL SETUSER u on >pw ~* resetchannels +@all");
}
END_TEST

START_TEST(with_all_rights_waiters_are_pushed)
{
    struct getter here = {0}, there = {0};
    struct peer peer;

    rig_up(&rig);
    peer_open(&peer, &rig);
    WAIT_FOR(server_clients(&rig.server, "flags=t") == 2);
    table_hold(&rig.table);
    getter_start(&here, rig.cache, "k");
    WAIT_FOR(table_running(&rig.table) == 1);
    getter_start(&there, peer.cache, "k");
    WAIT_FOR(stats_of(peer.cache).waits == 1);
    table_release(&rig.table);
    getter_expect(&here, "k@1", SHED_ORIGIN_LOAD);
    getter_expect(&there, "k@1", SHED_ORIGIN_REDIS);
    ck_assert_uint_ge(stats_of(peer.cache).pushes, 1);
    peer_close(&peer);
    rig_down(&rig);
}
END_TEST

/* ------------------------------------------------------------ said once more
 */

START_TEST(a_new_connection_says_who_it_is_and_which_database_it_means)
{
    uint64_t before;

    rig_init(&rig);
    server_do(&rig.server, "ACL SETUSER u on >p@ss ~* &* +@all");
    snprintf(uri, sizeof(uri), "unix://u:p%%40ss@%s?db=3", rig.server.socket);
    rig.uri = uri;
    rig_open(&rig);
    for (int i = 0; i < 20; i++) {
        expect_text(rig.cache, "k", "k@1");
        invalidate(rig.cache, "k");
        ck_assert_int_gt(server_int(&rig.server, "CLIENT KILL USER u"), 0);
    }
    /* with both connections just lost, it may once come from the source alone
     */
    before = stats_of(rig.cache).published;
    WAIT_FOR((expect_text(rig.cache, "k", "k@1"),
              stats_of(rig.cache).published > before));
    ck_assert_int_eq(server_int(&rig.server, "DBSIZE"), 0);
    server_do(&rig.server, "SWAPDB 0 3");
    ck_assert_int_eq(server_int(&rig.server, "EXISTS t:{k}"), 1);
    rig_down(&rig);
}
END_TEST

static void expect_refused_lock(uint64_t wait_ms)
{
    struct shed_lock *lock = NULL;

    ck_assert_int_eq(
        shed_lock_open(rig.client, shed_str("job"), NULL, &lock, NULL),
        SHED_OK);
    ck_assert_int_eq(shed_lock_acquire(lock, wait_ms, NULL), SHED_EDENIED);
    shed_lock_close(lock);
}

/* What a client that Redis refuses gets, and how often it has tried. */
static void check_refused(const char *count_command, const char *secret)
{
    enum { GETS = 500, TRIES_MAX = 40, SPAN_MS = 300 };
    struct shed_value *value = NULL;
    struct shed_error err = {0};
    uint64_t begin_ms = shed_now_ms(), spans;

    rig.uri = uri;
    rig_open(&rig);
    for (int i = 0; i < GETS || shed_now_ms() < begin_ms + SPAN_MS; i++) {
        err.reason[0] = '\0';
        ck_assert_int_eq(shed_get(rig.cache, shed_str("k"), 0, &value, &err),
                         SHED_EDENIED);
        ck_assert_ptr_null(strstr(err.reason, secret));
    }
    ck_assert_uint_gt(strlen(err.reason), 0);
    ck_assert_int_eq(shed_invalidate(rig.cache, shed_str("k"), 0, &err),
                     SHED_EDENIED);
    ck_assert_ptr_null(strstr(err.reason, secret));
    ck_assert_int_eq(shed_put(rig.cache, shed_str("k"), shed_str("v"), 0, &err),
                     SHED_EDENIED);
    expect_refused_lock(0);
    expect_refused_lock(200);
    spans = (shed_now_ms() - begin_ms) / SPAN_MS; /* many where all is slow */
    ck_assert_int_le(server_calls(&rig.server, count_command),
                     TRIES_MAX * (long long)spans);
    ck_assert_uint_eq(table_loads(&rig.table), 0);
    rig_down(&rig);
}

START_TEST(a_wrong_password_is_denied_without_a_storm_and_never_told)
{
    rig_init(&rig);
    server_do(&rig.server, "ACL SETUSER u on >right ~* &* +@all");
    snprintf(uri, sizeof(uri), "unix://u:hunter2@%s", rig.server.socket);
    check_refused("auth", "hunter2");
}
END_TEST

START_TEST(a_missing_password_is_denied)
{
    rig_init(&rig);
    server_do(&rig.server, "CONFIG SET requirepass hunter2");
    rig.server.password = "hunter2";
    snprintf(uri, sizeof(uri), "%s", rig.server.uri);
    /* our own connections say AUTH once each */
    check_refused("select", "hunter2");
}
END_TEST

START_TEST(a_database_that_is_not_there_is_denied)
{
    rig_init(&rig);
    server_do(&rig.server, "ACL SETUSER u on >hunter2 ~* &* +@all");
    snprintf(uri, sizeof(uri), "unix://u:hunter2@%s?db=999", rig.server.socket);
    check_refused("select", "hunter2");
}
END_TEST

START_TEST(a_password_that_nobody_asks_for_is_denied)
{
    rig_init(&rig);
    snprintf(uri, sizeof(uri), "unix://:hunter2@%s", rig.server.socket);
    check_refused("auth", "hunter2");
}
END_TEST

/* It answers with what it was sent. */
START_TEST(a_server_without_auth_is_denied_and_the_password_not_told)
{
    struct server server = {.options = {"--rename-command", "AUTH", ""}};
    struct shed_client_status status = {0};
    struct shed_client *client;

    server_start(&server);
    snprintf(uri, sizeof(uri), "unix://:hunter2@%s", server.socket);
    ck_assert_int_eq(shed_client_open(uri, NULL, &client, NULL), SHED_OK);
    WAIT_FOR(shed_client_status_read(client, &status, sizeof(status), NULL) ==
                 SHED_OK &&
             status.last.code == SHED_EDENIED);
    ck_assert_ptr_nonnull(strstr(status.last.reason, "AUTH"));
    ck_assert_ptr_null(strstr(status.last.reason, "hunter2"));
    shed_client_close(client);
    server_stop(&server);
}
END_TEST

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

static bool is_up(void)
{
    struct shed_client_status status;

    ck_assert_int_eq(
        shed_client_status_read(rig.client, &status, sizeof(status), NULL),
        SHED_OK);
    return status.is_up == 1;
}

/* What Prometheus is told. */
static void expect_gauge(const char *line)
{
    static char text[65536];

    ck_assert_uint_lt(shed_stats_prometheus(&rig.cache, 1, text, sizeof(text)),
                      sizeof(text));
    ck_assert_ptr_nonnull(strstr(text, line));
}

static long long connections(void)
{
    char number[32];

    server_info(&rig.server, "total_connections_received", number,
                sizeof(number));
    return strtoll(number, NULL, 10);
}

START_TEST(each_change_of_the_standing_is_told_once)
{
    enum { TRIES = 20 };
    static const enum shed_log_level levels[] = {
        SHED_LOG_INFO, SHED_LOG_WARNING, SHED_LOG_INFO, SHED_LOG_WARNING,
        SHED_LOG_ERROR};
    size_t count = sizeof(levels) / sizeof(*levels);
    struct shed_client_status status;
    long long before;

    rig_init(&rig);
    rig.client_options.on_log = write_down;
    rig.client_options.log_user = &told;
    rig.client_options.reconnect_max_ms = 20;
    rig_open(&rig);
    WAIT_FOR(is_up());
    expect_gauge("snowshed_redis_up{cache=\"t\"} 1\n");
    server_kill(&rig.server);
    WAIT_FOR(!is_up());
    expect_gauge("snowshed_redis_up{cache=\"t\"} 0\n");
    server_start_again(&rig.server);
    WAIT_FOR(is_up());
    server_do(&rig.server, "CONFIG SET requirepass hunter2");
    rig.server.password = "hunter2";
    server_do(&rig.server, "CLIENT KILL TYPE normal SKIPME yes");
    WAIT_FOR(told_count() == count);
    before = connections();
    WAIT_FOR(connections() > before + TRIES);
    ck_assert_uint_eq(told_count(), count);
    for (size_t i = 0; i < count; i++)
        ck_assert_int_eq(told.level[i], levels[i]);
    ck_assert_int_eq(
        shed_client_status_read(rig.client, &status, sizeof(status), NULL),
        SHED_OK);
    ck_assert_uint_eq(status.is_up, 0);
    ck_assert_int_eq(status.last.code, SHED_EDENIED);
    ck_assert_ptr_nonnull(strstr(told.text[count - 1], status.last.reason));
    rig_close(&rig);
    server_stop(&rig.server);
}
END_TEST

/* Where we are refused, and what would run nevertheless: in the database 0, or
 * as the default user, who may do all. */
static const char *const refused_uris[] = {"unix://u:pw@%s?db=999",
                                           "unix://u:wrong@%s"};
static const char *const sent_commands[] = {
    "get",         "set",       "evalsha",   "eval",           "time",
    "script|load", "client|id", "subscribe", "client|tracking"};

static void use_all(void)
{
    struct shed_lock_options o = SHED_LOCK_OPTIONS_INIT;
    struct shed_value *value = NULL;
    struct shed_lock *lock = NULL;

    (void)!shed_get(rig.cache, shed_str("k"), 0, &value, NULL);
    shed_value_unref(value);
    (void)!shed_put(rig.cache, shed_str("k"), shed_str("v"), 0, NULL);
    (void)!shed_invalidate(rig.cache, shed_str("k"), 0, NULL);
    ck_assert_int_eq(
        shed_lock_open(rig.client, shed_str("zoo"), &o, &lock, NULL), SHED_OK);
    ck_assert_int_ne(shed_lock_acquire(lock, 200, NULL), SHED_OK);
    shed_lock_close(lock);
}

START_TEST(where_we_are_refused_nothing_else_is_sent)
{
    size_t count = sizeof(sent_commands) / sizeof(*sent_commands);

    rig_init(&rig);
    server_do(&rig.server, "ACL SETUSER u on >pw ~* &* +@all");
    snprintf(uri, sizeof(uri), refused_uris[_i], rig.server.socket);
    rig.uri = uri;
    rig.client_options.reconnect_max_ms = 20;
    rig_open(&rig);
    /* which way each command goes depends on where the connections are */
    for (int i = 0; i < 10; i++)
        use_all();
    for (size_t i = 0; i < count; i++)
        ck_assert_msg(server_calls(&rig.server, sent_commands[i]) == 0,
                      "%s was executed", sent_commands[i]);
    rig_down(&rig);
}
END_TEST

START_TEST(scripts_that_the_server_has_forgotten_are_sent_again)
{
    struct getter getter = {0};

    rig_up(&rig);
    expect_text(rig.cache, "warm", "warm@1");
    server_do(&rig.server, "SCRIPT FLUSH");
    table_hold(&rig.table);
    getter_start(&getter, rig.cache, "k"); /* acquire */
    WAIT_FOR(table_running(&rig.table) == 1);
    server_do(&rig.server, "SCRIPT FLUSH");
    table_release(&rig.table); /* publish */
    getter_expect(&getter, "k@1", SHED_ORIGIN_LOAD);
    server_do(&rig.server, "SCRIPT FLUSH");
    invalidate(rig.cache, "k");
    ck_assert_int_eq(server_int(&rig.server, "EXISTS t:{k}"), 0);
    server_do(&rig.server, "SCRIPT FLUSH");
    put(rig.cache, "k", "mine");
    expect_text(rig.cache, "k", "mine");
    table_hold(&rig.table);
    getter = (struct getter){0};
    getter_start(&getter, rig.cache, "fail");
    WAIT_FOR(table_running(&rig.table) == 1);
    server_do(&rig.server, "SCRIPT FLUSH");
    table_release(&rig.table); /* fail */
    getter_join(&getter);
    ck_assert_int_eq(getter.code, SHED_ESOURCE);
    WAIT_FOR(server_int(&rig.server, "STRLEN t:{fail}") !=
             SHED_ENTRY_HEADER_BYTES); /* the lease record's */
    rig_down(&rig);
}
END_TEST

/* ------------------------------------------------------------------- leases */

/* When the lease of a key ends, by the server's clock. */
static uint64_t lease_end_ms(const char *key)
{
    enum { UNTIL_OFFSET = 48, LAST = 55 };
    redisReply *bytes =
        server_run(&rig.server, "GETRANGE %s %d %d", key, UNTIL_OFFSET, LAST);
    uint64_t end_ms = 0;

    for (size_t i = 0; i < (size_t)bytes->len; i++)
        end_ms = end_ms << 8 | (unsigned char)bytes->str[i];
    freeReplyObject(bytes);
    return end_ms;
}

/* A load lasts ten leases. Returns whether its lease was renewed all the time,
 * so that a process which waits in another client did not load too. */
static bool is_renewed_for_ten(uint64_t lease_ms, bool is_flushed)
{
    enum { LEASES = 10 };
    struct getter here = {0}, there = {0};
    uint64_t first_ms;
    struct peer peer;
    bool is_renewed;

    rig_init(&rig);
    rig.cache_options.lease_ms = lease_ms;
    rig_open(&rig);
    peer_open(&peer, &rig);
    table_hold(&rig.table);
    getter_start(&here, rig.cache, "k");
    WAIT_FOR(table_running(&rig.table) == 1);
    if (is_flushed)
        server_do(&rig.server, "SCRIPT FLUSH");
    getter_start(&there, peer.cache, "k");
    WAIT_FOR(stats_of(peer.cache).waits == 1);
    first_ms = lease_end_ms("t:{k}");
    WAIT_FOR(lease_end_ms("t:{k}") >= first_ms + LEASES * lease_ms);
    table_release(&rig.table);
    getter_join(&here);
    getter_join(&there);
    is_renewed = table_loads(&rig.table) == 1 &&
                 stats_of(peer.cache).leases_taken_over == 0;
    if (is_renewed) {
        ck_assert_int_eq(shed_value_origin(here.value), SHED_ORIGIN_LOAD);
        ck_assert_int_eq(shed_value_origin(there.value), SHED_ORIGIN_REDIS);
    }
    check_text(here.value, "k@1");
    check_text(there.value, "k@1");
    shed_value_unref(here.value);
    shed_value_unref(there.value);
    peer_close(&peer);
    rig_down(&rig);
    return is_renewed;
}

/* On a busy machine a process can stop for longer than a short lease; without
 * renewals the longest lease ends as well. */
static void load_for_ten_leases(bool is_flushed)
{
    enum { SHORTEST_MS = 100, LONGEST_MS = 3000, FACTOR = 3 };
    uint64_t lease_ms = SHORTEST_MS;

    while (!is_renewed_for_ten(lease_ms, is_flushed)) {
        lease_ms *= FACTOR;
        ck_assert_uint_le(lease_ms, LONGEST_MS);
    }
}

START_TEST(a_lease_is_renewed_as_long_as_the_load_lasts)
{
    load_for_ten_leases(false);
}
END_TEST

START_TEST(a_lease_is_renewed_by_a_server_that_has_forgotten_the_script)
{
    load_for_ten_leases(true);
}
END_TEST

START_TEST(a_revoked_lease_is_noticed_and_counted)
{
    struct getter getter = {0};

    rig_init(&rig);
    rig.cache_options.lease_ms = 100;
    rig_open(&rig);
    table_hold(&rig.table);
    getter_start(&getter, rig.cache, "k");
    WAIT_FOR(table_running(&rig.table) == 1);
    server_do(&rig.server, "DEL t:{k}");
    WAIT_FOR(stats_of(rig.cache).leases_lost == 1);
    table_release(&rig.table);
    getter_expect(&getter, "k@1", SHED_ORIGIN_UNPUBLISHED);
    rig_down(&rig);
}
END_TEST

/* --------------------------------------------------------------------- fork */

static int use_in_child(void)
{
    struct shed_value *value = NULL;
    struct shed_item item = {{"k", 1}, NULL, 0};
    struct shed_cache *cache = NULL;
    struct shed_error err = {0};

    if (shed_get(rig.cache, shed_str("k"), 0, &value, &err) != SHED_EFORKED ||
        strstr(err.reason, "fork") == NULL)
        return 1;
    if (shed_get_many(rig.cache, &item, 1, 0, NULL) != SHED_EFORKED)
        return 2;
    if (shed_put(rig.cache, shed_str("k"), shed_str("v"), 0, NULL) !=
        SHED_EFORKED)
        return 3;
    if (shed_invalidate(rig.cache, shed_str("k"), 0, NULL) != SHED_EFORKED)
        return 4;
    if (shed_cache_open(rig.client, "u", rig.source, NULL, &cache, NULL) !=
        SHED_EFORKED)
        return 5;
    shed_cache_close(rig.cache);
    shed_client_close(rig.client);
    return 0;
}

START_TEST(a_child_is_told_so_and_the_parent_goes_on)
{
    pid_t child;
    int status = -1;
    long long before;

    rig_up(&rig);
    expect_text(rig.cache, "k", "k@1");
    wait_for_pushes(&rig);
    before = server_clients(&rig.server, "");
    child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0)
        _exit(use_in_child());
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFEXITED(status));
    ck_assert_int_eq(WEXITSTATUS(status), 0);
    expect_origin(rig.cache, "k", "k@1", SHED_ORIGIN_REDIS);
    expect_text(rig.cache, "l", "l@1");
    ck_assert_int_eq(server_clients(&rig.server, ""), before);
    rig_down(&rig);
}
END_TEST

/* A child that has closed its copy holds nothing open: when the parent dies,
 * the server sees it go. */
START_TEST(a_child_that_closes_the_client_keeps_no_connection_of_it)
{
    char path[64], target[64];
    int sockets = 0, status = -1;
    pid_t child;

    rig_up(&rig);
    expect_text(rig.cache, "k", "k@1");
    wait_for_pushes(&rig);
    child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        shed_cache_close(rig.cache);
        shed_client_close(rig.client);
        for (int fd = 3; fd < 256; fd++) {
            ssize_t n;
            snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
            n = readlink(path, target, sizeof(target));
            sockets += n > 6 && memcmp(target, "socket", 6) == 0;
        }
        _exit(sockets);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFEXITED(status));
    ck_assert_int_eq(WEXITSTATUS(status), 0);
    rig_down(&rig);
}
END_TEST

int main(void)
{
    TCase *tc = tcase_create("session");

    tcase_set_timeout(tc, TEST_TIMEOUT_S);
    tcase_add_test(tc, without_the_right_to_track_waiters_poll);
    tcase_add_test(tc, without_the_right_to_ask_for_subscribers_waiters_poll);
    tcase_add_test(tc, without_the_right_to_channels_waiters_poll);
    tcase_add_test(tc, with_all_rights_waiters_are_pushed);
    tcase_add_test(tc,
                   a_new_connection_says_who_it_is_and_which_database_it_means);
    tcase_add_test(tc,
                   a_wrong_password_is_denied_without_a_storm_and_never_told);
    tcase_add_test(tc, a_missing_password_is_denied);
    tcase_add_test(tc, a_database_that_is_not_there_is_denied);
    tcase_add_test(tc, a_password_that_nobody_asks_for_is_denied);
    tcase_add_test(tc,
                   a_server_without_auth_is_denied_and_the_password_not_told);
    tcase_add_test(tc, each_change_of_the_standing_is_told_once);
    tcase_add_loop_test(tc, where_we_are_refused_nothing_else_is_sent, 0,
                        sizeof(refused_uris) / sizeof(*refused_uris));
    tcase_add_test(tc, scripts_that_the_server_has_forgotten_are_sent_again);
    tcase_add_test(tc, a_lease_is_renewed_as_long_as_the_load_lasts);
    tcase_add_test(
        tc, a_lease_is_renewed_by_a_server_that_has_forgotten_the_script);
    tcase_add_test(tc, a_revoked_lease_is_noticed_and_counted);
    tcase_add_test(tc, a_child_is_told_so_and_the_parent_goes_on);
    tcase_add_test(tc,
                   a_child_that_closes_the_client_keeps_no_connection_of_it);
    return run_tests("session", tc);
}
