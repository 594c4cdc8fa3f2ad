/* What callers wait for is loaded before what is refreshed behind them: a
 * source that runs one load at a time, and notes in which order they begin. */
#include <stdio.h>
#include <string.h>

#include "source/load.h"
#include "support/bare.h"
#include "support/answers.h"
#include "support/calls.h"

enum { REFRESHES = 8 };

static struct {
    pthread_mutex_t mu;
    pthread_cond_t changed;
    /* under mu */
    bool is_held;
    bool is_noted; /* from the first hold on */
    size_t begun;
    char key[REFRESHES + 8][16];
} order = {.mu = PTHREAD_MUTEX_INITIALIZER,
           .changed = PTHREAD_COND_INITIALIZER};

static struct shed_source *source;
static struct shed_cache *cache;

static void load(void *user, void *thread, struct shed_load *load)
{
    struct shed_bytes key = load->keys[0].key;

    (void)user;
    (void)thread;
    pthread_mutex_lock(&order.mu);
    if (order.is_noted)
        snprintf(order.key[order.begun++], sizeof(order.key[0]), "%.*s",
                 (int)key.size, (const char *)key.data);
    while (order.is_held)
        pthread_cond_wait(&order.changed, &order.mu);
    pthread_mutex_unlock(&order.mu);
    answer_row(load, 0, key);
    shed_load_done(load);
}

static void hold(void)
{
    pthread_mutex_lock(&order.mu);
    order.is_held = order.is_noted = true;
    pthread_mutex_unlock(&order.mu);
}

static void release(void)
{
    pthread_mutex_lock(&order.mu);
    order.is_held = false;
    pthread_cond_broadcast(&order.changed);
    pthread_mutex_unlock(&order.mu);
}

static size_t queued(void)
{
    return shed_source_look(source).queued;
}

static void open_cache(void)
{
    struct shed_source_options loads = bare_source();

    calls_init(0, 0);
    calls_open();
    loads.max_loads = 1;
    loads.max_batch = 1;
    loads.load_timeout_ms = FIXTURE_TIMEOUT_MS;
    EXPECT_OK(shed_source_open_batch(load, NULL, &loads, &source, NULL));
    fixture.cache_options.refresh_after_pct = AGEING_DUE_PCT;
    EXPECT_OK(shed_cache_open(fixture.client, "o", source,
                              &fixture.cache_options, &cache, NULL));
}

/* Open everything; the first of these keys is being refreshed, until release,
 * and the others wait for that, the key "k" last. */
static void up_refreshing(void)
{
    char key[REFRESHES][16], entry[sizeof(key) + sizeof("o:{}")];

    open_cache();
    for (size_t i = 0; i < REFRESHES; i++) {
        snprintf(key[i], sizeof(key[i]), "k%zu", i);
        if (i == REFRESHES - 1)
            key[i][1] = '\0';
        snprintf(entry, sizeof(entry), "o:{%s}", key[i]);
        expect_text(cache, key[i], key[i]);
        age_entry(&fixture.server, entry, AGEING_DUE_MS);
    }
    hold();
    for (size_t i = 0; i < REFRESHES; i++)
        do
            expect_origin(cache, key[i], key[i], SHED_ORIGIN_REDIS);
        while (shed_source_look(source).loads + queued() <= i);
    WAIT_FOR(queued() == REFRESHES - 1); /* once the worker took the first */
}

/* Expect that next was loaded before the refreshes that waited, and close
 * everything. */
static void down(const char *next, size_t all)
{
    WAIT_FOR(shed_source_look(source).loads + queued() == 0);
    shed_cache_close(cache);
    shed_source_close(source);
    ck_assert_uint_eq(order.begun, all);
    ck_assert_str_eq(order.key[0], "k0");
    ck_assert_str_eq(order.key[1], next);
    ck_assert_str_eq(order.key[2], "k1");
}

TEST(a_miss_does_not_wait_for_refreshes)
{
    struct getter getter = {0};

    up_refreshing();
    getter_start(&getter, cache, "miss");
    WAIT_FOR(queued() == REFRESHES);
    release();
    getter_expect(&getter, "miss", SHED_ORIGIN_LOAD);
    down("miss", REFRESHES + 1);
}

TEST(a_refresh_for_which_a_caller_waits_moves_forward)
{
    struct shed_get_options young = get_defaults;
    struct call call;

    up_refreshing();
    young.max_age_ms = MAX_AGE_MS;
    call_start(&call, cache, young);
    WAIT_FOR(stats_of(cache).waits > 0);
    release();
    call_expect(&call, "k");
    down("k", REFRESHES);
}

int main(void)
{
    return run_fixture_tests("load_order");
}
