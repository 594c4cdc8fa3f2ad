/* Slots of a cluster that move from one node to another, half-way and
 * completely, and nodes that come and go: nothing older than the last confirmed
 * write is given out, and calls end in time. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "support/awaited.h"
#include "support/child.h"
#include "support/cluster_fixture.h"
#include "support/lock_fixture.h"
#include "support/traffic.h"

static struct traffic traffic;

/* Many of the first node's slots. */
static const struct own_move there = {0, 1, 0, 1999};

static struct own_move reverse(struct own_move move)
{
    return (struct own_move){move.to, move.from, move.first, move.last};
}

/* The slot of one key, which the node has; to the next node. */
static struct own_move of_key(size_t node, const char *key)
{
    unsigned slot = own_cluster_slot(key);

    return (struct own_move){node, (node + 1) % NODES, slot, slot};
}

static long long maps_asked(void)
{
    long long count = 0;

    for (size_t i = 0; i < cluster.count; i++)
        count += server_calls(&cluster.node[i], "cluster|slots");
    return count;
}

/* Errors with this code so far. */
static long long count_errors(const char *code)
{
    long long count = 0;
    char field[32];

    snprintf(field, sizeof(field), "errorstat_%s:count=", code);
    for (size_t i = 0; i < NODES; i++) {
        redisReply *reply = server_run(&cluster.node[i], "INFO errorstats");
        const char *at = strstr(reply->str, field);
        if (at != NULL)
            count += strtoll(strchr(at, '=') + 1, NULL, 10);
        freeReplyObject(reply);
    }
    return count;
}

static long long moved(void)
{
    return count_errors("MOVED");
}

/* -------------------------------------------------------------- under load */

/* Move the slots of all rows that the first node has at the start, one by one
 * and key by key, as redis-cli does. Returns: how many. */
static unsigned move_rows(size_t from, size_t to)
{
    enum { STEP_US = 2000 };
    unsigned slots = 0;

    for (unsigned k = 0; k < TRAFFIC_KEYS; k++) {
        struct own_move move = {from, to, 0, 0};
        char key[16];
        snprintf(key, sizeof(key), "w%u", k);
        move.first = move.last = own_cluster_slot(key);
        if (move.first >= CLUSTER_SLOTS / NODES)
            continue;
        own_cluster_begin_move(&cluster, &move);
        do
            usleep(STEP_US);
        while (own_cluster_move_key(&cluster, &move));
        own_cluster_end_move(&cluster, &move);
        slots++;
    }
    return slots;
}

/* Nothing was lost, and nothing is old. */
static void end_traffic(void)
{
    traffic_stop(&traffic);
    traffic_check(&traffic, true);
    ck_assert_uint_eq(traffic_count_old(&traffic), 0);
    traffic_close(&traffic);
    server_stop(&fixture.server);
}

/* 0: by calls that block; 1: by asynchronous ones. */
TEST_EACH(slots_that_move_under_load_give_out_nothing_old, 0, 2)
{
    enum { CLIENTS = 2, SOON_MS = 50, REGULAR = 10, SLOTS_MIN = 20 };
    uint64_t begin_ms;
    long long asked;

    cluster_init();
    traffic_start(&traffic, &fixture, _i == 1);
    begin_ms = shed_now_ms();
    asked = maps_asked();
    ck_assert_uint_ge(move_rows(0, 1), SLOTS_MIN);
    traffic_go_on(&traffic);
    ck_assert_uint_ge(move_rows(1, 0), SLOTS_MIN);
    traffic_go_on(&traffic);
    /* not for each call that was redirected */
    asked = maps_asked() - asked;
    ck_assert_int_lt(
        asked,
        CLIENTS * (long long)((shed_now_ms() - begin_ms) / SOON_MS + REGULAR));
    end_traffic();
}

/* Wait for a moment after which the map is not asked for by itself for long:
 * one of the asks that come every 3 s. A client that has just been opened asks
 * more often. */
static void await_regular_ask(void)
{
    enum { LONG_US = 1500000 };
    long long asked;

    do {
        asked = maps_asked();
        usleep(LONG_US);
    } while (maps_asked() != asked);
    WAIT_FOR(maps_asked() > asked);
}

/* The map is learnt from the first redirection, and not asked for again. */
TEST(a_moved_slot_is_asked_for_at_its_new_node)
{
    enum { READS = 200, SOON_MS = 1000 };
    struct own_move move;
    uint64_t moved_ms;
    char key[16], row[32];
    long long before;

    cluster_up();
    move = of_key(0, key_of(0, 0, key));
    expect_text(fixture.cache, key, row_of(key, 1, row));
    await_regular_ask();
    own_cluster_move(&cluster, &move);
    moved_ms = shed_now_ms();
    WAIT_FOR((before = moved(),
              expect_origin(fixture.cache, key, row, SHED_ORIGIN_REDIS),
              moved() == before));
    ck_assert_uint_lt(shed_now_ms() - moved_ms, scaled_ms(SOON_MS));
    for (int i = 0; i < READS; i++)
        expect_origin(fixture.cache, key, row, SHED_ORIGIN_REDIS);
    ck_assert_int_eq(moved(), before);
    move = reverse(move);
    own_cluster_move(&cluster, &move);
}

static void move_every_other_slot(size_t from, size_t to)
{
    enum { SLOTS = 300 };

    for (unsigned slot = 0; slot < SLOTS; slot += 2) {
        const struct own_move move = {from, to, slot, slot};
        own_cluster_move(&cluster, &move);
    }
}

/* As it is where slots have been moved one by one for years. */
TEST(a_map_of_many_ranges_is_learnt)
{
    char key[16], row[32];
    long long before;

    cluster_init();
    move_every_other_slot(0, 1);
    fixture_open(&fixture);
    (void)key_of(0, 0, key);
    expect_text(fixture.cache, key, row_of(key, 1, row));
    await_regular_ask();
    before = moved();
    expect_origin(fixture.cache, key, row, SHED_ORIGIN_REDIS);
    ck_assert_int_eq(moved(), before);
    move_every_other_slot(1, 0);
}

/* Its seed, whose address nobody else has, answers once; then connecting to it
 * hangs. */
TEST(the_map_is_asked_for_elsewhere_once_the_connection_for_it_is_lost)
{
    enum { HANGS_MS = 12000, BOUND_MS = 6000 };
    static struct proxy proxy = {.is_tcp = true};
    char uri[64];
    long long asked;
    uint64_t begin_ms;

    cluster_init();
    proxy_start(&proxy, &cluster.node[0]);
    snprintf(uri, sizeof(uri), "redis+cluster://127.0.0.1:%u", proxy.port);
    fixture.uri = uri;
    fixture_hurry(&fixture, HANGS_MS);
    fixture_open(&fixture);
    expect_text(fixture.cache, "k0", "k0@1");
    proxy_set(&proxy, PROXY_BLACKHOLE, 0, NULL);
    begin_ms = shed_now_ms();
    asked = maps_asked();
    WAIT_FOR(maps_asked() > asked);
    ck_assert_uint_lt(shed_now_ms() - begin_ms, scaled_ms(BOUND_MS));
}

/* ------------------------------------------------------------- in one slot */

/* Read a row whose slot is half-way: Redis may refuse to load or store it there
 * (TRYAGAIN), but the call must give out the newest row, in time. */
static void expect_now(const char *key, unsigned version)
{
    uint64_t begin_ms = shed_now_ms();
    char row[32];

    expect_text(fixture.cache, key, row_of(key, version, row));
    ck_assert_uint_lt(shed_now_ms() - begin_ms, scaled_ms(TRAFFIC_TIMEOUT_MS));
}

/* 0: there is no row; 1: it is to be moved; 2: it has been. */
TEST_EACH(in_a_slot_that_is_half_way_the_newest_row_is_given_out, 0, 3)
{
    struct own_move move;
    char key[16], row[32];

    cluster_init();
    fixture.cache_options.timeout_ms = scaled_ms(TRAFFIC_TIMEOUT_MS);
    fixture_open(&fixture);
    move = of_key(0, key_of(0, 0, key));
    if (_i > 0)
        expect_now(key, 1);
    own_cluster_begin_move(&cluster, &move);
    while (_i == 2 && own_cluster_move_key(&cluster, &move))
        ;
    if (_i > 0)
        expect_origin(fixture.cache, key, row_of(key, 1, row),
                      SHED_ORIGIN_REDIS);
    for (unsigned version = 2; version < 5; version++) {
        table_set_version(&fixture.table, version);
        /* it may be undelivered until the move ends */
        (void)!shed_invalidate(fixture.cache, shed_str(key), 0, NULL);
        expect_now(key, version);
        expect_now(key, version);
    }
    while (own_cluster_move_key(&cluster, &move))
        ;
    own_cluster_end_move(&cluster, &move);
    WAIT_FOR((expect_now(key, 4),
              server_int(&cluster.node[1], "EXISTS t:{%s}", key) == 1));
    expect_origin(fixture.cache, key, row_of(key, 4, row), SHED_ORIGIN_REDIS);
    move = reverse(move);
    own_cluster_move(&cluster, &move);
}

enum needy { GET, GET_ASYNC, INVALIDATE, INVALIDATE_ASYNC, LOCK, NEEDY };

/* A call whose script has two keys. */
static enum shed_code call_needy(enum needy what, const char *key,
                                 struct shed_lock *lock, uint64_t timeout_ms)
{
    struct shed_get_options o = SHED_GET_OPTIONS_INIT;
    struct shed_value *value = NULL;
    enum shed_code code;

    if (what == INVALIDATE)
        return shed_invalidate(fixture.cache, shed_str(key), timeout_ms, NULL);
    if (what == INVALIDATE_ASYNC)
        return awaited_invalidate(fixture.cache, shed_str(key), timeout_ms,
                                  NULL);
    if (what == LOCK)
        return shed_lock_acquire(lock, timeout_ms, NULL);
    o.timeout_ms = timeout_ms;
    code = (what == GET ? shed_get : awaited_get)(fixture.cache, shed_str(key),
                                                  &o, &value, NULL);
    shed_value_unref(value);
    return code;
}

/* Of its keys one is at the old node and the other nowhere, so that Redis asks
 * to try again, and no time is long enough for that. */
TEST_EACH(what_needs_two_keys_of_a_half_moved_slot_ends_by_its_deadline, 0,
          NEEDY)
{
    enum { TIMEOUT_MS = 200, LATE_MS = 300 };
    struct shed_lock_options o = options_of(SHED_LOCK_LEASE);
    struct shed_lock *lock;
    struct own_move move;
    uint64_t begin_ms;
    long long before;
    char key[16];

    cluster_up();
    move = of_key(0, key_of(0, 0, key));
    EXPECT_OK(shed_lock_open(fixture.client, shed_str(key), &o, &lock, NULL));
    server_do(&cluster.node[0], "SET t:{%s} %s PX 60000", key, "strange");
    server_do(&cluster.node[0], "SET lock:{%s} %s PX 60000", key, "strange");
    own_cluster_begin_move(&cluster, &move);
    before = count_errors("TRYAGAIN");
    begin_ms = shed_now_ms();
    ck_assert((call_needy((enum needy)_i, key, lock, scaled_ms(TIMEOUT_MS)) ==
               SHED_OK) == (_i <= GET_ASYNC));
    ck_assert_uint_lt(shed_now_ms() - begin_ms,
                      scaled_ms(TIMEOUT_MS + LATE_MS));
    ck_assert_int_gt(count_errors("TRYAGAIN"), before);
    while (own_cluster_move_key(&cluster, &move))
        ;
    own_cluster_end_move(&cluster, &move);
    server_do(&cluster.node[1], "DEL lock:{%s}", key);
    WAIT_FOR(call_needy((enum needy)_i, key, lock, 0) == SHED_OK);
    shed_lock_close(lock);
    move = reverse(move);
    own_cluster_move(&cluster, &move);
}

/* Its lease has moved; whoever waits is answered, and an invalidation at the
 * new node ends what was loaded before it. */
TEST_EACH(a_load_in_a_slot_that_moves_publishes_nothing_old, 0, 2)
{
    struct getter here = {0}, other = {0};
    struct own_move move;
    struct peer peer;
    char key[16], row[32];

    cluster_up();
    peer_open(&peer, &fixture);
    move = of_key(0, key_of(0, 0, key));
    getter_hold(&here, &fixture, key);
    getter_start(&other, peer.cache, key);
    WAIT_FOR(stats_of(peer.cache).waits >= 1);
    own_cluster_move(&cluster, &move);
    if (_i == 1) {
        table_update(&fixture.table);
        invalidate(peer.cache, key);
    }
    table_release(&fixture.table);
    getter_join(&here);
    getter_join(&other);
    EXPECT_OK(here.code);
    EXPECT_OK(other.code);
    shed_value_unref(here.value);
    shed_value_unref(other.value);
    expect_text(fixture.cache, key, row_of(key, 1 + (unsigned)_i, row));
    expect_text(peer.cache, key, row);
    peer_close(&peer);
    move = reverse(move);
    own_cluster_move(&cluster, &move);
}

TEST(a_lock_is_held_while_its_slot_moves)
{
    struct shed_lock_options o = options_of(SHED_LOCK_LEASE);
    struct shed_lock *here, *other;
    struct own_move move;
    struct peer peer;
    struct waiter w;
    char name[16];

    cluster_up();
    peer_open(&peer, &fixture);
    move = of_key(0, key_of(0, 0, name));
    EXPECT_OK(shed_lock_open(fixture.client, shed_str(name), &o, &here, NULL));
    EXPECT_OK(shed_lock_open(peer.client, shed_str(name), &o, &other, NULL));
    acquire(here, PLENTY_MS);
    waiter_start(&w, other, PLENTY_MS);
    own_cluster_move(&cluster, &move);
    EXPECT_OK(shed_lock_extend(here, 0, NULL));
    ck_assert(!atomic_load(&w.has_ended));
    release(here);
    WAIT_FOR(atomic_load(&w.has_ended));
    expect_acquire(here, 0, SHED_ETIMEDOUT);
    waiter_join(&w);
    EXPECT_OK(w.code);
    shed_lock_close(here);
    shed_lock_close(other);
    peer_close(&peer);
    move = reverse(move);
    own_cluster_move(&cluster, &move);
}

/* One step of a move each time. */
static void go_on_with(const struct own_move *move, unsigned step)
{
    if (step == 1)
        own_cluster_begin_move(&cluster, move);
    if (step == 2)
        while (own_cluster_move_key(&cluster, move))
            ;
    if (step == 3)
        own_cluster_end_move(&cluster, move);
}

/* The log of the tags is a key like others. */
TEST(invalidations_of_all_are_heard_while_their_log_moves)
{
    enum { STEPS = 6 };
    struct own_move move;
    struct peer peer;
    char row[32];

    cluster_init();
    fixture.cache_options.tags_limit = 100;
    fixture_open(&fixture);
    peer_open(&peer, &fixture);
    move = of_key(own_cluster_owner(&cluster, own_cluster_slot("t:tags"),
                                    CLUSTER_NODES_MAX),
                  "t:tags");
    expect_text(peer.cache, "k", "k@1");
    for (unsigned step = 0; step < STEPS; step++) {
        go_on_with(&move, step);
        table_update(&fixture.table);
        row_of("k", step + 2, row);
        /* while its slot is half-way it may be delivered later */
        ck_assert(shed_invalidate_all(fixture.cache, 0, NULL) == SHED_OK ||
                  step == 1 || step == 2);
        expect_text(fixture.cache, "k", row);
        if (step != 1 && step != 2)
            WAIT_FOR(has_text(peer.cache, row));
    }
    peer_close(&peer);
    move = reverse(move);
    own_cluster_move(&cluster, &move);
}

/* ------------------------------------------------------------------- nodes */

static bool is_up(void)
{
    return status_of(traffic.peer[0].client).is_up == 1 &&
           status_of(traffic.peer[1].client).is_up == 1;
}

/* Rows that were waited for are read from there as well. */
static unsigned long long from_redis(void)
{
    return stats_of(traffic.peer[0].cache).hits +
           stats_of(traffic.peer[1].cache).hits;
}

TEST(a_node_that_comes_is_used_and_one_that_goes_is_forgotten)
{
    struct own_move to_it = there;
    unsigned long long hits;

    cluster_init();
    traffic_start(&traffic, &fixture, false);
    to_it.to = own_cluster_add(&cluster);
    own_cluster_move(&cluster, &to_it);
    traffic_go_on(&traffic);
    WAIT_FOR(server_clients(&cluster.node[to_it.to], "flags=t") == 2);
    to_it = reverse(to_it);
    own_cluster_move(&cluster, &to_it);
    own_cluster_await(&cluster);
    own_cluster_remove(&cluster);
    traffic_go_on(&traffic);
    WAIT_FOR(is_up());
    hits = from_redis();
    traffic_go_on(&traffic);
    ck_assert_uint_gt(from_redis(), hits);
    end_traffic();
}

/* -------------------------------------------------------------- processes */

/* Its lease would last for 10 s; it is replaced because its node sees that its
 * channel is gone. */
TEST_EACH(a_loader_that_is_killed_is_replaced_soon, 0, NODES)
{
    enum { SOON_MS = 300 };
    char key[16], row[32];
    struct getter waiter = {0};
    uint64_t killed_ms;
    pid_t pid;

    cluster_init();
    key_of((size_t)_i, 0, key);
    pid = fork_child();
    if (pid == 0) {
        table_hold(&fixture.table);
        fixture_open(&fixture);
        expect_code(fixture.cache, key, SHED_OK, NULL);
        _exit(1);
    }
    WAIT_FOR(server_int(&cluster.node[_i], "EXISTS t:{%s}", key) == 1);
    fixture_open(&fixture);
    getter_start(&waiter, fixture.cache, key);
    WAIT_FOR(stats_of(fixture.cache).waits >= 1);
    usleep(SOON_MS * 1000); /* an empty channel is given a moment */
    ck_assert_uint_eq(table_loads(&fixture.table), 0);
    killed_ms = shed_now_ms();
    kill_child(pid);
    getter_expect(&waiter, row_of(key, 1, row), SHED_ORIGIN_LOAD);
    ck_assert_uint_lt(shed_now_ms() - killed_ms, scaled_ms(SOON_MS));
    ck_assert_uint_eq(table_loads(&fixture.table), 1);
}

int main(void)
{
    tcase_add_unchecked_fixture(test_case(), cluster_install, cluster_remove);
    tcase_add_checked_fixture(test_case(), NULL, cluster_down);
    return run_tests("cluster moves");
}
