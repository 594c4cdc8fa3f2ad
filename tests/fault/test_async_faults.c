/* Asynchronous calls while Redis, the source or the cache itself goes away
 * under them: each ends once, by its deadline, with a right answer or a right
 * code, and gives its memory back. */
#include <malloc.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "cache/cache.h"
#include "support/awaited.h"
#include "support/fixture.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define IS_SANITIZED true
#else
#define IS_SANITIZED false
#endif

static struct proxy proxy;

/* ------------------------------------------------------- lost connections */

#define ONLY_CACHED GET_WITH(.only_cached = 1)

static enum shed_code put_k(const char *row)
{
    return awaited_put(fixture.cache, shed_str("k"), shed_str(row), NULL, NULL);
}

/* Without a value. */
static void expect_end(const char *key, const struct shed_get_options *options,
                       enum shed_code code)
{
    struct shed_value *value;

    EXPECT_CODE(
        awaited_get(fixture.cache, shed_str(key), options, &value, NULL), code);
    ck_assert_ptr_null(value);
}

static void expect_value(const struct shed_get_options *options,
                         const char *text, enum shed_origin origin)
{
    struct shed_value *value;

    EXPECT_OK(awaited_get(fixture.cache, shed_str("k"), options, &value, NULL));
    check_text(value, text);
    ck_assert_int_eq(value->origin, origin);
    shed_value_unref(value);
}

static void up_behind_a_proxy(void)
{
    fixture.client_options.breaker.failure_pct = 1;
    fixture.client_options.breaker.min_calls = 1;
    fixture_add_proxy(&fixture, &proxy);
    fixture_open(&fixture);
    wait_for_pushes(&fixture);
}

/* Its reply is lost with its connection. */
static void lose_next_reply(void)
{
    proxy_set(&proxy, PROXY_CUT_ONE, 0, NULL);
}

/* As a call that blocks, it goes once more over the next one; so that is no
 * failure of Redis. */
TEST(a_lost_connection_costs_no_call_its_answer)
{
    up_behind_a_proxy();
    EXPECT_OK(put_k("row"));
    lose_next_reply();
    expect_value(ONLY_CACHED, "row", SHED_ORIGIN_REDIS);
    lose_next_reply();
    EXPECT_OK(awaited_invalidate(fixture.cache, shed_str("k"), 0, NULL));
    expect_end("k", ONLY_CACHED, SHED_EMISS);
    ck_assert_uint_eq(status_of(fixture.client).breaker_opened, 0);
}

/* It may still be carried out where it was lost, so it ends when it cannot. */
TEST(a_put_that_was_lost_goes_once_more_and_is_not_carried_out_late)
{
    enum { PUT_MS = 1000 };
    uint64_t begun_ms;

    up_behind_a_proxy();
    EXPECT_OK(put_k("one"));
    lose_next_reply();
    begun_ms = shed_now_ms();
    EXPECT_OK(put_k("two"));
    ck_assert_uint_ge(shed_now_ms() - begun_ms, PUT_MS - 1);
    expect_text(fixture.cache, "k", "two");
    ck_assert_uint_eq(stats_of(fixture.cache).puts, 2);
}

/* ------------------------------------------------- 100,000 calls under way */

/* SHED_TEST_CALLS: how many. */
enum { CALLS = 100000, KEYS = 20000, OTHERS = 10, DEADLINE_MS = 5000 };

/* How much later the client's thread may come to it, with so many. */
enum { SLACK_MS = 10000 };

static struct call {
    atomic_uint ended; /* how often */
    unsigned char kind;
    bool is_direct; /* done is called on the client's thread */
    enum shed_code code;
    uint64_t begun_ms, ended_ms;
    struct shed_item item; /* MANY */
    char key[12];
} calls[CALLS];

enum { GET, MANY, PUT, INVALIDATE, KINDS };

static atomic_uint ended, wrong, failed, late;

static size_t call_count(void)
{
    return (size_t)number_in("SHED_TEST_CALLS",
                             IS_SANITIZED ? CALLS / 10 : CALLS);
}

/* A row of the table has its key's; one that was put is "put". */
static bool is_right(const struct call *c, const struct shed_value *value)
{
    size_t size = strlen(c->key);

    return (value->size == size + 2 && memcmp(value->data, c->key, size) == 0 &&
            memcmp((const char *)value->data + size, "@1", 2) == 0) ||
           (value->size == 3 && memcmp(value->data, "put", 3) == 0);
}

/* Reads may have to do without Redis, which then is not the answer; writes say
 * so. */
static bool is_right_code(const struct call *c)
{
    bool is_read = c->kind == GET || c->kind == MANY;

    return c->code == SHED_OK || c->code == SHED_ETIMEDOUT ||
           (c->code == SHED_EREDIS && !is_read) ||
           (c->code == SHED_EBUSY && is_read);
}

static void on_done(void *user, enum shed_code code, struct shed_value *value,
                    const struct shed_error *reason)
{
    struct call *c = user;

    (void)reason;
    c->code = code;
    c->ended_ms = shed_now_ms();
    if (c->kind == MANY)
        value = c->item.value;
    if (atomic_fetch_add(&c->ended, 1) > 0 || !is_right_code(c) ||
        ((value != NULL) != (code == SHED_OK && c->kind <= MANY)) ||
        (value != NULL && !is_right(c, value)))
        atomic_fetch_add(&wrong, 1);
    atomic_fetch_add(&failed, code != SHED_OK);
    atomic_fetch_add(&late,
                     c->is_direct && c->ended_ms - c->begun_ms >
                                         scaled_ms(DEADLINE_MS + SLACK_MS));
    shed_value_unref(value);
    atomic_fetch_add(&ended, 1);
}

static void begin(struct call *c, size_t i, struct shed_queue *queue)
{
    bool is_direct = i % 3 == 0;
    const struct shed_then then = {on_done, c, is_direct ? NULL : queue};
    struct shed_bytes key;
    struct shed_error err = {0};
    enum shed_code code = SHED_EINVAL;

    snprintf(c->key, sizeof(c->key), "k%u", (unsigned)(i % KEYS));
    key = shed_bytes(c->key, strlen(c->key));
    atomic_store(&c->ended, 0);
    /* of 10 calls 7 are gets */
    c->kind = i % OTHERS >= KINDS ? GET : (unsigned char)(i % OTHERS);
    c->is_direct = is_direct;
    c->begun_ms = shed_now_ms();
    c->item = (struct shed_item){.key = key};
    if (c->kind == GET)
        code =
            shed_get_async(fixture.cache, key, NULL, &then, NULL, NULL, &err);
    else if (c->kind == MANY)
        code = shed_get_many_async(fixture.cache, &c->item, 1, NULL, &then,
                                   NULL, &err);
    else if (c->kind == PUT)
        code = shed_put_async(fixture.cache, key, shed_str("put"), NULL, &then,
                              NULL, &err);
    else
        code = shed_invalidate_async(fixture.cache, key, 0, &then, NULL, &err);
    ck_assert_msg(code == SHED_OK, "%s", err.reason);
}

static void await_ends(struct shed_queue *queue, size_t count)
{
    struct pollfd fd = {shed_queue_fd(queue), POLLIN, 0};
    uint64_t until_ms = test_deadline_ms();

    while (atomic_load(&ended) < count) {
        ck_assert_uint_lt(shed_now_ms(), until_ms);
        (void)poll(&fd, 1, 100);
        (void)shed_queue_collect(queue, 1000);
    }
}

static const struct outage {
    void (*begin)(struct server *);
    void (*end)(struct server *);
} outages[] = {{server_kill, server_start_again}, {server_freeze, server_thaw}};

/* Let all of them be under way, while this happens to Redis; NULL: nothing. */
static void run_calls(struct shed_queue *queue, const struct outage *outage)
{
    size_t count = call_count();

    atomic_store(&ended, 0);
    for (size_t i = 0; i < count; i++) {
        begin(&calls[i], i, queue);
        if (outage != NULL && i == count / 2)
            outage->begin(&fixture.server);
    }
    await_ends(queue, count / 2);
    if (outage != NULL)
        outage->end(&fixture.server);
    await_ends(queue, count);
    ck_assert_uint_eq(shed_queue_collect(queue, 1), 0);
    for (size_t i = 0; i < count; i++)
        ck_assert_uint_eq(atomic_load(&calls[i].ended), 1);
    ck_assert_uint_eq(atomic_load(&wrong), 0);
    ck_assert_uint_eq(atomic_load(&late), 0);
}

static size_t used_bytes(void)
{
    struct mallinfo2 info = mallinfo2();

    return info.uordblks + info.hblkhd;
}

/* What a cache keeps beside the calls (undelivered writes, local rows) has its
 * own bounds; the second outage adds nothing to what the first has left. */
TEST_EACH(calls_outlive_a_redis_that_goes_away_under_them, 0, 2)
{
    enum { LEFT_BYTES = 2000000 };
    struct shed_queue *queue;
    size_t before = 0;

    fixture_hurry(&fixture, 300);
    fixture.client_options.breaker =
        (struct shed_breaker_options)SHED_BREAKER_OPTIONS_INIT;
    fixture.cache_options.timeout_ms = scaled_ms(DEADLINE_MS);
    fixture.cache_options.async_limit = CALLS;
    fixture_open(&fixture);
    EXPECT_OK(shed_queue_open(&queue, NULL));
    run_calls(queue, NULL);
    for (int round = 0; round < 2; round++) {
        run_calls(queue, &outages[_i]);
        WAIT_FOR(undelivered() == 0);
        if (round == 0)
            before = used_bytes();
    }
    ck_assert(IS_SANITIZED || used_bytes() < before + LEFT_BYTES);
    ck_assert_uint_gt(atomic_load(&failed), 0); /* there was an outage */
    run_calls(queue, NULL);
    shed_queue_close(queue);
}

/* --------------------------------------------------------- Redis is down */

static const uint64_t policies[] = {
    SHED_REDIS_DOWN_SOURCE, SHED_REDIS_DOWN_FAIL, SHED_REDIS_DOWN_STALE};

TEST_EACH(without_redis_from_the_start_calls_do_what_redis_down_says, 0, 3)
{
    bool is_fail = policies[_i] == SHED_REDIS_DOWN_FAIL;

    fixture.cache_options.redis_down = policies[_i];
    server_kill(&fixture.server);
    fixture_open(&fixture);
    if (is_fail)
        expect_end("k", NULL, SHED_EREDIS);
    else
        expect_value(NULL, "k@1", SHED_ORIGIN_UNPUBLISHED);
    if (policies[_i] == SHED_REDIS_DOWN_STALE)
        expect_value(ONLY_CACHED, "k@1", SHED_ORIGIN_STALE);
    expect_end("l", ONLY_CACHED, SHED_EREDIS);
    EXPECT_CODE(put_k("row"), SHED_EREDIS);
    EXPECT_CODE(awaited_invalidate(fixture.cache, shed_str("l"), 0, NULL),
                SHED_EREDIS);
    ck_assert_uint_eq(undelivered(), 2);
    server_start_again(&fixture.server);
    WAIT_FOR(undelivered() == 0);
}

/* --------------------------------------------------------------- nonsense */

static const char *const nonsense[] = {
    "$3\r\nabcdef\r\n", "*1\r\n:1\r\n", ":7\r\n", "+what\r\n",
    "-ERR no\r\n",      "_\r\n",        "$-1\r\n"};

TEST_EACH(a_reply_that_makes_no_sense_is_no_answer, 0, COUNT_OF(nonsense))
{
    /* an integer says that it is done */
    bool is_done = *nonsense[_i] == ':';

    fixture.cache_options.timeout_ms = scaled_ms(5000);
    fixture_add_proxy(&fixture, &proxy);
    fixture_open(&fixture);
    wait_for_pushes(&fixture);
    EXPECT_OK(put_k("row"));
    expect_value(NULL, "row", SHED_ORIGIN_REDIS);
    proxy_set(&proxy, PROXY_ANSWER, 0, nonsense[_i]);
    expect_value(NULL, "k@1", SHED_ORIGIN_UNPUBLISHED);
    ck_assert(awaited_invalidate(fixture.cache, shed_str("k"), 0, NULL) !=
                  SHED_OK ||
              is_done);
    ck_assert(put_k("row") != SHED_OK || is_done);
    proxy_set(&proxy, PROXY_PASS, 0, NULL);
    WAIT_FOR(undelivered() == 0);
}

/* -------------------------------------------------------------- the source */

/* A call with a row to fall back on, and one without. */
TEST(an_open_breaker_of_the_source_ends_calls_at_once)
{
    fixture.source_options.breaker.failure_pct = 1;
    fixture.source_options.breaker.min_calls = 1;
    fixture.source_options.breaker.open_ms = 3600000;
    fixture.cache_options.failure_ttl_ms = 0;
    fixture_open(&fixture);
    table_fail(&fixture.table, true);
    for (int i = 0; i < 2; i++)
        expect_end("k", NULL, SHED_ESOURCE);
    ck_assert_uint_eq(table_loads(&fixture.table), 1);
    ck_assert_uint_gt(stats_of(fixture.cache).loads_refused, 0);
}

/* ------------------------------------------------------------------ closes */

enum { CLOSED_CALLS = 2000 };

static double cpu_s(void)
{
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

/* A put on its way ends when it cannot be carried out; nobody spins until then.
 * The client is closed first: the cache holds it. */
TEST(closing_the_cache_ends_calls_that_redis_does_not_answer)
{
    struct shed_queue *queue;
    uint64_t begun_ms;
    double begun_s;
    size_t closed = 0;

    fixture.cache_options.timeout_ms = 3600000;
    fixture.client_options.command_timeout_ms = scaled_ms(1500);
    fixture_open(&fixture);
    EXPECT_OK(shed_queue_open(&queue, NULL));
    EXPECT_OK(put_k("row")); /* the clock is known */
    /* the connection of GETs is set up */
    expect_value(NULL, "row", SHED_ORIGIN_REDIS);
    server_freeze(&fixture.server);
    for (size_t i = 0; i < CLOSED_CALLS; i++)
        begin(&calls[i], i, queue);
    usleep(20000); /* they are sent */
    shed_client_close(fixture.client);
    fixture.client = NULL;
    fixture.cache->options.timeout_ms = 100; /* of the last delivery */
    begun_ms = shed_now_ms();
    begun_s = cpu_s();
    shed_cache_close(fixture.cache);
    fixture.cache = NULL;
    ck_assert_uint_ge(shed_now_ms() - begun_ms, 800);
    /* far less than a connection may take to be set up */
    ck_assert_uint_le(shed_now_ms() - begun_ms, scaled_ms(20000));
    ck_assert(IS_SANITIZED || cpu_s() - begun_s < 0.4);
    server_thaw(&fixture.server);
    ck_assert_uint_eq(shed_queue_collect(queue, CALLS),
                      CLOSED_CALLS - (CLOSED_CALLS + 2) / 3);
    for (size_t i = 0; i < CLOSED_CALLS; i++) {
        ck_assert_uint_eq(atomic_load(&calls[i].ended), 1);
        closed += calls[i].code == SHED_ECLOSED;
    }
    ck_assert_uint_eq(closed, CLOSED_CALLS);
    shed_queue_close(queue);
}

int main(void)
{
    return run_fixture_tests("async faults");
}
