/* A Redis that hangs, stopped by SIGSTOP: it accepts connections and bytes, and
 * answers nothing. Only calls that were made before that was known wait for it;
 * then the session alone tries whether it answers. */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include <snowshed/event.h>

#include "base/thread.h"
#include "cache/cache.h"
#include "client/client.h"
#include "redis/call.h"
#include "redis/pipe.h"
#include "redis/gate.h"
#include "support/fixture.h"

/* The session's PING, which finds a hang out after some seconds. */
#define PING_MS 3000

/* Longer than a test may take. */
#define NEVER_MS 600000

/* -------------------------------------------------------- what is counted */

static atomic_uint begun;     /* calls over connections of threads */
static atomic_uint waits;     /* calls that a connection has left unanswered */
static atomic_uint tries;     /* connections that the session began to make */
static atomic_uint connected; /* how often it was said to be */
static atomic_bool is_ping_off;

WRAPPED(shed_gate_enter);
WRAPPED(shed_gate_leave);
WRAPPED(shed_conn_start);
WRAPPED(shed_timer_set);

bool __wrap_shed_gate_enter(struct shed_gate *gate,
                            struct shed_health_pass *pass,
                            struct shed_error *err)
{
    if (!shed_thread_is(SHED_THREAD_LOOP))
        atomic_fetch_add(&begun, 1);
    return __real_shed_gate_enter(gate, pass, err);
}

void __wrap_shed_gate_leave(struct shed_gate *gate,
                            const struct shed_health_pass *pass,
                            const struct shed_health_end *end)
{
    if (end->why != NULL &&
        (end->was_tried || end->why->code == SHED_ETIMEDOUT))
        atomic_fetch_add(&waits, 1);
    __real_shed_gate_leave(gate, pass, end);
}

void __wrap_shed_conn_start(struct shed_conn *conn, unsigned term,
                            uint64_t now_ms)
{
    if (shed_thread_is(SHED_THREAD_LOOP))
        atomic_fetch_add(&tries, 1);
    __real_shed_conn_start(conn, term, now_ms);
}

void __wrap_shed_timer_set(struct shed_timer *timer, uint64_t delay_ms)
{
    if (delay_ms != PING_MS || !atomic_load(&is_ping_off))
        __real_shed_timer_set(timer, delay_ms);
}

static void on_event(void *user, const struct shed_event *e)
{
    (void)user;
    if (e->kind == SHED_EVENT_CONNECTED)
        atomic_fetch_add(&connected, 1);
}

/* A client that calls a server silent soon, and tries again soon. */
static void init(uint64_t redis_down)
{
    fixture_hurry(&fixture, 200);
    fixture.client_options.on_event = on_event;
    fixture.cache_options.redis_down = redis_down;
}

static void open_all(void)
{
    fixture_open(&fixture);
    WAIT_FOR(gets_k(SHED_ORIGIN_REDIS));
}

static void up(uint64_t redis_down)
{
    init(redis_down);
    open_all();
}

/* With a client that calls no server silent. */
static void up_patient(uint64_t redis_down)
{
    init(redis_down);
    fixture.client_options.command_timeout_ms = NEVER_MS;
    fixture.client_options.connect_timeout_ms = NEVER_MS;
    open_all();
}

static void thaw(void)
{
    server_thaw(&fixture.server);
    WAIT_FOR(status_of(fixture.client).is_up && gets_k(SHED_ORIGIN_REDIS));
}

/* ------------------------------------------------------------ many threads */

enum { CALLERS = 8, TRIES = 6, ROUNDS = 3 };

/* Gets a key of its own, again and again. */
static struct caller {
    pthread_t thread;
    atomic_uint calls, hits;
} callers[CALLERS];

static atomic_bool is_over;

static void *call(void *arg)
{
    struct caller *c = arg;
    char key[16], text[24];

    snprintf(key, sizeof(key), "k%d", (int)(c - callers));
    snprintf(text, sizeof(text), "%s@1", key);
    while (!atomic_load(&is_over)) {
        struct shed_value *value = NULL;
        enum shed_code code =
            shed_get(fixture.cache, shed_str(key), NULL, &value, NULL);
        ck_assert(code == SHED_OK || code == SHED_EREDIS);
        if (code == SHED_OK) {
            check_text(value, text);
            if (value->origin == SHED_ORIGIN_REDIS)
                atomic_fetch_add(&c->hits, 1);
        }
        shed_value_unref(value);
        atomic_fetch_add(&c->calls, 1);
        usleep(1000); /* leave some of the machine to the others */
    }
    return NULL;
}

/* Wait until each caller has made some more calls, or hits. */
static void wait_for(bool of_hits)
{
    for (int i = 0; i < CALLERS; i++) {
        atomic_uint *count = of_hits ? &callers[i].hits : &callers[i].calls;
        unsigned before = atomic_load(count);
        WAIT_FOR(atomic_load(count) >= before + ROUNDS);
    }
}

/* However often the session tries. A caller may have been about to send when
 * the hang became known; and all may wait once more if a thread that did not
 * run for long reads only then what came before the hang. */
TEST_EACH(once_it_is_known_no_call_waits, SHED_REDIS_DOWN_SOURCE,
          SHED_REDIS_DOWN_STALE + 1)
{
    unsigned waits_before, tries_before, waited;

    up((uint64_t)_i);
    for (int i = 0; i < CALLERS; i++)
        start_thread(&callers[i].thread, call, &callers[i]);
    wait_for(true);
    server_freeze(&fixture.server);
    WAIT_FOR(!status_of(fixture.client).is_up);
    wait_for(false);
    waits_before = atomic_load(&waits);
    tries_before = atomic_load(&tries);
    WAIT_FOR(atomic_load(&tries) >= tries_before + TRIES);
    wait_for(false);
    waited = atomic_load(&waits) - waits_before;
    ck_assert_uint_le(waited, 2 * CALLERS);
    server_thaw(&fixture.server);
    wait_for(true);
    ck_assert(status_of(fixture.client).is_up);
    atomic_store(&is_over, true);
    for (int i = 0; i < CALLERS; i++)
        ck_assert_int_eq(pthread_join(callers[i].thread, NULL), 0);
}

/* ------------------------------------------------------- who finds it out */

TEST(a_call_that_is_not_answered_tells_the_status)
{
    struct shed_error err;

    atomic_store(&is_ping_off, true);
    up(SHED_REDIS_DOWN_FAIL);
    server_freeze(&fixture.server);
    expect_code(fixture.cache, "k", SHED_EREDIS, NULL);
    WAIT_FOR(!status_of(fixture.client).is_up);
    expect_code(fixture.cache, "k", SHED_EREDIS, &err);
    expect_reason(&err, "calls do without it");
    thaw();
}

TEST(calls_that_cannot_wait_for_long_find_it_out_together)
{
    struct shed_value *value = NULL;

    atomic_store(&is_ping_off, true);
    init(SHED_REDIS_DOWN_FAIL);
    fixture.client_options.command_timeout_ms = scaled_ms(FIXTURE_SILENCE_MS);
    open_all();
    server_freeze(&fixture.server);
    WAIT_FOR(shed_get(fixture.cache, shed_str("k"), WITHIN(5), &value, NULL) !=
                 SHED_OK &&
             !status_of(fixture.client).is_up);
    thaw();
}

/* What one connection has found is enough for all. */
TEST(calls_that_wait_end_when_it_is_known)
{
    const struct shed_error why = {SHED_EREDIS, "no answer"};
    struct getter getter = {0};
    unsigned begun_before;

    up_patient(SHED_REDIS_DOWN_FAIL);
    server_freeze(&fixture.server);
    begun_before = atomic_load(&begun);
    getter_start(&getter, fixture.cache, "k");
    WAIT_FOR(atomic_load(&begun) > begun_before);
    shed_gate_tell(shed_client_hold(fixture.client, shed_str(""))->gate,
                   SHED_HEALTH_MISSED, NULL, shed_now_ms(), &why);
    getter_join(&getter);
    EXPECT_CODE(getter.code, SHED_EREDIS);
    expect_reason(&getter.error, "no answer; calls");
    thaw();
}

/* A row of the process will do for a call that does not want to wait. */
TEST(a_soft_timeout_bounds_the_wait_for_redis_too)
{
    enum { SOON_MS = 50, LATE_MS = 20000 };
    const struct shed_get_options *options =
        GET_WITH(.timeout_ms = LATE_MS, .soft_timeout_ms = SOON_MS);
    struct shed_item items[2] = {{.key = {"k", 1}}, {.key = {"l", 1}}};
    uint64_t begun_ms;

    up_patient(SHED_REDIS_DOWN_STALE);
    expect_text(fixture.cache, "l", "l@1");
    server_freeze(&fixture.server);
    begun_ms = shed_now_ms();
    expect_get(fixture.cache, "k", options, "k@1", SHED_ORIGIN_STALE);
    EXPECT_OK(shed_get_many(fixture.cache, items, 2, options, NULL));
    for (int i = 0; i < 2; i++) {
        EXPECT_OK(items[i].code);
        ck_assert_int_eq(items[i].value->origin, SHED_ORIGIN_STALE);
        shed_value_unref(items[i].value);
    }
    ck_assert_uint_lt(shed_now_ms() - begun_ms, LATE_MS / 2);
    thaw();
}

static void *get_softly(void *arg)
{
    struct getter *g = arg;

    g->code = shed_get(g->cache, shed_str(g->key),
                       GET_WITH(.timeout_ms = NEVER_MS, .soft_timeout_ms = 500),
                       &g->value, &g->error);
    return NULL;
}

/* A push, a write or the end of its windows can take it away. */
TEST(without_the_row_that_was_to_do_a_call_waits_for_redis)
{
    struct getter getter = {.key = "k"};
    unsigned begun_before, waits_before;

    up_patient(SHED_REDIS_DOWN_STALE);
    getter.cache = fixture.cache;
    begun_before = atomic_load(&begun);
    waits_before = atomic_load(&waits);
    server_freeze(&fixture.server);
    start_thread(&getter.thread, get_softly, &getter);
    WAIT_FOR(atomic_load(&begun) > begun_before);
    shed_local_drop_all(fixture.cache->local);
    WAIT_FOR(atomic_load(&waits) > waits_before);
    server_thaw(&fixture.server);
    getter_expect(&getter, "k@1", SHED_ORIGIN_REDIS);
}

/* -------------------------------------------------------- who tries again */

/* With nothing to say at the beginning of a connection, connect() alone would
 * pass for an answer. */
TEST(a_connection_that_says_nothing_at_first_is_no_sign_of_life)
{
    unsigned connected_before, tries_before;

    init(SHED_REDIS_DOWN_FAIL);
    server_do(&fixture.server, "ACL SETUSER default -role");
    fixture_open(&fixture);
    WAIT_FOR(gets_k(SHED_ORIGIN_REDIS) && atomic_load(&connected) > 0);
    server_freeze(&fixture.server);
    expect_code(fixture.cache, "k", SHED_EREDIS, NULL);
    WAIT_FOR(!status_of(fixture.client).is_up);
    connected_before = atomic_load(&connected);
    tries_before = atomic_load(&tries);
    WAIT_FOR(atomic_load(&tries) >= tries_before + TRIES);
    ck_assert_uint_eq(atomic_load(&connected), connected_before);
    thaw();
}

/* It hung, and then it is gone: calls find that out by themselves. */
TEST(a_server_that_dies_while_it_hangs_is_reported_as_such)
{
    struct shed_error err;

    up(SHED_REDIS_DOWN_FAIL);
    server_freeze(&fixture.server);
    expect_code(fixture.cache, "k", SHED_EREDIS, NULL);
    server_kill(&fixture.server);
    WAIT_FOR((expect_code(fixture.cache, "k", SHED_EREDIS, &err),
              strstr(err.reason, "calls do without it") == NULL));
    server_start_again(&fixture.server);
    WAIT_FOR(gets_k(SHED_ORIGIN_REDIS));
}

/* ------------------------------------------------ what expires meanwhile */

enum { SLEEP_TTL_MS = 1000 };

/* A get of k, which has at least this version. */
static enum shed_origin get_version(unsigned least)
{
    struct shed_value *value = NULL;
    enum shed_origin origin;

    EXPECT_OK(shed_get(fixture.cache, shed_str("k"), NULL, &value, NULL));
    origin = value->origin;
    ck_assert_uint_eq(value->size, 3);
    ck_assert_int_ge(((const char *)value->data)[2], (char)('0' + least));
    shed_value_unref(value);
    return origin;
}

/* Let Redis have a version of k, and sleep for twice the time that it may live,
 * while the next version is committed. Returns: whether a call did without
 * Redis in that time; on a busy machine none may have found it asleep. */
static bool sleep_over(unsigned version)
{
    bool was_without = false;
    redisContext *asleep;

    table_set_version(&fixture.table, version);
    invalidate(fixture.cache, "k");
    WAIT_FOR(get_version(version) == SHED_ORIGIN_REDIS);
    asleep =
        server_send(&fixture.server, "DEBUG SLEEP %d", 2 * SLEEP_TTL_MS / 1000);
    table_set_version(&fixture.table, version + 1);
    for (unsigned i = 0; i < TRIES; i++)
        was_without |= get_version(version) == SHED_ORIGIN_UNPUBLISHED;
    server_await(asleep);
    for (unsigned i = 0; i < TRIES; i++)
        (void)get_version(version + 1);
    WAIT_FOR(get_version(version + 1) == SHED_ORIGIN_REDIS);
    return was_without;
}

TEST(what_expires_while_redis_sleeps_is_not_given_out_when_it_wakes)
{
    enum { VERSIONS = 9 };
    unsigned version = 1;

    init(SHED_REDIS_DOWN_SOURCE);
    fixture.cache_options.ttl_ms = SLEEP_TTL_MS;
    fixture_open(&fixture);
    while (!sleep_over(version))
        ck_assert_uint_lt(version += 2, VERSIONS);
}

int main(void)
{
    return run_fixture_tests("redis_hang");
}
