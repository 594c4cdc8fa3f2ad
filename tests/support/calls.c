/* A cache whose row k can be made old, and calls with options. */
#include "support/calls.h"

#include <string.h>

const struct shed_get_options get_defaults = SHED_GET_OPTIONS_INIT;

/* ------------------------------------------------------------------- calls */

void expect_with(const char *key, struct shed_get_options options,
                 const char *text, enum shed_origin origin)
{
    expect_get(fixture.cache, key, &options, text, origin);
}

void expect_absent(const char *key, struct shed_get_options options)
{
    struct shed_value *value = NULL;

    EXPECT_OK(shed_get(fixture.cache, shed_str(key), &options, &value, NULL));
    ck_assert_int_eq(value->kind, SHED_KIND_ABSENT);
    shed_value_unref(value);
}

void expect_failure(const char *key, struct shed_get_options options,
                    enum shed_code code)
{
    struct shed_value *value = NULL;
    struct shed_error err = {0};

    ck_assert_int_eq(
        shed_get(fixture.cache, shed_str(key), &options, &value, &err), code);
    ck_assert_ptr_null(value);
    ck_assert_int_eq(err.code, code);
    ck_assert_uint_gt(strlen(err.reason), 0);
}

static void *run_call(void *arg)
{
    struct call *c = arg;

    c->code = shed_get(c->cache, shed_str("k"), &c->options, &c->value, NULL);
    return NULL;
}

void call_start(struct call *c, struct shed_cache *cache,
                struct shed_get_options options)
{
    *c = (struct call){.cache = cache, .options = options};
    start_thread(&c->thread, run_call, c);
}

void call_join(struct call *c)
{
    pthread_join(c->thread, NULL);
}

void call_expect(struct call *c, const char *text)
{
    call_join(c);
    EXPECT_OK(c->code);
    check_text(c->value, text);
    shed_value_unref(c->value);
}

/* ------------------------------------------------------------------ set-up */

void calls_init(uint64_t revalidate_ms, uint64_t if_error_ms)
{
    const uint64_t lease_max_ms = 600000;

    fixture.cache_options.ttl_ms = AGEING_TTL_MS;
    fixture.cache_options.negative_ttl_ms = AGEING_TTL_MS;
    fixture.cache_options.stale_while_revalidate_ms = revalidate_ms;
    fixture.cache_options.stale_if_error_ms = if_error_ms;
    fixture.cache_options.lease_ms = scaled_ms(60000);
    if (fixture.cache_options.lease_ms > lease_max_ms)
        fixture.cache_options.lease_ms = lease_max_ms;
}

void calls_open(void)
{
    fixture_open(&fixture);
    expect_origin(fixture.cache, "k", "k@1", SHED_ORIGIN_LOAD);
    WAIT_FOR(knows_the_clock(fixture.cache));
    ck_assert_uint_eq(table_loads(&fixture.table), 2);
}

void calls_up(uint64_t revalidate_ms, uint64_t if_error_ms)
{
    calls_init(revalidate_ms, if_error_ms);
    calls_open();
}

void age_k(uint64_t by_ms)
{
    age_entry(&fixture.server, "t:{k}", by_ms);
    table_update(&fixture.table);
}

void calls_overtake(struct getter *getter, struct peer *peer)
{
    calls_up(0, 0);
    fixture.table.is_async = true;
    peer_open(peer, &fixture);
    invalidate(fixture.cache, "k");
    getter_hold(getter, &fixture, "k");
    put(peer->cache, "k", "put");
    age_k(OLD_MS);
}

unsigned loads(void)
{
    return table_loads(&fixture.table) - 2;
}
