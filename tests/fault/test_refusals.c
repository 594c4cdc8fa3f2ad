/* The table of src/FAILURES.md, made to happen on a real Redis: what a get of a
 * row that Redis has, a get of one that it has not, an invalidation and an
 * acquire do while it is away or refuses, what is logged, and that all is well
 * again afterwards. */
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include <snowshed/lock.h>

#include "base/breaker.h"
#include "support/awaited.h"
#include "support/fixture.h"

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

/* Loading takes 3 ms for each key, until that delay is set to 0: longer than a
 * test looks. After each key, of 1 kB, it answers what has come meanwhile. */
static void make_loading(void)
{
    server_do(&fixture.server, "CONFIG SET rdbcompression no");
    server_do(&fixture.server, "DEBUG POPULATE 30000 filler 1024");
    server_do(&fixture.server,
              "CONFIG SET loading-process-events-interval-bytes 1024");
    server_do(&fixture.server, "CONFIG SET key-load-delay 3000");
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

static void make_misconf(void)
{
    server_fail_to_save(&fixture.server);
}

static void set_proxy(enum proxy_mode mode)
{
    proxy_set(&proxy, mode, 0, NULL);
}

/* -------------------------------------------------------------------- rows */

enum {
    ANY_CODE = -1,  /* SHED_EREDIS or SHED_ETIMEDOUT */
    ANY_ORIGIN = -1 /* ORIGIN_REDIS until the new role has been noticed */
};

static const struct row {
    const char *name;
    enum shed_code get; /* of both gets */
    int there, gone;    /* origins, if that is SHED_OK */
    int invalidate, acquire;
    const char *log;
    /* how it is made, and ended: by a function, or by commands of which the
     * last word may be empty; is_cut: and connections are lost; or by the proxy
     */
    void (*make)(void), (*end)(void);
    const char *command, *word, *end_command, *end_word;
    bool is_cut;
    enum proxy_mode mode;
} rows[] = {
    {"unreachable", SHED_OK, SHED_ORIGIN_UNPUBLISHED, SHED_ORIGIN_UNPUBLISHED,
     SHED_EREDIS, SHED_EREDIS, "without Redis", .make = make_unreachable,
     .end = end_unreachable},
    {"loading", SHED_OK, SHED_ORIGIN_UNPUBLISHED, SHED_ORIGIN_UNPUBLISHED,
     SHED_EREDIS, SHED_EREDIS, "invalidation undelivered", .make = make_loading,
     .end = end_loading},
    {"a replica", SHED_OK, ANY_ORIGIN, SHED_ORIGIN_UNPUBLISHED, SHED_EREDIS,
     SHED_EREDIS, "without Redis", .command = "REPLICAOF 127.0.0.1 %s",
     .word = "1", .end_command = "REPLICAOF NO %s", .end_word = "ONE"},
    {"out of memory", SHED_OK, SHED_ORIGIN_REDIS, SHED_ORIGIN_UNPUBLISHED,
     SHED_OK, SHED_EREDIS, "OOM", .command = "CONFIG SET maxmemory %s",
     .word = "1", .end_word = "0"},
    {"busy", SHED_OK, SHED_ORIGIN_UNPUBLISHED, SHED_ORIGIN_UNPUBLISHED,
     SHED_EREDIS, SHED_EREDIS, "BUSY", .make = make_busy, .end = end_busy},
    {"cannot save", SHED_OK, SHED_ORIGIN_REDIS, SHED_ORIGIN_UNPUBLISHED,
     SHED_EREDIS, SHED_EREDIS, "MISCONF", .make = make_misconf,
     .end_command = "CONFIG SET stop-writes-on-bgsave-error %s",
     .end_word = "no"},
    {"out of connections", SHED_OK, SHED_ORIGIN_UNPUBLISHED,
     SHED_ORIGIN_UNPUBLISHED, SHED_EREDIS, SHED_EREDIS, "without Redis",
     .command = "CONFIG SET maxclients %s", .word = "1", .end_word = "1000",
     .is_cut = true},
    {"another password", SHED_EDENIED, SHED_ORIGIN_REDIS, SHED_ORIGIN_REDIS,
     SHED_EDENIED, SHED_EDENIED, "refused by Redis",
     .command = "CONFIG SET requirepass %s", .word = "secret", .end_word = "",
     .is_cut = true},
    {"silent", SHED_OK, SHED_ORIGIN_UNPUBLISHED, SHED_ORIGIN_UNPUBLISHED,
     ANY_CODE, ANY_CODE, "without Redis", .mode = PROXY_SWALLOW},
    {"blackhole", SHED_OK, SHED_ORIGIN_UNPUBLISHED, SHED_ORIGIN_UNPUBLISHED,
     SHED_EREDIS, SHED_EREDIS, "no connection within", .mode = PROXY_BLACKHOLE},
};

static void make(const struct row *row)
{
    if (row->make != NULL)
        row->make();
    if (row->command != NULL)
        tell_admin(row->command, row->word);
    if (row->is_cut)
        cut_connections();
    if (row->mode != PROXY_PASS)
        set_proxy(row->mode);
}

static void end(const struct row *row)
{
    if (row->end != NULL)
        row->end();
    if (row->end_word != NULL)
        tell_admin(row->end_command != NULL ? row->end_command : row->command,
                   row->end_word);
    if (row->mode != PROXY_PASS)
        set_proxy(PROXY_PASS);
}

enum { ROWS = sizeof(rows) / sizeof(*rows) };

enum { CALL_MS = 5000 };

static const struct row *fault; /* the one that lasts; NULL: none */
static bool is_async;           /* gets and invalidations do not block */

static bool is_code(int expected, enum shed_code code)
{
    return expected == ANY_CODE ? code == SHED_EREDIS || code == SHED_ETIMEDOUT
                                : (int)code == expected;
}

/* A busy machine can delay an answer beyond the command timeout, so results are
 * waited for. Until then a call may end as without Redis, by its deadline, and
 * in no other way. */
static void check_code(int expected, enum shed_code code)
{
    ck_assert_msg(fault == NULL || is_code(expected, code) ||
                      is_code(ANY_CODE, code),
                  "%s: %s", fault->name, shed_code_name(code));
}

static void check_origin(int expected, int origin)
{
    if (fault == NULL || origin == SHED_ORIGIN_UNPUBLISHED)
        return;
    ck_assert_msg(fault->get == SHED_OK &&
                      (expected == ANY_ORIGIN ? origin == SHED_ORIGIN_REDIS
                                              : origin == expected),
                  "%s: origin %d", fault->name, origin);
}

/* When a call that begins now is late, even on a machine that stops. */
static uint64_t late_from_now_ms(void)
{
    return test_deadline_ms() + scaled_ms(CALL_MS);
}

/* Whether a call ends so. */
static bool gets(const char *key, const char *text, enum shed_code expected,
                 int origin)
{
    uint64_t late_ms = late_from_now_ms();
    struct shed_value *value = NULL;
    enum shed_code code = (is_async ? awaited_get : shed_get)(
        fixture.cache, shed_str(key), WITHIN(scaled_ms(CALL_MS)), &value, NULL);
    bool is_so = code == expected;

    if (value != NULL) {
        int got = (int)value->origin;
        check_text(value, text);
        check_origin(origin, got);
        is_so = is_so && (origin == ANY_ORIGIN || got == origin);
    } else {
        check_code((int)expected, code);
        /* there is a source */
        ck_assert(fault == NULL || code != SHED_EREDIS);
    }
    shed_value_unref(value);
    ck_assert_uint_lt(shed_now_ms(), late_ms);
    return is_so;
}

static bool invalidates(int expected)
{
    uint64_t late_ms = late_from_now_ms();
    enum shed_code code = (is_async ? awaited_invalidate : shed_invalidate)(
        fixture.cache, shed_str("other"), scaled_ms(CALL_MS), NULL);

    ck_assert_uint_lt(shed_now_ms(), late_ms);
    check_code(expected, code);
    return is_code(expected, code);
}

static bool acquires(int expected)
{
    uint64_t late_ms = late_from_now_ms();
    enum shed_code code = shed_lock_acquire(lock, 0, NULL);

    ck_assert_uint_lt(shed_now_ms(), late_ms);
    check_code(expected, code);
    if (code == SHED_OK)
        code = shed_lock_release(lock, NULL);
    return is_code(expected, code);
}

/* A client that gives up soon, and reaches its server over TCP. */
static void init(void)
{
    fixture_hurry(&fixture, 500);
    fixture.client_options.on_log = on_log;
    proxy = (struct proxy){.is_tcp = true};
    proxy_start(&proxy, &fixture.server);
    fixture.proxy = &proxy;
    fixture.uri = proxy.uri;
}

static void open_all(void)
{
    fixture_open(&fixture);
    EXPECT_OK(shed_lock_open(fixture.client, shed_str("l"), NULL, &lock, NULL));
    admin = redisConnectUnix(fixture.server.socket);
    ck_assert(admin != NULL && admin->err == 0);
}

/* A row "there" is in Redis. */
static void expect_all_well(void)
{
    WAIT_FOR(gets("there", "there@1", SHED_OK, SHED_ORIGIN_REDIS));
    WAIT_FOR(acquires(SHED_OK));
}

static void up(void)
{
    init();
    open_all();
    expect_all_well();
}

static void down(void)
{
    redisFree(admin);
    shed_lock_close(lock);
    fixture_down(&fixture);
}

/* What was kept is delivered, and everything is used again. */
static void expect_recovery(void)
{
    WAIT_FOR(undelivered() == 0);
    expect_all_well();
}

/* Calls that block, and then asynchronous ones. */
TEST_EACH(calls_end_as_the_table_of_failures_says, 0, 2 * ROWS)
{
    const struct row *row = &rows[_i % ROWS];

    is_async = _i >= ROWS;
    up();
    make(row);
    fault = row;
    WAIT_UNTIL(gets("there", "there@1", row->get, row->there), row->name);
    WAIT_UNTIL(gets("gone", "gone@1", row->get, row->gone), row->name);
    WAIT_UNTIL(invalidates(row->invalidate), row->name);
    ck_assert_uint_eq(undelivered(), row->invalidate != SHED_OK);
    WAIT_UNTIL(acquires(row->acquire), row->name);
    WAIT_UNTIL(has_line(row->log), row->name);
    fault = NULL;
    end(row);
    expect_recovery();
}

/* -------------------------------------------------------- a long LOADING */

enum { CALLERS = 8, TIMES = 40 };

/* Gets a row that Redis has, and one of its own, again and again. */
static struct caller {
    pthread_t thread;
    atomic_uint calls;
} callers[CALLERS];

static atomic_bool is_over;

static void get_any(const char *key)
{
    struct shed_value *value = NULL;
    enum shed_code code =
        shed_get(fixture.cache, shed_str(key), NULL, &value, NULL);

    ck_assert_msg(code == SHED_OK || code == SHED_EREDIS, "%s",
                  shed_code_name(code));
    shed_value_unref(value);
}

static void *call(void *arg)
{
    struct caller *c = arg;
    char own[16];

    snprintf(own, sizeof(own), "own%d", (int)(c - callers));
    while (!atomic_load(&is_over)) {
        get_any("there");
        get_any(own);
        atomic_fetch_add(&c->calls, 2);
    }
    return NULL;
}

static void start_callers(void)
{
    for (int i = 0; i < CALLERS; i++)
        start_thread(&callers[i].thread, call, &callers[i]);
}

static void join_callers(void)
{
    atomic_store(&is_over, true);
    for (int i = 0; i < CALLERS; i++)
        ck_assert_int_eq(pthread_join(callers[i].thread, NULL), 0);
}

/* It has lasted as long as the calls. */
static void end_long_loading(void)
{
    ck_assert(is_loading());
    join_callers();
    end_loading();
    expect_recovery();
}

static unsigned all_calls(void)
{
    unsigned sum = 0;

    for (int i = 0; i < CALLERS; i++)
        sum += atomic_load(&callers[i].calls);
    return sum;
}

static void wait_for_calls(void)
{
    for (int i = 0; i < CALLERS; i++) {
        unsigned before = atomic_load(&callers[i].calls);
        WAIT_FOR(atomic_load(&callers[i].calls) >= before + TIMES);
    }
}

/* How many commands the server has refused because it was loading. */
static unsigned long count_refusals(void)
{
    static const char prefix[] = "count=";
    char text[32];

    server_info(&fixture.server, "errorstat_LOADING", text, sizeof(text));
    ck_assert_int_eq(strncmp(text, prefix, strlen(prefix)), 0);
    return strtoul(text + strlen(prefix), NULL, 10);
}

static const uint64_t policies[] = {
    SHED_REDIS_DOWN_SOURCE, SHED_REDIS_DOWN_FAIL, SHED_REDIS_DOWN_STALE};

enum { POLICIES = sizeof(policies) / sizeof(*policies) };

/* As after a restart: all connections are made while it is loading. */
static void make_loading_and_connect_again(void)
{
    make_loading();
    set_proxy(PROXY_BLACKHOLE);
    set_proxy(PROXY_PASS);
}

/* A server that loads is slow to answer: it is not to count as silent. */
static void init_to_see_loading(uint64_t redis_down)
{
    init();
    fixture.client_options.connect_timeout_ms = scaled_ms(FIXTURE_SILENCE_MS);
    fixture.client_options.command_timeout_ms = scaled_ms(FIXTURE_SILENCE_MS);
    fixture.cache_options.redis_down = redis_down;
}

/* A pause is at least half a second long, once it has grown. */
TEST_EACH(a_long_loading_costs_a_command_in_each_pause_and_no_connection, 0,
          POLICIES)
{
    enum { SESSION_AND_FIRST_CALLS = 150, PAUSE_MS = 500 };
    uint64_t begun_ms;
    unsigned long refusals;
    unsigned accepted;

    init_to_see_loading(policies[_i]);
    open_all();
    expect_all_well();
    make_loading_and_connect_again();
    accepted = atomic_load(&proxy.accepted);
    refusals = count_refusals();
    begun_ms = shed_now_ms();
    start_callers();
    wait_for_calls();
    ck_assert_uint_ge(all_calls(), CALLERS * TIMES);
    ck_assert_uint_le(count_refusals() - refusals,
                      SESSION_AND_FIRST_CALLS +
                          (shed_now_ms() - begun_ms) / PAUSE_MS);
    ck_assert_uint_le(atomic_load(&proxy.accepted) - accepted,
                      fixture.client_options.links + 2);
    end_long_loading();
}

/* Then they cost only the breaker's tests, however many calls there are. */
TEST_EACH(a_long_loading_with_a_breaker_costs_its_probes, 0, POLICIES)
{
    enum { UNDER_WAY = 4 }; /* what a call may have sent when it opened */
    unsigned long refusals;
    uint64_t opened;

    init_to_see_loading(policies[_i]);
    fixture.client_options.breaker.failure_pct = 50;
    fixture.client_options.breaker.min_calls = 5;
    open_all();
    expect_all_well();
    make_loading_and_connect_again();
    start_callers();
    WAIT_FOR(status_of(fixture.client).breaker == SHED_BREAKER_OPEN);
    opened = status_of(fixture.client).breaker_opened;
    refusals = count_refusals();
    wait_for_calls();
    refusals = count_refusals() - refusals;
    opened = status_of(fixture.client).breaker_opened - opened;
    ck_assert_uint_le(refusals,
                      SHED_BREAKER_PROBES * opened + UNDER_WAY * CALLERS);
    end_long_loading();
}

/* ------------------------------------------------- a connect without answer */

/* A connect that is not answered may take far longer than the call has. */
TEST(a_call_whose_connect_is_not_answered_ends_by_its_deadline)
{
    enum { SOON_MS = 50, NEVER_MS = 600000 };
    struct shed_value *value = NULL;
    struct shed_error err;

    init();
    fixture.client_options.connect_timeout_ms = NEVER_MS;
    set_proxy(PROXY_BLACKHOLE);
    open_all();
    EXPECT_CODE(shed_get(fixture.cache, shed_str("there"), WITHIN(SOON_MS),
                         &value, NULL),
                SHED_ETIMEDOUT);
    ck_assert_ptr_null(value);
    ck_assert(
        is_code(ANY_CODE, shed_invalidate(fixture.cache, shed_str("there"),
                                          SOON_MS, &err)));
    ck_assert_msg(strstr(err.reason, "within 600000 ms") == NULL, "%s",
                  err.reason);
    ck_assert_uint_eq(undelivered(), 1);
    EXPECT_CODE(shed_lock_acquire(lock, SOON_MS, NULL), SHED_EREDIS);
    set_proxy(PROXY_PASS);
    expect_recovery();
}

TEST(a_connect_that_is_not_answered_fails_at_its_timeout)
{
    struct shed_error err;

    init();
    fixture.cache_options.redis_down = SHED_REDIS_DOWN_FAIL;
    fixture.client_options.connect_timeout_ms = 300;
    set_proxy(PROXY_BLACKHOLE);
    open_all();
    expect_code(fixture.cache, "there", SHED_EREDIS, &err);
    ck_assert_msg(strstr(err.reason, "no connection within 300 ms") != NULL,
                  "%s", err.reason);
    WAIT_FOR(strstr(status_of(fixture.client).last.reason,
                    "no connection within 300 ms") != NULL);
    ck_assert_uint_eq(status_of(fixture.client).is_up, 0);
    set_proxy(PROXY_PASS);
    expect_recovery();
}

/* The earlier connections are gone, and no socket can be opened. */
TEST(without_a_descriptor_calls_are_refused_or_do_without_redis)
{
    struct rlimit before, none;

    up();
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = before;
    none.rlim_cur = STDERR_FILENO + 1;
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
    cut_connections();
    WAIT_FOR(gets("there", "there@1", SHED_OK, SHED_ORIGIN_UNPUBLISHED) ||
             gets("there", "there@1", SHED_EBUSY, ANY_ORIGIN));
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
    expect_recovery();
}

static void on_alarm(int number)
{
    (void)number;
}

/* A handler of the program's, which interrupts every system call that can be
 * interrupted. */
TEST(a_storm_of_signals_disturbs_no_call)
{
    const struct sigaction action = {.sa_handler = on_alarm}; /* no restart */
    const struct itimerval storm = {{0, 1000}, {0, 1000}}, calm = {{0}, {0}};
    struct readers readers = {.threads = 4, .gets = 300, .keys = 30};

    up();
    readers.cache = fixture.cache;
    ck_assert_int_eq(sigaction(SIGALRM, &action, NULL), 0);
    ck_assert_int_eq(setitimer(ITIMER_REAL, &storm, NULL), 0);
    readers_run(&readers);
    WAIT_FOR(invalidates(SHED_OK) && acquires(SHED_OK));
    expect_text(fixture.cache, "there", "there@1");
    ck_assert_int_eq(setitimer(ITIMER_REAL, &calm, NULL), 0);
}

int main(void)
{
    tcase_add_checked_fixture(test_case(), fixture_set_up, down);
    return run_tests("refusals");
}
