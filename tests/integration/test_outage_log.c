/* What a real outage of Redis writes to the log, with threads that go on
 * calling: few lines, whose numbers add up to all that has happened, and an
 * end. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <snowshed/event.h>

#include "client/event_log.h"
#include "support/fixture.h"

/* Linked with --wrap: for the lines, time passes this much faster. */
#define SPEED 20

WRAPPED(shed_event_log_add);
WRAPPED(shed_event_log_take);

bool __wrap_shed_event_log_add(struct shed_event_log *log,
                               const struct shed_event *event, size_t keys,
                               uint64_t now_ms, struct shed_log_line *out)
{
    return __real_shed_event_log_add(log, event, keys, now_ms * SPEED, out);
}

bool __wrap_shed_event_log_take(struct shed_event_log *log, uint64_t now_ms,
                                bool is_last, struct shed_log_line *out)
{
    return __real_shed_event_log_take(log, now_ms * SPEED, is_last, out);
}

/* ------------------------------------------------------------ what is told */

enum { LINES_MAX = 2000, THREADS = 4, KEYS = 100 };

static struct {
    pthread_mutex_t mu;
    /* under mu */
    uint64_t events[SHED_EVENT_FLEET + 1]; /* with those left out */
    size_t lines;
    char line[LINES_MAX][SHED_LOG_TOLD_BYTES];
} told = {.mu = PTHREAD_MUTEX_INITIALIZER};

static atomic_bool is_over;
static atomic_uint calls;

static void on_event(void *user, const struct shed_event *e)
{
    (void)user;
    pthread_mutex_lock(&told.mu);
    told.events[e->about] += e->count;
    pthread_mutex_unlock(&told.mu);
}

static void on_log(void *user, enum shed_log_level level, const char *text)
{
    (void)user;
    (void)level;
    pthread_mutex_lock(&told.mu);
    ck_assert_uint_lt(told.lines, LINES_MAX);
    snprintf(told.line[told.lines++], sizeof(told.line[0]), "%s", text);
    pthread_mutex_unlock(&told.mu);
}

/* The lines that begin with these words. */
struct sum {
    size_t lines;
    uint64_t count; /* of all for which they speak */
};

static struct sum sum_of(const char *words)
{
    struct sum sum = {0};

    pthread_mutex_lock(&told.mu);
    for (size_t i = 0; i < told.lines; i++) {
        const char *line = told.line[i], *more = strstr(line, " (and ");
        if (strncmp(line, words, strlen(words)) != 0)
            continue;
        sum.lines++;
        sum.count += 1 + (more != NULL ? strtoull(more + 6, NULL, 10) : 0);
    }
    pthread_mutex_unlock(&told.mu);
    return sum;
}

/* ---------------------------------------------------------------- the load */

static void call(unsigned thread, unsigned i)
{
    struct shed_value *value = NULL;
    char key[32];

    /* a row that is kept, one that has to be loaded, and a write */
    snprintf(key, sizeof(key), "k%u", i % KEYS);
    (void)!shed_get(fixture.cache, shed_str(key), NULL, &value, NULL);
    shed_value_unref(value);
    value = NULL;
    snprintf(key, sizeof(key), "new%u-%u", thread, i);
    if (i % 4 == 0)
        (void)!shed_get(fixture.cache, shed_str(key), NULL, &value, NULL);
    shed_value_unref(value);
    if (i % 8 == 0)
        (void)!shed_invalidate(fixture.cache, shed_str(key), 0, NULL);
}

static void *keep_calling(void *arg)
{
    unsigned thread = (unsigned)(uintptr_t)arg;

    for (unsigned i = 0; !atomic_load(&is_over); i++) {
        call(thread, i);
        atomic_fetch_add(&calls, 1);
    }
    return NULL;
}

static void up(void)
{
    char key[16], text[24];

    fixture.client_options.on_event = on_event;
    fixture.client_options.on_log = on_log;
    fixture.cache_options.redis_down = SHED_REDIS_DOWN_STALE;
    fixture_open(&fixture);
    for (unsigned i = 0; i < KEYS; i++) {
        snprintf(key, sizeof(key), "k%u", i);
        snprintf(text, sizeof(text), "%s@1", key);
        expect_text(fixture.cache, key, text);
    }
}

/* Until the lines of it have been repeated, and much has happened. */
static void cut_off_redis(void)
{
    pthread_t threads[THREADS];

    for (uintptr_t i = 0; i < THREADS; i++)
        start_thread(&threads[i], keep_calling, (void *)i);
    WAIT_FOR(atomic_load(&calls) > 100);
    server_kill(&fixture.server);
    WAIT_FOR(sum_of("stale row served").lines >= 3);
    WAIT_FOR(stats_of(fixture.cache).stale > 2000);
    server_start_again(&fixture.server);
    WAIT_FOR(sum_of("connected to Redis").lines >= 2);
    atomic_store(&is_over, true);
    for (size_t i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
}

static void expect_all(const char *words, uint64_t count, size_t most)
{
    struct sum sum = sum_of(words);

    ck_assert_msg(sum.count == count, "%s: %llu of %llu", words,
                  (unsigned long long)sum.count, (unsigned long long)count);
    ck_assert_msg(sum.lines <= most, "%s: %zu lines, not %zu", words, sum.lines,
                  most);
}

TEST(an_outage_is_a_few_lines_that_account_for_everything)
{
    uint64_t begin_ms = shed_now_ms(), stale;
    size_t most;

    up();
    cut_off_redis();
    stale = stats_of(fixture.cache).stale;
    fixture_down(&fixture);
    /* of each outcome one an interval, and what is left at the end */
    most = (size_t)((shed_now_ms() - begin_ms) * SPEED / SHED_LOG_INTERVAL_MS);
    most = 2 * (most + 2);
    ck_assert_uint_ge(stale, 2000);
    expect_all("stale row served: t", stale, most);
    expect_all("stale", told.events[SHED_EVENT_STALE_SERVED], most);
    expect_all("publish", told.events[SHED_EVENT_PUBLISH_REFUSED], most);
    expect_all("invalidation undelivered: t",
               told.events[SHED_EVENT_INVALIDATION_UNDELIVERED], most);
    expect_all("invalidation delivered: t",
               told.events[SHED_EVENT_INVALIDATION_DELIVERED], most);
    expect_all("invalidation dropped: t", /* beyond undelivered_limit */
               told.events[SHED_EVENT_INVALIDATION_DROPPED], most);
    ck_assert_uint_gt(told.events[SHED_EVENT_PUBLISH_REFUSED], 0);
    ck_assert_uint_gt(told.events[SHED_EVENT_INVALIDATION_DELIVERED], 0);
}

int main(void)
{
    return run_fixture_tests("outage_log");
}
