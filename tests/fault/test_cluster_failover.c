/* Nodes of a cluster that die, stand still, or are replaced by their replicas:
 * the next primary is used soon, calls end in time, and what living processes
 * wrote last survives. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "support/cluster_fixture.h"
#include "support/lock_fixture.h"
#include "support/rewrites.h"
#include "support/traffic.h"

enum { REPLICA = NODES }; /* of the first primary */

/* As short as makes no healthy node seem dead to its clients. */
enum { SILENCE_MS = 400 };

static struct traffic traffic;

/* Clients notice soon that a node is silent. */
static void init_with(const struct own_cluster *options)
{
    cluster = *options;
    own_cluster_start(&cluster);
    cluster_init();
    fixture_hurry(&fixture, SILENCE_MS);
}

static void init(size_t replicas)
{
    init_with(&(struct own_cluster){.primaries = NODES, .replicas = replicas});
}

/* ------------------------------------------------------------ with replicas */

enum loss { KILLED, STOPPED, FORCED, TAKEN_OVER, ASKED, PARTED, LOSSES };

static void init_loss(enum loss how)
{
    init_with(&(struct own_cluster){
        .primaries = NODES, .replicas = 1, .has_bus_proxies = how == PARTED});
}

/* Returns when the replica is the primary. */
static void lose(enum loss how, size_t primary, size_t replica)
{
    static const char *const asked[LOSSES] = {
        [FORCED] = "FORCE", [TAKEN_OVER] = "TAKEOVER", [ASKED] = ""};

    if (how == KILLED)
        server_kill(&cluster.node[primary]);
    if (how == STOPPED)
        server_freeze(&cluster.node[primary]);
    if (how == PARTED)
        own_cluster_part(&cluster, primary);
    if (asked[how] != NULL)
        own_cluster_fail_over(&cluster, replica, asked[how]);
    own_cluster_await_primary(&cluster, replica);
}

/* Returns when the former primary is a replica. */
static void bring_back(enum loss how, size_t primary)
{
    if (how == KILLED)
        server_start_again(&cluster.node[primary]);
    if (how == STOPPED)
        server_thaw(&cluster.node[primary]);
    if (how == PARTED)
        own_cluster_join(&cluster);
    WAIT_FOR(!own_cluster_is_primary(&cluster, primary));
}

/* First with callers that block, then with asynchronous calls. Only one seed
 * lives. */
TEST_EACH(a_primary_that_is_lost_under_load_is_replaced_at_once, 0, 2 * LOSSES)
{
    enum loss how = (enum loss)(_i % LOSSES);
    char key[16], uri[96];

    init_loss(how);
    snprintf(uri, sizeof(uri),
             "redis+cluster://127.0.0.1:%u,127.0.0.1:%u,127.0.0.1:%u",
             server_free_port(), server_free_port(), cluster.port[1]);
    fixture.uri = uri;
    fixture.cache_options.failover_memory_ms = 600000;
    key_of(0, 0, key);
    fixture_open(&fixture);
    traffic_start(&traffic, &fixture, _i >= LOSSES);
    WAIT_FOR(gives_hits(fixture.cache, &cluster.node[0], key));
    lose(how, 0, REPLICA);
    expect_hits_soon(fixture.cache, &cluster.node[REPLICA], key);
    traffic_go_on(&traffic);
    bring_back(how, 0);
    traffic_go_on(&traffic);
    WAIT_FOR(gives_hits(fixture.cache, &cluster.node[REPLICA], key));
    traffic_stop(&traffic);
    traffic_check(&traffic, false);
    WAIT_FOR(traffic_count_old(&traffic) == 0);
    traffic_close(&traffic);
}

/* Its seed is dead; the other nodes have told it where all are. */
TEST(a_client_follows_when_its_only_seed_has_died)
{
    char uri[64], key[16], row[32];

    init(1);
    own_cluster_uri(&cluster, "0", uri, sizeof(uri));
    fixture.uri = uri;
    fixture_open(&fixture);
    key_of(0, 0, key);
    expect_text(fixture.cache, key, row_of(key, 1, row));
    server_kill(&cluster.node[0]);
    own_cluster_await_primary(&cluster, REPLICA);
    WAIT_FOR(gives_hits(fixture.cache, &cluster.node[REPLICA], key));
}

/* The first ones, in which the next primary can lack the last writes: not one
 * that is asked for, which waits for them, nor a partition, which has a test of
 * its own. */
enum { LOSING = TAKEN_OVER + 1 };

/* SHED_TEST_FAILOVERS: how many, for a longer hunt. */
static unsigned failovers(void)
{
    return (unsigned)number_in("SHED_TEST_FAILOVERS", LOSING);
}

static unsigned count_rewrites_of(size_t node)
{
    unsigned count = 0;
    char key[16];

    for (unsigned i = 0; i < REWRITES; i++)
        count +=
            own_cluster_owner(&cluster, own_cluster_slot(rewrite_key(i, key)),
                              CLUSTER_NODES_MAX) == node;
    return count;
}

static bool has_rewrites(size_t replica)
{
    return server_follows(&cluster.node[replica]) &&
           server_int(&cluster.node[replica], "DBSIZE") > 0;
}

/* A primary is lost with what only it has been told, and comes back as a
 * replica of its successor. */
static void lose_writes(enum loss how, size_t primary, size_t replica)
{
    WAIT_FOR(has_rewrites(replica));
    server_int(&cluster.node[primary], "WAIT 1 0");
    server_cut_replica(&cluster.node[replica], &cluster.node[primary]);
    rewrite_all();
    lose(how, primary, replica);
    server_join_replica(&cluster.node[replica]);
    bring_back(how, primary);
    own_cluster_await(&cluster);
}

/* Wait until a process reads nothing that is older than the last writes: for
 * less than the time to live of what they have replaced. */
static void await_rewrites(struct shed_cache *cache)
{
    uint64_t begin_ms = shed_now_ms();

    WAIT_FOR(rewrites_missed(cache, fixture.table.version) == 0);
    fprintf(stderr, "all was repeated %u ms after the first hit\n",
            (unsigned)(shed_now_ms() - begin_ms));
}

/* A node of Redis 7.0 keeps the votes of an election for so long. If a takeover
 * has made it a replica meanwhile and its primary dies, the node counts these
 * votes again. Its epoch is the old one, so the cluster replaces the node. */
enum { OLD_VOTES_MS = 2 * OWN_CLUSTER_TIMEOUT_MS };

/* 0: they are remembered; 1: not, which shows that they are lost. */
TEST_EACH(a_replica_without_the_last_writes_loses_none, 0, 2)
{
    unsigned written, lost = 0, rounds = _i == 0 ? failovers() : 1;
    size_t primary = 0, replica = REPLICA;
    struct peer peer;
    char key[16];

    init(1);
    fixture.cache_options.failover_memory_ms = _i == 0 ? 600000 : 0;
    fixture_open(&fixture);
    peer_open(&peer, &fixture);
    key_of(0, 0, key);
    written = count_rewrites_of(0);
    ck_assert_uint_gt(written, 0);
    for (unsigned i = 0; i < rounds; i++) {
        WAIT_FOR(gives_hits(peer.cache, &cluster.node[primary], key));
        WAIT_FOR(gives_hits(fixture.cache, &cluster.node[primary], key));
        expect_rewrites(peer.cache);
        lose_writes((enum loss)(i % LOSING), primary, replica);
        WAIT_FOR(gives_hits(peer.cache, &cluster.node[replica], key));
        if (_i == 0)
            await_rewrites(peer.cache);
        else
            lost = rewrites_missed(peer.cache, fixture.table.version);
        if (i % LOSING == TAKEN_OVER && i + 1 < rounds)
            usleep(OLD_VOTES_MS * 1000);
        replica = primary;
        primary = REPLICA - replica;
    }
    ck_assert_uint_eq(lost, _i == 0 ? 0 : written);
    peer_close(&peer);
}

/* 0: the first primary goes on until it notices that it is cut off. Of the two
 * processes one makes no call by which it would notice that. 1: its replica is
 * told to take over long before the first primary notices. */
TEST_EACH(in_a_partition_nothing_old_is_read_once_there_is_a_new_primary, 0, 2)
{
    enum { BOUND_MS = 1000, UNNOTICED_MS = 60000, TIMES = 10 };
    struct peer peer;
    uint64_t known_ms;
    char key[16];

    init_with(
        &(struct own_cluster){.primaries = NODES,
                              .replicas = 1,
                              .node_timeout_ms = _i == 0 ? 0 : UNNOTICED_MS,
                              .has_bus_proxies = true});
    fixture.cache_options.failover_memory_ms = 600000;
    fixture_open(&fixture);
    peer_open(&peer, &fixture);
    key_of(0, 0, key);
    expect_rewrites(peer.cache);
    WAIT_FOR(gives_hits(peer.cache, &cluster.node[0], key));
    WAIT_FOR(has_rewrites(REPLICA));
    server_cut_replica(&cluster.node[REPLICA], &cluster.node[0]);
    own_cluster_part(&cluster, 0);
    rewrite_all();
    if (_i == 1)
        own_cluster_fail_over(&cluster, REPLICA, "TAKEOVER");
    own_cluster_await_primary(&cluster, REPLICA);
    known_ms = shed_now_ms();
    WAIT_FOR(stats_of(fixture.cache).invalidations_repeated >= REWRITES);
    WAIT_FOR(gives_hits(peer.cache, &cluster.node[REPLICA], key));
    known_ms = shed_now_ms() - known_ms;
    fprintf(stderr, "followed after %u ms\n", (unsigned)known_ms);
    ck_assert_uint_lt(known_ms, scaled_ms(BOUND_MS));
    await_rewrites(peer.cache);
    for (unsigned i = 0; i < TIMES; i++) {
        expect_rewrites(peer.cache);
        expect_rewrites(fixture.cache);
        rewrite_all();
    }
    bring_back(PARTED, 0);
    expect_rewrites(peer.cache);
    peer_close(&peer);
}

static struct shed_lock *open_confirmed(struct shed_client *client,
                                        const char *name, uint64_t replicas)
{
    struct shed_lock_options o = options_of(SHED_LOCK_LEASE);
    struct shed_error err = {0};
    struct shed_lock *lock;

    o.replicas = replicas;
    ck_assert_msg(shed_lock_open(client, shed_str(name), &o, &lock, &err) ==
                      SHED_OK,
                  "%s", err.reason);
    return lock;
}

/* 0: its acquire does not wait for the replica, so that another gets it after
 * the failover. 1: it does, and fails while the replica has lost its link. */
TEST_EACH(a_lock_that_its_replica_has_survives_a_failover, 0, 2)
{
    enum { LOOK_MS = 500 };
    struct shed_lock *lock, *rival;
    struct peer peer;
    char name[16];

    init(1);
    key_of(0, 0, name);
    fixture_open(&fixture);
    peer_open(&peer, &fixture);
    lock = open_confirmed(fixture.client, name, (uint64_t)_i);
    rival = open_confirmed(peer.client, name, 0);
    acquire(lock, PLENTY_MS); /* it is connected */
    release(lock);
    server_cut_replica(&cluster.node[REPLICA], &cluster.node[0]);
    expect_acquire(lock, 0, _i == 0 ? SHED_OK : SHED_EREDIS);
    if (_i == 1) {
        server_join_replica(&cluster.node[REPLICA]);
        acquire(lock, PLENTY_MS);
        server_cut_replica(&cluster.node[REPLICA], &cluster.node[0]);
    }
    server_kill(&cluster.node[0]);
    own_cluster_await_primary(&cluster, REPLICA);
    WAIT_FOR(gives_hits(peer.cache, &cluster.node[REPLICA], name));
    if (_i == 0) {
        acquire(rival, PLENTY_MS); /* so there were two for a moment */
        WAIT_FOR(!shed_lock_is_mine(lock));
    } else {
        expect_acquire(rival, LOOK_MS, SHED_ETIMEDOUT);
        ck_assert(shed_lock_is_mine(lock));
        release(lock);
        acquire(rival, PLENTY_MS);
    }
    release(rival);
    shed_lock_close(rival);
    shed_lock_close(lock);
    peer_close(&peer);
}

/* --------------------------------------------------------- without replicas */

/* Two of three primaries are dead, so the third one does not answer, either. */
/* 0: by calls that block; 1: by asynchronous ones. */
TEST_EACH(without_a_cluster_rows_come_from_the_source_and_with_it_from_redis, 0,
          2)
{
    char key[16];

    init(0);
    fixture_open(&fixture);
    traffic_start(&traffic, &fixture, _i == 1);
    server_kill(&cluster.node[0]);
    server_kill(&cluster.node[1]);
    WAIT_FOR(atomic_load(&traffic.refused) > 10);
    traffic_go_on(&traffic);
    server_start_again(&cluster.node[0]);
    server_start_again(&cluster.node[1]);
    own_cluster_await(&cluster);
    for (size_t i = 0; i < NODES; i++) {
        key_of(i, 0, key);
        WAIT_FOR(gives_hits(fixture.cache, &cluster.node[i], key));
    }
    traffic_stop(&traffic);
    traffic_check(&traffic, false);
    WAIT_FOR(traffic_count_old(&traffic) == 0);
    traffic_close(&traffic);
}

enum { MANY = 30 };

static void *get_many(void *code)
{
    char names[MANY][16];
    struct shed_item items[MANY];

    for (unsigned i = 0; i < MANY; i++)
        items[i] =
            (struct shed_item){.key = shed_str(rewrite_key(i, names[i]))};
    *(enum shed_code *)code =
        shed_get_many(fixture.cache, items, MANY, NULL, NULL);
    for (unsigned i = 0; i < MANY; i++)
        shed_value_unref(items[i].value);
    return NULL;
}

static void each_other(size_t node, void (*act)(struct server *))
{
    for (size_t i = 0; i < NODES; i++)
        if (i != node)
            act(&cluster.node[i]);
}

/* All nodes but one stand still, and it has its part of the call. */
TEST(the_parts_of_a_call_are_sent_to_all_nodes_at_the_same_time)
{
    enum shed_code code;

    cluster_init_own(0);
    fixture_open(&fixture);
    get_many(&code);
    EXPECT_OK(code);
    for (size_t node = 0; node < NODES; node++) {
        pthread_t thread;
        server_do(&cluster.node[node], "CONFIG RESETSTAT");
        each_other(node, server_freeze);
        start_thread(&thread, get_many, &code);
        WAIT_FOR(server_calls(&cluster.node[node], "get") > 0);
        each_other(node, server_thaw);
        pthread_join(thread, NULL);
        EXPECT_OK(code);
    }
}

int main(void)
{
    tcase_set_timeout(test_case(), TEST_TIMEOUT_S + 10 * failovers());
    tcase_add_checked_fixture(test_case(), NULL, cluster_down_own);
    return run_tests("cluster failover");
}
