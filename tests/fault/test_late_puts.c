/* A put whose caller has been told that it failed is not carried out later:
 * what its connection, or Redis, holds back must not replace what has been
 * written and read since. */
#include "support/fixture.h"

static struct proxy proxy;
static struct peer peer;

/* How long a put may take, or a connection be silent. */
#define SHORT_MS scaled_ms(300)

/* The cache's connections go through the proxy, the peer's do not. */
static void up(uint64_t silence_ms)
{
    fixture_add_proxy(&fixture, &proxy);
    fixture.client_options.command_timeout_ms = silence_ms;
    fixture_open(&fixture);
    fixture.uri = NULL;
    fixture.client_options.command_timeout_ms = FIXTURE_SILENCE_MS;
    peer_open(&peer, &fixture);
    put(fixture.cache, "k", "first");
    expect_text(peer.cache, "k", "first");
}

static void down(void)
{
    peer_close(&peer);
    fixture_down(&fixture);
}

struct
try {
    uint64_t timeout_ms;
    bool has_version;
    enum shed_code code;
};

static void *put_late(void *arg)
{
    struct try *t = arg;
    struct shed_put_options o = SHED_PUT_OPTIONS_INIT;
    uint64_t version = 1;

    o.timeout_ms = t->timeout_ms;
    o.version = t->has_version ? &version : NULL;
    t->code =
        shed_put(fixture.cache, shed_str("k"), shed_str("late"), &o, NULL);
    return NULL;
}

/* The put reaches Redis. */
static void release(void)
{
    long long calls = server_calls(&fixture.server, "evalsha");

    proxy_release(&proxy);
    WAIT_FOR(server_calls(&fixture.server, "evalsha") > calls);
    expect_text(peer.cache, "k", "k@2");
}

/* A later write returns before that. */
static void write_then_release(void)
{
    table_update(&fixture.table);
    invalidate(peer.cache, "k");
    expect_text(peer.cache, "k", "k@2");
    release();
    expect_text(fixture.cache, "k", "k@2");
    invalidate(peer.cache, "k"); /* one with a version finds no entry */
    expect_text(peer.cache, "k", "k@2");
}

/* 1: with a version. */
TEST_EACH(a_put_that_timed_out_does_nothing_later, 0, 2)
{
    struct try t = {.timeout_ms = SHORT_MS, .has_version = _i == 1};

    up(FIXTURE_SILENCE_MS);
    proxy_set(&proxy, PROXY_HOLD_ONE, 0, NULL);
    (void)put_late(&t);
    EXPECT_CODE(t.code, SHED_ETIMEDOUT);
    write_then_release();
}

/* It arrives between an invalidation and the next load. */
TEST(a_late_put_with_a_version_fills_no_empty_key)
{
    struct try t = {.timeout_ms = SHORT_MS, .has_version = true};

    up(FIXTURE_SILENCE_MS);
    proxy_set(&proxy, PROXY_HOLD_ONE, 0, NULL);
    (void)put_late(&t);
    table_update(&fixture.table);
    invalidate(peer.cache, "k");
    release();
}

/* What happens to other connections when that of the put is lost; if they are
 * not, it is sent twice. */
static const struct loss {
    enum proxy_mode mode;
    enum shed_code code;
} losses[] = {{PROXY_CUT, SHED_EREDIS}, {PROXY_PASS, SHED_OK}};

TEST_EACH(a_put_whose_connection_was_lost_does_nothing_after_its_call, 0,
          COUNT_OF(losses))
{
    struct try t = {.timeout_ms = FIXTURE_TIMEOUT_MS};
    pthread_t thread;

    up(SHORT_MS);
    proxy_set(&proxy, PROXY_HOLD_ONE, 0, NULL);
    start_thread(&thread, put_late, &t);
    proxy_wait_held(&proxy);
    proxy_set(&proxy, losses[_i].mode, 0, NULL);
    proxy_cut_off(&proxy);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    EXPECT_CODE(t.code, losses[_i].code);
    proxy_set(&proxy, PROXY_PASS, 0, NULL);
    write_then_release();
}

/* Every put comes too late for a clock that was set forward, until the client
 * has asked for it. */
TEST(a_put_goes_once_more_where_the_clock_was_set_forward)
{
    server_stop(&fixture.server);
    fixture.server = (struct server){.has_clock = true};
    server_start(&fixture.server);
    fixture_open(&fixture);
    put(fixture.cache, "k", "first");
    server_skew(&fixture.server, 3600);
    put(fixture.cache, "k", "second");
    expect_text(fixture.cache, "k", "second");
}

int main(void)
{
    tcase_add_checked_fixture(test_case(), fixture_set_up, down);
    return run_tests("late_puts");
}
