/* The table of FAILURES.md, made to happen on a real Redis: what a get of a
 * row that Redis has, a get of one that it has not, an invalidation and an
 * acquire do while it is away or refuses, what is logged, and that all is well
 * again afterwards. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <snowshed/lock.h>

#include "cache/cache.h"
#include "support/fixture.h"

static struct fixture fixture;
static struct proxy proxy;
static struct shed_lock *lock;
static redisContext *admin; /* connected before the fault */

/* ------------------------------------------------------------------- lines */

enum { LINES_MAX = 256, LINE_BYTES = 400 };

static struct {
    pthread_mutex_t mu;
    /* under mu */
    size_t count;
    char line[LINES_MAX][LINE_BYTES];
} told = {.mu = PTHREAD_MUTEX_INITIALIZER};

static void on_log(void *user, enum shed_log_level level, const char *text)
{
    (void)user;
    (void)level;
    pthread_mutex_lock(&told.mu);
    if (told.count < LINES_MAX)
        snprintf(told.line[told.count++], LINE_BYTES, "%s", text);
    pthread_mutex_unlock(&told.mu);
}

static bool has_line(const char *words)
{
    bool has = false;

    pthread_mutex_lock(&told.mu);
    for (size_t i = 0; i < told.count; i++)
        has |= strstr(told.line[i], words) != NULL;
    pthread_mutex_unlock(&told.mu);
    return has;
}

/* ------------------------------------------------------------------ faults */

/* A command in hiredis's format, over the connection from before the fault. */
static void tell_admin(const char *format, ...)
{
    redisReply *reply;
    va_list arguments;

    va_start(arguments, format);
    reply = redisvCommand(admin, format, arguments);
    va_end(arguments);
    ck_assert_msg(reply != NULL && reply->type != REDIS_REPLY_ERROR, "%s: %s",
                  format, reply != NULL ? reply->str : admin->errstr);
    freeReplyObject(reply);
}

static void cut_connections(void)
{
    tell_admin("CLIENT KILL TYPE normal SKIPME yes");
    tell_admin("CLIENT KILL TYPE pubsub");
}

static void make_unreachable(void)
{
    server_kill(&fixture.server);
}

static void end_unreachable(void)
{
    server_start_again(&fixture.server);
}

static bool is_loading(void)
{
    redisReply *reply = server_run(&fixture.server, "GET unrelated");
    bool is_so = reply->type == REDIS_REPLY_ERROR &&
                 strncmp(reply->str, "LOADING", strlen("LOADING")) == 0;

    freeReplyObject(reply);
    return is_so;
}

/* A second per key: it takes until that is set to 0. */
static void make_loading(void)
{
    server_do(&fixture.server, "DEBUG POPULATE 1000 filler 100");
    server_do(&fixture.server,
              "CONFIG SET loading-process-events-interval-bytes 1024");
    server_do(&fixture.server, "CONFIG SET key-load-delay 10000");
    ck_assert_int_eq(redisAppendCommand(admin, "DEBUG RELOAD"), REDIS_OK);
    for (int is_done = 0; !is_done;)
        ck_assert_int_eq(redisBufferWrite(admin, &is_done), REDIS_OK);
    WAIT_FOR(is_loading());
}

static void end_loading(void)
{
    redisReply *reply = NULL;

    server_do(&fixture.server, "CONFIG SET key-load-delay 0");
    ck_assert_int_eq(redisGetReply(admin, (void **)&reply), REDIS_OK);
    freeReplyObject(reply);
    tell_admin("FLUSHALL"); /* the filling has no time to live */
}

static void make_replica(void)
{
    tell_admin("REPLICAOF 127.0.0.1 1");
}

static void end_replica(void)
{
    tell_admin("REPLICAOF NO ONE");
}

static void make_full(void)
{
    tell_admin("CONFIG SET maxmemory 1");
}

static void end_full(void)
{
    tell_admin("CONFIG SET maxmemory 0");
}

static bool is_busy(void)
{
    redisReply *reply = server_run(&fixture.server, "PING");
    bool is_so = reply->type == REDIS_REPLY_ERROR;

    freeReplyObject(reply);
    return is_so;
}

static void make_busy(void)
{
    tell_admin("CONFIG SET busy-reply-threshold 10");
    ck_assert_int_eq(
        redisAppendCommand(admin, "EVAL %s 0", "while true do end"), REDIS_OK);
    for (int is_done = 0; !is_done;)
        ck_assert_int_eq(redisBufferWrite(admin, &is_done), REDIS_OK);
    WAIT_FOR(is_busy());
}

static void end_busy(void)
{
    redisReply *reply = NULL;

    server_do(&fixture.server, "SCRIPT KILL");
    ck_assert_int_eq(redisGetReply(admin, (void **)&reply), REDIS_OK);
    freeReplyObject(reply);
}

static bool has_failed_to_save(void)
{
    char status[8];

    server_info(&fixture.server, "rdb_last_bgsave_status", status,
                sizeof(status));
    return strcmp(status, "err") == 0;
}

/* Where the dump is to be there is a directory, which nobody may replace. */
static void make_misconf(void)
{
    char path[SERVER_PATH_BYTES];

    snprintf(path, sizeof(path), "%s/dump.rdb", fixture.server.dir);
    ck_assert_int_eq(mkdir(path, S_IRWXU), 0);
    tell_admin("CONFIG SET save %s", "3600 1");
    tell_admin("BGSAVE");
    WAIT_FOR(has_failed_to_save());
}

static void end_misconf(void)
{
    tell_admin("CONFIG SET stop-writes-on-bgsave-error no");
}

static void make_crowded(void)
{
    tell_admin("CONFIG SET maxclients 1");
    cut_connections();
}

static void end_crowded(void)
{
    tell_admin("CONFIG SET maxclients 1000");
}

static void make_locked_up(void)
{
    tell_admin("CONFIG SET requirepass secret");
    cut_connections();
}

static void end_locked_up(void)
{
    tell_admin("CONFIG SET requirepass %s", "");
}

static void make_silent(void)
{
    proxy_set(&proxy, PROXY_SWALLOW, 0, NULL);
}

static void end_silent(void)
{
    proxy_set(&proxy, PROXY_PASS, 0, NULL);
}

/* -------------------------------------------------------------------- rows */

enum {
    ANY_CODE = -1,  /* SHED_EREDIS or SHED_ETIMEDOUT */
    ANY_ORIGIN = -1 /* ORIGIN_REDIS until the new role has been noticed */
};

static const struct row {
    const char *name;
    void (*make)(void), (*end)(void);
    enum shed_code get; /* of both gets */
    int there, gone;    /* origins, if that is SHED_OK */
    int invalidate, acquire;
    const char *log;
} rows[] = {
    {"unreachable", make_unreachable, end_unreachable, SHED_OK,
     SHED_ORIGIN_UNPUBLISHED, SHED_ORIGIN_UNPUBLISHED, SHED_EREDIS, SHED_EREDIS,
     "without Redis"},
    {"loading", make_loading, end_loading, SHED_OK, SHED_ORIGIN_UNPUBLISHED,
     SHED_ORIGIN_UNPUBLISHED, SHED_EREDIS, SHED_EREDIS, "invalidation kept"},
    {"a replica", make_replica, end_replica, SHED_OK, ANY_ORIGIN,
     SHED_ORIGIN_UNPUBLISHED, SHED_EREDIS, SHED_EREDIS, "without Redis"},
    {"out of memory", make_full, end_full, SHED_OK, SHED_ORIGIN_REDIS,
     SHED_ORIGIN_UNPUBLISHED, SHED_OK, SHED_EREDIS, "OOM"},
    {"busy", make_busy, end_busy, SHED_OK, SHED_ORIGIN_UNPUBLISHED,
     SHED_ORIGIN_UNPUBLISHED, SHED_EREDIS, SHED_EREDIS, "BUSY"},
    {"cannot save", make_misconf, end_misconf, SHED_OK, SHED_ORIGIN_REDIS,
     SHED_ORIGIN_UNPUBLISHED, SHED_EREDIS, SHED_EREDIS, "MISCONF"},
    {"out of connections", make_crowded, end_crowded, SHED_OK,
     SHED_ORIGIN_UNPUBLISHED, SHED_ORIGIN_UNPUBLISHED, SHED_EREDIS, SHED_EREDIS,
     "max number of clients"},
    {"another password", make_locked_up, end_locked_up, SHED_EDENIED,
     SHED_ORIGIN_REDIS, SHED_ORIGIN_REDIS, SHED_EDENIED, SHED_EDENIED,
     "refused by Redis"},
    {"silent", make_silent, end_silent, SHED_OK, SHED_ORIGIN_UNPUBLISHED,
     SHED_ORIGIN_UNPUBLISHED, ANY_CODE, ANY_CODE, "without Redis"},
};

enum { ROWS = sizeof(rows) / sizeof(*rows) };

/* A client that gives up soon, a row "there" in Redis, and a lock. */
static void up(void)
{
    struct shed_lock_options o = SHED_LOCK_OPTIONS_INIT;

    fixture_init(&fixture);
    fixture.client_options.connect_timeout_ms = scaled_ms(200);
    fixture.client_options.command_timeout_ms = scaled_ms(200);
    fixture.client_options.reconnect_max_ms = 50;
    fixture.client_options.on_log = on_log;
    fixture_add_proxy(&fixture, &proxy);
    fixture_open(&fixture);
    expect_origin(fixture.cache, "there", "there@1", SHED_ORIGIN_LOAD);
    ck_assert_int_eq(
        shed_lock_open(fixture.client, shed_str("l"), &o, &lock, NULL),
        SHED_OK);
    ck_assert_int_eq(shed_lock_acquire(lock, scaled_ms(10000), NULL), SHED_OK);
    ck_assert_int_eq(shed_lock_release(lock, NULL), SHED_OK);
    admin = redisConnectUnix(fixture.server.socket);
    ck_assert(admin != NULL && admin->err == 0);
}

static void down(void)
{
    redisFree(admin);
    shed_lock_close(lock);
    fixture_down(&fixture);
}

static void check_get(const struct row *row, const char *key, const char *text,
                      int origin)
{
    if (row->get != SHED_OK)
        expect_code(fixture.cache, key, row->get, NULL);
    else if (origin == ANY_ORIGIN)
        expect_text(fixture.cache, key, text);
    else
        expect_origin(fixture.cache, key, text, (enum shed_origin)origin);
}

static void check_code(const struct row *row, const char *call, int expected,
                       enum shed_code code, const char *reason)
{
    bool is_right = expected == ANY_CODE
                        ? code == SHED_EREDIS || code == SHED_ETIMEDOUT
                        : (int)code == expected;

    ck_assert_msg(is_right, "%s: %s: %s: %s", row->name, call,
                  shed_code_name(code), reason);
}

static void check_writes(const struct row *row)
{
    struct shed_error err = {SHED_OK, ""};
    enum shed_code code =
        shed_invalidate(fixture.cache, shed_str("other"), 0, &err);

    check_code(row, "invalidate", row->invalidate, code, err.reason);
    ck_assert_uint_eq(shed_outbox_count(fixture.cache->outbox),
                      code != SHED_OK);
    code = shed_lock_acquire(lock, 0, &err);
    check_code(row, "acquire", row->acquire, code, err.reason);
}

/* What was kept is delivered, and everything is used again. */
static void expect_recovery(void)
{
    uint64_t before = stats_of(fixture.cache).hits;
    enum shed_code code;

    WAIT_FOR(shed_outbox_count(fixture.cache->outbox) == 0);
    WAIT_FOR((expect_text(fixture.cache, "there", "there@1"),
              stats_of(fixture.cache).hits > before));
    WAIT_FOR((code = shed_lock_acquire(lock, 0, NULL)) == SHED_OK);
    ck_assert_int_eq(shed_lock_release(lock, NULL), SHED_OK);
}

START_TEST(calls_end_as_the_table_of_failures_says)
{
    const struct row *row = &rows[_i];

    up();
    row->make();
    check_get(row, "there", "there@1", row->there);
    check_get(row, "gone", "gone@1", row->gone);
    check_writes(row);
    WAIT_UNTIL(has_line(row->log), row->name);
    row->end();
    expect_recovery();
    down();
}
END_TEST

int main(void)
{
    TCase *tc = tcase_create("refusals");

    tcase_set_timeout(tc, TEST_TIMEOUT_S);
    tcase_add_loop_test(tc, calls_end_as_the_table_of_failures_says, 0, ROWS);
    return run_tests("refusals", tc);
}
