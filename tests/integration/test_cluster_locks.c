/* Locks on a Redis Cluster, at each of its nodes. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "support/cluster_fixture.h"
#include "support/lock_fixture.h"

static struct shed_lock *open_named(struct shed_client *client,
                                    const char *name,
                                    enum shed_lock_algorithm algorithm,
                                    bool is_fair)
{
    struct shed_lock_options o = options_of(algorithm);
    struct shed_error err = {0};
    struct shed_lock *lock;

    o.fair = is_fair;
    ck_assert_msg(shed_lock_open(client, shed_str(name), &o, &lock, &err) ==
                      SHED_OK,
                  "%s", err.reason);
    return lock;
}

TEST_EACH(locks_of_every_algorithm_exclude_at_every_node, 0, SINGLES)
{
    struct shed_lock *here, *there;
    struct peer peer;
    char name[16];

    cluster_up();
    peer_open(&peer, &fixture);
    for (size_t n = 0; n < NODES; n++) {
        key_of(n, 1, name);
        here = open_named(fixture.client, name, singles[_i], false);
        there = open_named(peer.client, name, singles[_i], false);
        acquire(here, PLENTY_MS);
        expect_acquire(there, 0, SHED_ETIMEDOUT);
        release(here);
        acquire(there, PLENTY_MS);
        release(there);
        shed_lock_close(here);
        shed_lock_close(there);
    }
    peer_close(&peer);
}

/* For how long a waiter still waits after the release of a lock that was held
 * for a while. */
static uint64_t hand_on(struct shed_lock *from, struct shed_lock *to)
{
    enum { HELD_US = 200000 };
    struct waiter w;
    uint64_t begin_us;

    acquire(from, PLENTY_MS);
    waiter_start(&w, to, PLENTY_MS);
    usleep(HELD_US);
    begin_us = shed_now_us();
    release(from);
    while (!atomic_load(&w.has_ended))
        usleep(100);
    begin_us = shed_now_us() - begin_us;
    waiter_join(&w);
    EXPECT_OK(w.code);
    return begin_us;
}

/* It waits less than half as long as one that polls on the same machine at the
 * same time, and is asleep for up to 50 ms. A stall of the machine counts as no
 * more. */
TEST(a_waiter_for_a_lock_is_pushed)
{
    enum { TURNS = 12, POLL_US = 50000 };
    uint64_t waited_us[2] = {0}, lasted_us;
    struct peer peers[2];
    char name[16];

    cluster_up();
    for (unsigned i = 0; i < 2; i++) {
        fixture.client_options.wait = i == 0 ? SHED_WAIT_AUTO : SHED_WAIT_POLL;
        peer_open(&peers[i], &fixture);
    }
    for (unsigned i = 0; i < 2 * TURNS; i++) {
        struct shed_lock *here, *there;
        key_of(i % NODES, 1, name);
        here = open_named(fixture.client, name, SHED_LOCK_LEASE, false);
        there = open_named(peers[i % 2].client, name, SHED_LOCK_LEASE, false);
        lasted_us = hand_on(here, there);
        waited_us[i % 2] += lasted_us < POLL_US ? lasted_us : POLL_US;
        shed_lock_close(here);
        shed_lock_close(there);
    }
    ck_assert_uint_lt(2 * waited_us[0], waited_us[1]);
    for (unsigned i = 0; i < 2; i++)
        peer_close(&peers[i]);
}

TEST(a_fair_lock_goes_to_the_first_waiter)
{
    enum { WAITERS = 6 };
    struct shed_lock *locks[2], *first;
    struct waiter w[WAITERS];
    struct peer peer;
    char name[16];

    cluster_up();
    peer_open(&peer, &fixture);
    for (size_t n = 0; n < NODES; n++) {
        key_of(n, 1, name);
        first = open_named(fixture.client, name, SHED_LOCK_LEASE, true);
        locks[0] = open_named(fixture.client, name, SHED_LOCK_LEASE, true);
        locks[1] = open_named(peer.client, name, SHED_LOCK_LEASE, true);
        acquire(first, PLENTY_MS);
        for (int i = 0; i < WAITERS; i++) {
            waiter_start(&w[i], locks[i % 2], PLENTY_MS);
            WAIT_FOR(server_int(&cluster.node[n], "ZCARD lock:{%s}:q", name) ==
                     i + 1);
        }
        release(first);
        for (int i = 0; i < WAITERS; i++) {
            waiter_join(&w[i]);
            EXPECT_OK(w[i].code);
            if (i > 0)
                ck_assert_uint_eq(w[i].order, w[i - 1].order + 1);
        }
        shed_lock_close(first);
        shed_lock_close(locks[0]);
        shed_lock_close(locks[1]);
    }
    peer_close(&peer);
}

/* 0: each client is of the cluster; 1: each is of a node alone. */
TEST_EACH(a_quorum_of_nodes_of_one_cluster_is_refused, 0, 2)
{
    static const char *const reasons[] = {"same server or cluster",
                                          "is a node of a cluster"};
    struct shed_lock_options o = options_of(SHED_LOCK_LEASE);
    struct shed_client *clients[NODES];
    struct shed_error err = {0};
    struct shed_lock *lock;
    char uri[64], seed[2];

    cluster_init();
    for (size_t i = 0; i < NODES; i++) {
        snprintf(seed, sizeof(seed), "%zu", i);
        own_cluster_uri(&cluster, seed, uri, sizeof(uri));
        EXPECT_OK(shed_client_open(_i == 0 ? uri : cluster.node[i].uri,
                                   &fixture.client_options, &clients[i], NULL));
    }
    EXPECT_OK(shed_lock_open_quorum(clients, NODES, shed_str(LOCK_NAME), &o,
                                    &lock, NULL));
    WAIT_FOR(shed_lock_acquire(lock, 0, &err) != SHED_OK &&
             strstr(err.reason, reasons[_i]) != NULL);
    ck_assert_int_eq(err.code, _i == 0 ? SHED_EINVAL : SHED_EDENIED);
    shed_lock_close(lock);
    for (size_t i = 0; i < NODES; i++)
        shed_client_close(clients[i]);
}

int main(void)
{
    tcase_add_unchecked_fixture(test_case(), cluster_install, cluster_remove);
    tcase_add_checked_fixture(test_case(), NULL, cluster_down);
    return run_tests("cluster locks");
}
