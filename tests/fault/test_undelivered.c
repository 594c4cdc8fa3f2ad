/* Invalidations that Redis missed: this process reads nothing older, other
 * processes only until Redis has been told, and none is lost silently. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <snowshed/event.h>

#include "known/delivery.h"
#include "redis/health.h"
#include "support/bare.h"
#include "support/answers.h"
#include "support/child.h"
#include "support/fixture.h"

static struct proxy proxy;

/* ------------------------------------------------------- the other process */

/* Another process, which gets "k" again and again; in shared memory. */
static struct other {
    atomic_uint version; /* of the row in the database */
    atomic_uint got;     /* version that it got last */
    atomic_uint gets;
} * other;

static void load_other(void *user, void *thread, struct shed_load *load)
{
    char row[32];

    (void)user;
    (void)thread;
    snprintf(row, sizeof(row), "k@%u", atomic_load(&other->version));
    for (size_t i = 0; i < load->count; i++)
        answer_row(load, i, shed_str(row));
    shed_load_done(load);
}

static _Noreturn void read_forever(void)
{
    struct shed_source *source = NULL;
    struct shed_client *client = NULL;
    struct shed_cache *cache = NULL;

    if (shed_client_open(fixture.server.uri, &fixture.client_options, &client,
                         NULL) != SHED_OK ||
        shed_source_open_batch(load_other, NULL, BARE_SOURCE, &source, NULL) !=
            SHED_OK ||
        shed_cache_open(client, "t", source, &fixture.cache_options, &cache,
                        NULL) != SHED_OK)
        _exit(1);
    for (;;) {
        struct shed_value *value = NULL;
        if (shed_get(cache, shed_str("k"), NULL, &value, NULL) == SHED_OK) {
            const char *row = value->data;
            atomic_store(&other->got, (unsigned)(row[2] - '0'));
            atomic_fetch_add(&other->gets, 1);
        }
        shed_value_unref(value);
        usleep(200);
    }
}

/* Of a get that begins after the call. */
static unsigned other_gets_now(void)
{
    unsigned before = atomic_load(&other->gets);

    WAIT_FOR(atomic_load(&other->gets) >= before + 2);
    return atomic_load(&other->got);
}

static void init(void)
{
    fixture_hurry(&fixture, 200);
}

/* Two processes that read version 1 from Redis; this one is behind a proxy if
 * it is to be cut off alone. */
static void two_processes(bool has_proxy)
{
    other = share_memory(sizeof(*other));
    atomic_store(&other->version, 1);
    if (fork_child() == 0)
        read_forever();
    if (has_proxy)
        fixture_add_proxy(&fixture, &proxy);
    fixture_open(&fixture);
    expect_text(fixture.cache, "k", "k@1");
    WAIT_FOR(server_int(&fixture.server, "EXISTS t:{k}") == 1);
    ck_assert_uint_eq(other_gets_now(), 1);
}

/* ------------------------------------------------------------ what is done */

/* Change the row, and fail to invalidate the key. */
static void miss_one(void)
{
    struct shed_error err = {0};
    enum shed_code code;

    table_update(&fixture.table);
    if (other != NULL)
        atomic_fetch_add(&other->version, 1);
    code = shed_invalidate(fixture.cache, shed_str("k"), scaled_ms(1000), &err);
    ck_assert_msg(code == SHED_EREDIS || code == SHED_ETIMEDOUT, "%d: %s", code,
                  err.reason);
    ck_assert_msg(strstr(err.reason, "undelivered until Redis takes it: ") ==
                      err.reason,
                  "%s", err.reason);
    ck_assert_uint_eq(undelivered(), 1);
    ck_assert_uint_eq(stats_of(fixture.cache).invalidations_undelivered, 1);
    ck_assert_uint_eq(stats_of(fixture.cache).invalidation_failures, 1);
}

/* Until both have been told, and for a while after that, this process gets
 * nothing but version 2. */
static void expect_both_to_follow(void)
{
    WAIT_FOR((expect_text(fixture.cache, "k", "k@2"),
              undelivered() == 0 && atomic_load(&other->got) == 2));
    WAIT_FOR(stats_of(fixture.cache).invalidations_delivered == 1);
    ck_assert_uint_eq(stats_of(fixture.cache).invalidations, 1);
    for (int i = 0; i < 5; i++) {
        ck_assert_uint_eq(other_gets_now(), 2);
        expect_text(fixture.cache, "k", "k@2");
    }
    ck_assert_uint_eq(stats_of(fixture.cache).invalidations_dropped, 0);
}

/* A cache that has read "k", of which Redis misses the invalidation. */
static void up_and_miss(void)
{
    fixture_open(&fixture);
    expect_text(fixture.cache, "k", "k@1");
    refuse_writes();
    miss_one();
}

/* -------------------------------------------------------- Redis goes away */

TEST(a_process_that_is_cut_off_reads_nothing_older_and_others_until_then)
{
    init();
    two_processes(true);
    proxy_set(&proxy, PROXY_SWALLOW, 0, NULL);
    miss_one();
    expect_origin(fixture.cache, "k", "k@2", SHED_ORIGIN_UNPUBLISHED);
    ck_assert_uint_eq(other_gets_now(), 1);
    expect_origin(fixture.cache, "k", "k@2", SHED_ORIGIN_UNPUBLISHED);
    ck_assert_uint_eq(undelivered(), 1);
    proxy_set(&proxy, PROXY_PASS, 0, NULL);
    expect_both_to_follow();
}

/* Redis has carried it out, which nobody here knows. */
TEST(an_invalidation_whose_reply_is_lost_is_kept_too)
{
    init();
    two_processes(true);
    proxy_set(&proxy, PROXY_DROP, 0, NULL);
    miss_one();
    WAIT_FOR(other_gets_now() == 2);
    expect_text(fixture.cache, "k", "k@2");
    ck_assert_uint_eq(undelivered(), 1);
    proxy_set(&proxy, PROXY_PASS, 0, NULL);
    expect_both_to_follow();
}

TEST(a_server_that_hung_is_told_before_it_is_believed)
{
    init();
    two_processes(false);
    server_freeze(&fixture.server);
    miss_one();
    server_thaw(&fixture.server);
    expect_both_to_follow();
}

TEST(a_server_that_comes_back_with_its_data_is_told_first)
{
    init();
    fixture.server.options[0] = "--appendonly";
    fixture.server.options[1] = "yes";
    fixture.server.options[2] = "--appendfsync";
    fixture.server.options[3] = "always";
    server_kill(&fixture.server);
    server_start_again(&fixture.server);
    two_processes(false);
    server_kill(&fixture.server);
    miss_one();
    expect_origin(fixture.cache, "k", "k@2", SHED_ORIGIN_UNPUBLISHED);
    server_start_again(&fixture.server);
    expect_both_to_follow();
}

/* ------------------------------------------- Redis reads, and writes nothing
 */

TEST(until_redis_is_told_the_row_comes_from_the_source)
{
    struct shed_item items[2] = {{.key = shed_str("k")},
                                 {.key = shed_str("l")}};
    struct peer peer;

    init();
    fixture_open(&fixture);
    expect_text(fixture.cache, "k", "k@1");
    expect_text(fixture.cache, "l", "l@1");
    refuse_writes();
    miss_one();
    peer_open(&peer, &fixture);
    expect_origin(peer.cache, "k", "k@1", SHED_ORIGIN_REDIS);
    expect_origin(fixture.cache, "k", "k@2", SHED_ORIGIN_UNPUBLISHED);
    expect_origin(fixture.cache, "l", "l@1", SHED_ORIGIN_REDIS);
    EXPECT_OK(shed_get_many(fixture.cache, items, 2, NULL, NULL));
    check_text(items[0].value, "k@2");
    check_text(items[1].value, "l@1");
    shed_value_unref(items[0].value);
    shed_value_unref(items[1].value);
    ck_assert_uint_eq(undelivered(), 1);
    accept_writes();
    WAIT_FOR(undelivered() == 0);
    expect_text(peer.cache, "k", "k@2");
    expect_text(fixture.cache, "k", "k@2");
    peer_close(&peer);
}

TEST(with_the_fail_policy_such_a_get_fails)
{
    struct shed_error err = {0};

    init();
    fixture.cache_options.redis_down = SHED_REDIS_DOWN_FAIL;
    fixture.cache_options.stale_if_error_ms = 1000000;
    up_and_miss();
    expect_code(fixture.cache, "k", SHED_EREDIS, &err);
    ck_assert_ptr_nonnull(strstr(err.reason, "NOREPLICAS"));
    accept_writes();
    WAIT_FOR(undelivered() == 0);
    expect_text(fixture.cache, "k", "k@2");
}

/* More keys than are under way at once, and scripts that the server has lost.
 */
TEST(many_are_delivered)
{
    enum { KEYS = 500 };
    static char keys[KEYS][16];
    static struct shed_bytes bytes[KEYS];
    struct shed_error err = {0};

    init();
    fixture_open(&fixture);
    for (int i = 0; i < KEYS; i++) {
        snprintf(keys[i], sizeof(keys[i]), "%d", i);
        bytes[i] = shed_str(keys[i]);
        put(fixture.cache, keys[i], "old");
    }
    refuse_writes();
    EXPECT_CODE(shed_invalidate_many(fixture.cache, bytes, KEYS, 0, &err),
                SHED_EREDIS);
    ck_assert_ptr_eq(
        strstr(err.reason, "keys[0]: undelivered until Redis takes it: "),
        err.reason);
    ck_assert_uint_eq(undelivered(), KEYS);
    EXPECT_CODE(shed_invalidate_many(fixture.cache, bytes, KEYS, 0, NULL),
                SHED_EREDIS);
    ck_assert_uint_eq(undelivered(), KEYS);
    ck_assert_uint_eq(stats_of(fixture.cache).invalidations_undelivered, KEYS);
    server_do(&fixture.server, "SCRIPT FLUSH");
    accept_writes();
    WAIT_FOR(undelivered() == 0);
    ck_assert_int_eq(server_int(&fixture.server, "DBSIZE"), 0);
    ck_assert_uint_eq(stats_of(fixture.cache).invalidations_delivered, KEYS);
}

TEST(one_that_redis_refuses_does_not_hold_up_the_others)
{
    init();
    fixture_open(&fixture);
    put(fixture.cache, "l", "old");
    expect_text(fixture.cache, "k", "k@1");
    refuse_writes();
    miss_one();
    EXPECT_CODE(shed_invalidate(fixture.cache, shed_str("l"), 0, NULL),
                SHED_EREDIS);
    server_do(&fixture.server, "ACL SETUSER default resetkeys ~t:{l}*");
    accept_writes();
    WAIT_FOR(undelivered() == 1);
    ck_assert_int_eq(server_int(&fixture.server, "EXISTS t:{l}"), 0);
    server_do(&fixture.server, "ACL SETUSER default allkeys");
    WAIT_FOR(undelivered() == 0);
}

TEST(an_expiry_is_delivered_as_an_expiry)
{
    init();
    fixture.cache_options.stale_while_revalidate_ms = 1000000;
    fixture_open(&fixture);
    expect_text(fixture.cache, "k", "k@1");
    refuse_writes();
    EXPECT_CODE(shed_expire(fixture.cache, shed_str("k"), 0, 0, NULL),
                SHED_EREDIS);
    ck_assert_uint_eq(undelivered(), 1);
    accept_writes();
    WAIT_FOR(stats_of(fixture.cache).invalidations_delivered == 1);
    ck_assert_uint_eq(stats_of(fixture.cache).invalidations, 0);
    /* as soon as the clock, as this process knows it, is beyond the expiry */
    WAIT_FOR((expect_text(fixture.cache, "k", "k@1"),
              stats_of(fixture.cache).stale > 0));
}

/* Whichever fails first. */
TEST_EACH(of_an_expiry_and_an_invalidation_the_invalidation_is_delivered, 0, 2)
{
    init();
    fixture.cache_options.stale_while_revalidate_ms = 1000000;
    fixture_open(&fixture);
    expect_text(fixture.cache, "k", "k@1");
    refuse_writes();
    for (int i = 0; i < 2; i++)
        EXPECT_CODE(i == _i
                        ? shed_expire(fixture.cache, shed_str("k"), 0, 0, NULL)
                        : invalidate_code(fixture.cache, "k"),
                    SHED_EREDIS);
    ck_assert_uint_eq(undelivered(), 1);
    accept_writes();
    WAIT_FOR(undelivered() == 0);
    ck_assert_int_eq(server_int(&fixture.server, "EXISTS t:{k}"), 0);
    ck_assert_uint_eq(stats_of(fixture.cache).invalidations, 1);
}

TEST(a_put_that_failed_is_made_up_for_by_an_invalidation)
{
    init();
    fixture_open(&fixture);
    expect_text(fixture.cache, "k", "k@1");
    refuse_writes();
    table_update(&fixture.table);
    EXPECT_CODE(
        shed_put(fixture.cache, shed_str("k"), shed_str("k@2"), NULL, NULL),
        SHED_EREDIS);
    expect_origin(fixture.cache, "k", "k@2", SHED_ORIGIN_UNPUBLISHED);
    accept_writes();
    WAIT_FOR(undelivered() == 0);
    expect_text(fixture.cache, "k", "k@2");
}

/* -------------------------------------------------- what makes up for them */

/* Nothing is delivered in the background: Redis is sent something else. */
static atomic_bool is_held;

WRAPPED(shed_client_send);

void __wrap_shed_client_send(struct shed_client *client, struct shed_call *call,
                             const struct shed_args *args, shed_pipe_fn *fn,
                             void *arg)
{
    const struct shed_args ping = shed_args_of("PING", "text", NULL);
    /* those of a flight are not repeated either: no row is loaded meanwhile */
    bool is_delivery = args->script != NULL && !args->is_repeated;

    __real_shed_client_send(client, call,
                            is_delivery && atomic_load(&is_held) ? &ping : args,
                            fn, arg);
}

static atomic_bool is_reactor_busy;
static atomic_uint kept, delivered, dropped;

static void on_event(void *user, const struct shed_event *event)
{
    (void)user;
    kept += event->kind == SHED_EVENT_INVALIDATION_UNDELIVERED;
    delivered += event->kind == SHED_EVENT_INVALIDATION_DELIVERED;
    dropped += event->kind == SHED_EVENT_INVALIDATION_DROPPED;
    while (event->kind == SHED_EVENT_INVALIDATION_UNDELIVERED &&
           atomic_load(&is_reactor_busy))
        usleep(1000);
}

static void up_and_miss_held_up(void)
{
    init();
    fixture.client_options.on_event = on_event;
    fixture_open(&fixture);
    expect_text(fixture.cache, "k", "k@1");
    atomic_store(&is_held, true);
    refuse_writes();
    miss_one();
    accept_writes();
}

TEST(a_later_invalidation_makes_up_for_one_that_failed)
{
    up_and_miss_held_up();
    invalidate(fixture.cache, "k");
    ck_assert_uint_eq(undelivered(), 0);
    atomic_store(&is_held, false);
    WAIT_FOR(delivered == 1);
    ck_assert_uint_eq(stats_of(fixture.cache).invalidations_delivered, 1);
    ck_assert_uint_eq(stats_of(fixture.cache).invalidations, 2); /* both */
}

TEST(a_later_put_makes_up_for_one_that_failed_and_stays)
{
    up_and_miss_held_up();
    put(fixture.cache, "k", "mine");
    ck_assert_uint_eq(undelivered(), 0);
    atomic_store(&is_held, false);
    WAIT_FOR(delivered == 1);
    expect_origin(fixture.cache, "k", "mine", SHED_ORIGIN_REDIS);
}

/* It can contain a row from before the missed invalidation. */
TEST(a_later_put_with_a_version_does_not)
{
    up_and_miss_held_up();
    EXPECT_OK(shed_put(fixture.cache, shed_str("k"), shed_str("old"),
                       AT_VERSION(1), NULL));
    ck_assert_uint_eq(undelivered(), 1);
    atomic_store(&is_held, false);
    WAIT_FOR(undelivered() == 0);
    expect_text(fixture.cache, "k", "k@2");
}

TEST(a_later_expiry_does_not)
{
    up_and_miss_held_up();
    EXPECT_OK(shed_expire(fixture.cache, shed_str("k"), 0, 0, NULL));
    ck_assert_uint_eq(undelivered(), 1);
    atomic_store(&is_held, false);
    WAIT_FOR(undelivered() == 0);
}

TEST(an_expiry_in_a_while_does_not_make_up_for_one_now)
{
    init();
    fixture.client_options.on_event = on_event;
    fixture_open(&fixture);
    expect_text(fixture.cache, "k", "k@1");
    atomic_store(&is_held, true);
    refuse_writes();
    EXPECT_CODE(shed_expire(fixture.cache, shed_str("k"), 0, 0, NULL),
                SHED_EREDIS);
    accept_writes();
    EXPECT_OK(shed_expire(fixture.cache, shed_str("k"), 60000, 0, NULL));
    ck_assert_uint_eq(undelivered(), 1);
    EXPECT_OK(shed_expire(fixture.cache, shed_str("k"), 0, 0, NULL));
    ck_assert_uint_eq(undelivered(), 0);
}

/* What another call has to say of its write of k. */
static void follow_up(struct shed_delivery_write write, enum shed_code code)
{
    struct shed_named_key named;
    struct shed_error why = {.code = code};

    shed_key_name("t", shed_str("k"), &named);
    shed_delivery_follow_up(fixture.cache->delivery, &named.key, write, &why);
}

static struct shed_delivery_write mark(void)
{
    return shed_delivery_mark(fixture.cache->delivery, SHED_WISH_INVALIDATE);
}

TEST(a_write_makes_up_for_no_failure_after_it_was_sent)
{
    struct shed_delivery_write before;

    init();
    fixture_open(&fixture);
    expect_text(fixture.cache, "k", "k@1");
    before = mark();
    refuse_writes();
    miss_one();
    follow_up(before, SHED_OK);
    ck_assert_uint_eq(undelivered(), 1);
    /* while a delivery is under way, that decides */
    WAIT_FOR((follow_up(mark(), SHED_OK), undelivered() == 0));
}

/* While the key is being delivered another write of it fails. */
static void fail_meanwhile(struct shed_post *post)
{
    (void)post;
    ck_assert_uint_eq(undelivered(), 1);
    follow_up(mark(), SHED_EREDIS);
}

TEST(a_write_that_fails_while_its_key_is_delivered_is_delivered_too)
{
    struct shed_post post = {.run = fail_meanwhile};
    long long before;

    atomic_store(&is_reactor_busy, true);
    up_and_miss_held_up();
    atomic_store(&is_held, false);
    before = server_calls(&fixture.server, "unlink");
    shed_reactor_post(fixture.client->reactor, &post); /* behind the delivery */
    atomic_store(&is_reactor_busy, false);
    /* more often if an answer is late on a slow machine */
    WAIT_FOR(server_calls(&fixture.server, "unlink") >= before + 2);
    WAIT_FOR(delivered == 1);
    ck_assert_uint_eq(undelivered(), 0);
}

/* --------------------------------------------------------- what is dropped */

TEST(a_full_list_says_so_and_loses_no_other)
{
    struct shed_bytes keys[] = {shed_str("k"), shed_str("m")};
    struct shed_error err = {0};

    init();
    fixture.cache_options.undelivered_limit = 1;
    fixture.client_options.on_event = on_event;
    fixture_open(&fixture);
    put(fixture.cache, "l", "l@1");
    expect_text(fixture.cache, "k", "k@1");
    refuse_writes();
    miss_one();
    EXPECT_CODE(shed_invalidate(fixture.cache, shed_str("l"), 0, &err),
                SHED_EREDIS);
    ck_assert_ptr_eq(
        strstr(err.reason, "dropped (undelivered_limit is reached)"),
        err.reason);
    EXPECT_CODE(shed_invalidate_many(fixture.cache, keys, 2, 0, &err),
                SHED_EREDIS);
    ck_assert_ptr_eq(strstr(err.reason, "keys[1]: dropped ("), err.reason);
    ck_assert_uint_eq(undelivered(), 1);
    ck_assert_uint_eq(stats_of(fixture.cache).invalidations_dropped, 2);
    WAIT_FOR(dropped == 2 && kept == 1);
    accept_writes();
    WAIT_FOR(undelivered() == 0);
    ck_assert_int_eq(server_int(&fixture.server, "EXISTS t:{l}"), 1);
    ck_assert_int_eq(server_int(&fixture.server, "EXISTS t:{k}"), 0);
}

TEST(a_cache_that_is_closed_tries_once_more)
{
    char errors[32];

    init();
    up_and_miss();
    /* then the pause before the next try is 400 ms or more */
    WAIT_FOR((server_info(&fixture.server, "errorstat_NOREPLICAS", errors,
                          sizeof(errors)),
              atoi(errors + strlen("count=")) > 5));
    accept_writes();
    fixture_close(&fixture);
    ck_assert_int_eq(server_int(&fixture.server, "EXISTS t:{k}"), 0);
    server_stop(&fixture.server);
}

/* A process that keeps an invalidation, and then waits to be killed. */
static _Noreturn void keep_and_stay(atomic_bool *is_kept)
{
    fixture_open(&fixture);
    miss_one();
    atomic_store(is_kept, true);
    for (;;)
        pause();
}

/* This is the limit of the promise: see shed_invalidate. */
TEST(what_a_killed_process_had_kept_can_be_read_until_the_ttl_ends)
{
    atomic_bool *is_kept = share_memory(sizeof(*is_kept));
    long long left_ms;
    pid_t pid;

    init();
    fixture_open(&fixture);
    expect_text(fixture.cache, "k", "k@1");
    fixture_close(&fixture);
    refuse_writes();
    pid = fork_child();
    if (pid == 0)
        keep_and_stay(is_kept);
    WAIT_FOR(atomic_load(is_kept));
    kill_child(pid);
    accept_writes();
    table_update(&fixture.table);
    fixture_open(&fixture);
    expect_origin(fixture.cache, "k", "k@1", SHED_ORIGIN_REDIS);
    left_ms = server_int(&fixture.server, "PTTL t:{k}");
    ck_assert(left_ms > 0 &&
              (uint64_t)left_ms <= fixture.cache_options.ttl_ms + LEEWAY_MS);
}

static uint64_t down_ms(void)
{
    struct shed_client_status status = status_of(fixture.client);

    return status.is_up ? 0 : status.since_ms;
}

/* Although the client is in a pause, as long as pauses get. */
TEST(a_cache_that_is_closed_when_redis_is_back_drops_nothing)
{
    init();
    fixture.client_options.on_event = on_event;
    up_and_miss();
    server_kill(&fixture.server);
    WAIT_FOR(down_ms() > 2 * SHED_PAUSE_MAX_MS);
    server_start_again(&fixture.server);
    fixture_close(&fixture);
    ck_assert_uint_eq(dropped, 0);
    ck_assert_uint_eq(delivered, 1);
    server_stop(&fixture.server);
}

TEST(a_cache_that_is_closed_without_redis_tells_what_it_drops)
{
    init();
    fixture.client_options.on_event = on_event;
    up_and_miss();
    server_kill(&fixture.server);
    fixture_close(&fixture);
    ck_assert_uint_eq(dropped, 1);
    server_stop(&fixture.server);
}

int main(void)
{
    return run_fixture_tests("undelivered");
}
