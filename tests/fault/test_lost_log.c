/* A log of tags that has lost its end while the server's clock is behind what
 * it was: positions begin again below those of entries and processes, and an
 * invalidation by tag must have its effect all the same, in every process. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "cache/cache.h"
#include "redis/session.h"
#include "support/fixture.h"

enum { HALF_HOUR_S = 1800, DAY_S = 86400 };

static struct peer peer;
static enum shed_wait waiting;

static void up_with(struct server server)
{
    fixture.client_options.wait = waiting;
    server_stop(&fixture.server);
    fixture.server = server;
    fixture.server.has_clock = true;
    server_start(&fixture.server);
    fixture.cache_options.tags_limit = 100;
    fixture.cache_options.ttl_ms = UINT64_C(7200000); /* longer than a step */
    fixture.table.has_tags = true;
    fixture_open(&fixture);
}

static void down(void)
{
    peer_close(&peer);
    fixture_down(&fixture);
}

static enum shed_code try_tag(struct shed_cache *cache, const char *tag,
                              struct shed_error *err)
{
    struct shed_bytes bytes = shed_str(tag);

    return shed_invalidate_tags(cache, &bytes, 1, 0, err);
}

static void invalidate_tag(struct shed_cache *cache, const char *tag)
{
    struct shed_error err = {0};

    ck_assert_msg(try_tag(cache, tag, &err) == SHED_OK, "%s", err.reason);
}

/* What writer invalidates is loaded again, by writer and by the other, and is a
 * hit for both from then on. */
static void expect_effect(struct shed_cache *writer, struct shed_cache *other,
                          unsigned version)
{
    char text[16];

    snprintf(text, sizeof(text), "red@%u", version);
    table_update(&fixture.table);
    invalidate_tag(writer, "r");
    expect_text(writer, "red", text);
    WAIT_FOR(has_row(other, "red", text));
    expect_origin(writer, "red", text, SHED_ORIGIN_REDIS);
    expect_origin(other, "red", text, SHED_ORIGIN_REDIS);
}

/* The process that knows the lost positions and one that has just begun. */
static void expect_effects(unsigned version)
{
    expect_effect(peer.cache, fixture.cache, version + 1);
    expect_effect(fixture.cache, peer.cache, version + 2);
    expect_effect(peer.cache, fixture.cache, version + 3);
}

/* ------------------------------------------------ ahead, and then set back */

static void lose(void)
{
    server_do(&fixture.server, "DEL t:tags");
}

static void flush(void)
{
    server_do(&fixture.server, "FLUSHALL");
}

/* A write makes room by removing whatever there is. */
static void evict(void)
{
    redisReply *reply;

    server_do(&fixture.server, "CONFIG SET maxmemory-policy allkeys-lru");
    server_do(&fixture.server, "CONFIG SET maxmemory 1");
    reply = server_run(&fixture.server, "SET x 1 PX 1");
    freeReplyObject(reply);
    ck_assert_int_eq(server_int(&fixture.server, "EXISTS t:tags"), 0);
    server_do(&fixture.server, "CONFIG SET maxmemory 0");
}

static void restart_empty(void)
{
    server_kill(&fixture.server);
    WAIT_FOR(!shed_client_is_up(fixture.client));
    server_start_again(&fixture.server);
    WAIT_FOR(shed_client_is_up(fixture.client));
}

static void (*const losses[])(void) = {lose, flush, evict, restart_empty};

/* The server's clock, as the client knows it; it asks every few seconds. */
static uint64_t known_ms(void)
{
    return shed_client_server_ms(fixture.client, shed_str("k"));
}

static void have_entry_from_the_future(int64_t ahead_s)
{
    uint64_t ahead_ms;

    up_with((struct server){0});
    server_skew(&fixture.server, ahead_s);
    invalidate_tag(fixture.cache, "x");
    expect_text(fixture.cache, "red", "red@1");
    expect_origin(fixture.cache, "red", "red@1", SHED_ORIGIN_REDIS);
    ahead_ms = known_ms();
    server_skew(&fixture.server, 0);
    if (ahead_s > DAY_S) /* else what is loaded seems older than its ttl */
        WAIT_FOR(known_ms() < ahead_ms);
}

TEST_EACH(an_invalidation_has_its_effect_though_the_clock_was_set_back, 0,
          COUNT_OF(losses))
{
    have_entry_from_the_future(HALF_HOUR_S);
    losses[_i]();
    peer_open(&peer, &fixture);
    expect_effects(1);
}

/* Its entry is above all that the log has, and nobody knows why. */
TEST(an_entry_from_a_process_that_is_gone_tells_of_the_loss)
{
    have_entry_from_the_future(HALF_HOUR_S);
    expect_text(fixture.cache, "rose", "rose@1");
    shed_cache_close(fixture.cache);
    lose();
    peer_open(&peer, &fixture);
    table_update(&fixture.table);
    invalidate_tag(peer.cache, "r");
    expect_text(peer.cache, "red", "red@2");
    expect_origin(peer.cache, "red", "red@2", SHED_ORIGIN_REDIS);
    /* the clock passes its position, and that of another such entry */
    server_skew(&fixture.server, 2 * HALF_HOUR_S);
    invalidate_tag(peer.cache, "x");
    expect_text(peer.cache, "rose", "rose@2");
    server_skew(&fixture.server, 0);
    EXPECT_OK(shed_cache_open(fixture.client, "t", fixture.source,
                              &fixture.cache_options, &fixture.cache, NULL));
    expect_effects(2);
}

/* The process loads once more than without the loss, and no more than that. */
TEST(a_loss_costs_each_entry_one_load)
{
    have_entry_from_the_future(0);
    expect_text(fixture.cache, "blue", "blue@1");
    peer_open(&peer, &fixture);
    expect_origin(peer.cache, "blue", "blue@1", SHED_ORIGIN_REDIS);
    lose();
    WAIT_FOR(has_row(fixture.cache, "red", "red@1") &&
             has_row(peer.cache, "red", "red@1") &&
             server_int(&fixture.server, "EXISTS t:tags") == 1);
    for (int i = 0; i < 3; i++) {
        expect_text(fixture.cache, "red", "red@1");
        expect_text(peer.cache, "red", "red@1");
        expect_text(peer.cache, "blue", "blue@1");
        expect_text(fixture.cache, "blue", "blue@1");
    }
    ck_assert_uint_eq(table_loads(&fixture.table), 4);
    ck_assert_int_eq(server_int(&fixture.server, "ZCARD t:tags"), 1);
}

/* Two processes find it at once, and the second one comes too late. */
TEST(a_log_is_restored_once)
{
    const char mark[SHED_DIGITS] = "0";
    struct shed_tag_log *log;
    struct shed_reply *reply = NULL;
    struct shed_args args;
    unsigned sent;

    have_entry_from_the_future(0);
    log = fixture.cache->tag_log;
    shed_tag_log_write(log, shed_str(""), mark, &args);
    shed_args_add_text(&args, "restore");
    EXPECT_OK(shed_client_call(fixture.client, &args, 1, &reply, NULL, &sent,
                               shed_now_ms() + 1000, NULL));
    ck_assert_int_eq(shed_reply_integer(reply),
                     (long long)shed_tag_log_position(log));
    shed_reply_free(reply);
    peer_open(&peer, &fixture);
    expect_origin(peer.cache, "red", "red@1", SHED_ORIGIN_REDIS);
}

/* A Redis that takes no position takes none from others either. */
TEST(where_the_log_cannot_be_written_hits_go_on)
{
    have_entry_from_the_future(0);
    peer_open(&peer, &fixture);
    server_do(&fixture.server, "ACL SETUSER default -zadd");
    lose();
    for (int i = 0; i < 10; i++)
        expect_origin(fixture.cache, "red", "red@1", SHED_ORIGIN_REDIS);
    server_do(&fixture.server, "ACL SETUSER default +zadd");
    expect_effects(1);
}

/* ------------------------------------------------------------ far ahead */

static bool knows(struct shed_cache *cache, uint64_t position)
{
    return has_row(cache, "red", "red@4") &&
           shed_tag_log_position(cache->tag_log) == position;
}

/* A user of Redis adds it by hand. */
TEST_EACH(a_position_far_ahead_is_repaired_by_deleting_the_log, 0, 2)
{
    const uint64_t ahead = 9007199254740990;
    struct shed_error err = {0};

    waiting = _i == 0 ? SHED_WAIT_AUTO : SHED_WAIT_POLL;
    have_entry_from_the_future(0);
    peer_open(&peer, &fixture);
    expect_effects(1);
    server_do(&fixture.server, "ZADD t:tags %llu x", (unsigned long long)ahead);
    WAIT_FOR(knows(fixture.cache, ahead) && knows(peer.cache, ahead));
    expect_text(fixture.cache, "rose", "rose@4"); /* with this position */
    EXPECT_CODE(try_tag(fixture.cache, "y", &err), SHED_EREDIS);
    ck_assert_ptr_nonnull(strstr(err.reason, "delete t:tags"));
    lose();
    expect_effects(4);
    expect_origin(fixture.cache, "rose", "rose@7", SHED_ORIGIN_LOAD);
    expect_origin(peer.cache, "rose", "rose@7", SHED_ORIGIN_REDIS);
}

TEST(a_clock_that_was_days_ahead_is_repaired_by_deleting_the_log)
{
    struct shed_error err = {0};

    have_entry_from_the_future((int64_t)3 * DAY_S);
    expect_text(fixture.cache, "rose", "rose@1");
    EXPECT_CODE(try_tag(fixture.cache, "y", &err), SHED_EREDIS);
    lose();
    peer_open(&peer, &fixture);
    expect_effects(1);
    expect_text(peer.cache, "rose", "rose@4");
    expect_origin(fixture.cache, "rose", "rose@4", SHED_ORIGIN_REDIS);
}

/* ------------------------------------------------------------ a failover */

static struct server replica;

static void up_with_replica(void)
{
    static char port[8];

    snprintf(port, sizeof(port), "%u", server_free_port());
    up_with((struct server){.options = {"--port", port, "--bind", "127.0.0.1",
                                        "--repl-diskless-sync-delay", "0"}});
    replica = (struct server){.options = {"--replicaof", "127.0.0.1", port},
                              .has_clock = true};
    server_start(&replica);
    server_skew(&replica, -5);
}

/* The replica has missed the last invalidation, and what was loaded after it
 * goes to the new primary with its position. */
TEST(after_a_failover_to_a_replica_that_is_behind_it_has_its_effect)
{
    up_with_replica();
    invalidate_tag(fixture.cache, "x");
    expect_text(fixture.cache, "red", "red@1");
    WAIT_FOR(server_int(&replica, "EXISTS t:tags t:{red}") == 2);
    server_do(&replica, "REPLICAOF NO ONE");
    table_update(&fixture.table);
    invalidate_tag(fixture.cache, "r");
    server_kill(&fixture.server);
    ck_assert_int_eq(rename(replica.socket, fixture.server.socket), 0);
    WAIT_FOR(has_row(fixture.cache, "red", "red@2"));
    WAIT_FOR(shed_client_is_up(fixture.client));
    peer_open(&peer, &fixture);
    expect_effects(2);
    server_stop(&replica);
}

int main(void)
{
    tcase_add_checked_fixture(test_case(), fixture_set_up, down);
    return run_tests("lost_log");
}
