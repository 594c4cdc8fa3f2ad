/* What follows an outage: Redis is back and empty, or the breaker before the
 * source closes, while callers want everything. Nothing goes beyond its bound,
 * and there is no second outage. */
#include <stdio.h>

#include <snowshed/event.h>

#include "source/load.h"
#include "support/fixture.h"

enum { READERS = 16, KEYS = 12 * READERS, MAX_LOADS = 4, ENOUGH = 500 };

static atomic_uint opened, closed; /* the breaker */

/* ------------------------------------------------------------------ readers */

static struct {
    pthread_t thread[READERS];
    atomic_bool is_stopping;
    atomic_uint numbers, got, failed;
} crowd;

/* Each has keys of its own, so that none joins another's load. */
static void *read_on(void *unused)
{
    unsigned number = atomic_fetch_add(&crowd.numbers, 1);
    char key[16], text[24];

    (void)unused;
    for (; !atomic_load(&crowd.is_stopping); number += READERS) {
        struct shed_value *value = NULL;
        snprintf(key, sizeof(key), "k%u", number % KEYS);
        snprintf(text, sizeof(text), "%s@1", key);
        if (shed_get(fixture.cache, shed_str(key), NULL, &value, NULL) ==
            SHED_OK) {
            check_text(value, text);
            atomic_fetch_add(&crowd.got, 1);
        } else {
            atomic_fetch_add(&crowd.failed, 1);
        }
        shed_value_unref(value);
    }
    return NULL;
}

static void start_crowd(void)
{
    for (int i = 0; i < READERS; i++)
        start_thread(&crowd.thread[i], read_on, NULL);
}

static void stop_crowd(void)
{
    atomic_store(&crowd.is_stopping, true);
    for (int i = 0; i < READERS; i++)
        pthread_join(crowd.thread[i], NULL);
}

static bool is_warm(void)
{
    return server_int(&fixture.server, "DBSIZE") == KEYS;
}

static void wait_for_gets(atomic_uint *count)
{
    unsigned before = atomic_load(count);

    WAIT_FOR(atomic_load(count) >= before + ENOUGH);
}

/* -------------------------------------------------------------------- table */

static void count_breaker(void *user, const struct shed_event *event)
{
    (void)user;
    if (event->kind == SHED_EVENT_BREAKER)
        atomic_fetch_add(event->outcome == SHED_OK ? &closed : &opened, 1);
}

static void set_failing(bool is_failing)
{
    struct table *t = &fixture.table;

    pthread_mutex_lock(&t->mu);
    t->is_failing = is_failing;
    t->is_held = !is_failing;
    t->most_running = t->running;
    pthread_mutex_unlock(&t->mu);
}

static void init(void)
{
    fixture.client_options.on_event = count_breaker;
    fixture.source_options.max_loads = MAX_LOADS;
    fixture.source_options.max_batch = 1;
    fixture.source_options.load_timeout_ms = scaled_ms(FIXTURE_TIMEOUT_MS);
}

TEST(a_redis_that_is_back_and_empty_is_filled_within_the_bound)
{
    init();
    fixture_open(&fixture);
    start_crowd();
    WAIT_FOR(is_warm());
    server_kill(&fixture.server);
    wait_for_gets(&crowd.got);
    table_hold(&fixture.table);
    server_start_again(&fixture.server);
    WAIT_FOR(shed_source_look(fixture.source).queued == READERS - MAX_LOADS);
    ck_assert_uint_eq(table_running(&fixture.table), MAX_LOADS);
    table_release(&fixture.table);
    WAIT_FOR(is_warm());
    stop_crowd();
    ck_assert_uint_eq(atomic_load(&crowd.failed), 0);
    ck_assert_uint_le(fixture.table.most_running, MAX_LOADS);
}

/* As few as the probes are loaded until one has succeeded, and then no more
 * than the source bears. */
TEST(a_breaker_that_closes_on_a_cold_cache_does_not_open_again)
{
    unsigned opened_before;

    init();
    fixture.source_options.breaker.failure_pct = 50;
    fixture.source_options.breaker.min_calls = 10;
    fixture.source_options.breaker.window_ms = 600000;
    fixture.source_options.breaker.open_ms = 20;
    fixture.cache_options.failure_ttl_ms = 1;
    fixture_open(&fixture);
    fixture.table.is_failing = true;
    start_crowd();
    WAIT_FOR(atomic_load(&opened) > 0);
    set_failing(false);
    WAIT_FOR(table_running(&fixture.table) == SHED_BREAKER_PROBES);
    wait_for_gets(&crowd.failed);
    ck_assert_uint_eq(table_running(&fixture.table), SHED_BREAKER_PROBES);
    opened_before = atomic_load(&opened);
    table_release(&fixture.table);
    WAIT_FOR(is_warm());
    stop_crowd();
    WAIT_FOR(atomic_load(&closed) == 1);
    ck_assert_uint_eq(atomic_load(&opened), opened_before);
    ck_assert_uint_le(fixture.table.most_running, MAX_LOADS);
}

int main(void)
{
    return run_fixture_tests("cold");
}
