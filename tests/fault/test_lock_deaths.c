/* Locks whose holders or waiters die, and live ones that must not seem dead. */
#include <stdio.h>

#include "support/child.h"
#include "support/lock_fixture.h"

/* Longer than a live process stops on a busy machine. */
enum { GRACE_MS = 1500 };

/* A process that holds the lock until it is killed. It is forked before this
 * one has threads. */
struct holder {
    pid_t pid;
    int told[2]; /* gets a byte when it holds the lock */
};

static void hold(int told, const struct shed_lock_options *o)
{
    struct shed_client *client = open_client(&server, SHED_WAIT_AUTO);
    struct shed_lock *lock = open_kept(client, o);

    acquire(lock, PLENTY_MS);
    ck_assert_int_eq(write(told, "", 1), 1);
    for (;;)
        pause();
}

static void holder_start(struct holder *h, const struct shed_lock_options *o)
{
    char byte;

    ck_assert_int_eq(pipe(h->told), 0);
    h->pid = fork_child();
    if (h->pid == 0)
        hold(h->told[1], o);
    close(h->told[1]); /* if it dies, the read ends */
    ck_assert_int_eq(read(h->told[0], &byte, 1), 1);
}

static void holder_kill(struct holder *h)
{
    kill_child(h->pid);
    close(h->told[0]);
}

TEST_EACH(a_dead_holder_is_replaced_long_before_its_lease_ends, 0, 2)
{
    struct shed_lock_options o = options_of(SHED_LOCK_LEASE);
    struct shed_client *client;
    struct shed_lock *lock;
    struct holder h;
    struct waiter w;

    o.lease_ms = 3600000;
    o.fair = (uint64_t)_i;
    holder_start(&h, &o);
    client = open_client(&server, SHED_WAIT_AUTO);
    lock = open_kept(client, &o);
    waiter_start(&w, lock, PLENTY_MS);
    wait_until_asked(&server, 3);
    ck_assert(!atomic_load(&w.has_ended));
    holder_kill(&h);
    WAIT_FOR(atomic_load(&w.has_ended));
    waiter_join(&w);
    EXPECT_OK(w.code);
}

TEST_EACH(a_holder_that_dies_at_once_is_replaced_too, 0, 2)
{
    enum { HOLDERS = 20 };
    struct shed_lock_options o = options_of(SHED_LOCK_LEASE);

    o.lease_ms = 3600000;
    if (_i == 0)
        o.watchdog_ms = 0;
    for (unsigned i = 0; i < HOLDERS; i++) {
        struct shed_client *client;
        struct shed_lock *lock;
        struct holder h;
        holder_start(&h, &o);
        holder_kill(&h);
        client = open_client(&server, SHED_WAIT_AUTO);
        lock = open_kept(client, &o);
        acquire(lock, PLENTY_MS);
        release(lock);
        close_client(client);
    }
}

enum { DEAD_WAITERS = 40 };

/* A process that waits for the lock in many threads. */
static _Noreturn void wait_often(int told, const struct shed_lock_options *o)
{
    static struct outcome outcomes[DEAD_WAITERS];
    struct shed_client *client = open_client(&server, SHED_WAIT_AUTO);
    struct shed_lock *lock = open_kept(client, o);

    for (int i = 0; i < DEAD_WAITERS; i++)
        acquire_async(lock, PLENTY_MS, &outcomes[i]);
    WAIT_FOR(server_int(&server, "ZCARD " LEASE_KEY ":q") == DEAD_WAITERS);
    ck_assert_int_eq(write(told, "", 1), 1);
    for (;;)
        pause();
}

/* Each of them could delay the next for 250 ms. */
TEST(dead_waiters_of_a_fair_lock_cost_one_grace)
{
    struct shed_lock_options o = options_of(SHED_LOCK_LEASE);
    struct shed_client *client;
    struct shed_lock *lock;
    struct holder holding, waiting;
    struct waiter w;
    char byte;

    o.lease_ms = 3600000;
    o.fair = 1;
    holder_start(&holding, &o);
    ck_assert_int_eq(pipe(waiting.told), 0);
    waiting.pid = fork_child();
    if (waiting.pid == 0)
        wait_often(waiting.told[1], &o);
    ck_assert_int_eq(read(waiting.told[0], &byte, 1), 1);
    client = open_client(&server, SHED_WAIT_AUTO);
    lock = open_kept(client, &o);
    waiter_start(&w, lock, PLENTY_MS);
    WAIT_FOR(server_int(&server, "ZCARD " LEASE_KEY ":q") == DEAD_WAITERS + 1);
    holder_kill(&waiting);
    holder_kill(&holding);
    WAIT_FOR(atomic_load(&w.has_ended));
    waiter_join(&w);
    EXPECT_OK(w.code);
}

TEST(with_no_grace_only_the_lease_counts)
{
    struct shed_lock_options o = options_of(SHED_LOCK_LEASE);
    struct shed_client *client;
    struct shed_lock *lock;
    struct holder h;

    o.death_grace_ms = 0;
    holder_start(&h, &o);
    client = open_client(&server, SHED_WAIT_AUTO);
    lock = open_kept(client, &o);
    holder_kill(&h);
    expect_acquire(lock, 600, SHED_ETIMEDOUT);
    ck_assert_int_eq(server_int(&server, "EXISTS %s", LEASE_KEY), 1);
}

TEST(a_holder_whose_pushes_are_cut_keeps_the_lock)
{
    enum { CUTS = 4 };
    struct shed_lock_options o = options_of(SHED_LOCK_LEASE);
    struct shed_lock *held, *wanted;
    struct waiter w;

    o.on_lost = count_loss;
    o.death_grace_ms = scaled_ms(GRACE_MS);
    held = open_alone(&o);
    wanted = open_alone(&o);
    WAIT_FOR(server_clients(&server, "sub=4") == 2);
    acquire(held, 0);
    waiter_start(&w, wanted, PLENTY_MS);
    for (unsigned i = 0; i < CUTS; i++) {
        uint64_t end_ms = shed_now_ms() + o.death_grace_ms;
        server_do(&server, "CLIENT KILL TYPE pubsub");
        WAIT_FOR(server_clients(&server, "sub=4") == 2);
        while (shed_now_ms() < end_ms)
            wait_until_asked(&server, 1);
        wait_until_asked(&server, 2);
        ck_assert(!atomic_load(&w.has_ended));
    }
    release(held);
    waiter_join(&w);
    EXPECT_OK(w.code);
    ck_assert_uint_eq(atomic_load(&losses), 0);
}

/* A process that can no longer subscribe must not seem dead: others may judge
 * it by its channel only as long as its record says so. */
static void refuse_pushes(void)
{
    server_do(&server, "ACL SETUSER default -subscribe");
    server_do(&server, "CLIENT KILL TYPE pubsub");
}

/* At first it cannot rewrite its record either. */
static void refuse_all(void)
{
    server_do(&server, "ACL SETUSER default -evalsha");
    refuse_pushes();
    WAIT_FOR(server_clients(&server, "cmd=subscribe") == 1);
    server_do(&server, "ACL SETUSER default +evalsha");
}

/* Another client, which waits for the lock in vain for longer than the
 * grace. */
struct rival {
    struct shed_client *client;
    struct waiter waiter;
};

static void rival_start(struct rival *r, const struct shed_lock_options *o)
{
    uint64_t end_ms = shed_now_ms() + 2 * o->death_grace_ms;

    r->client = open_client(&server, SHED_WAIT_AUTO);
    waiter_start(&r->waiter, open_kept(r->client, o), PLENTY_MS);
    do
        wait_until_asked(&server, 3);
    while (shed_now_ms() < end_ms);
    ck_assert(!atomic_load(&r->waiter.has_ended));
}

static void rival_end(struct rival *r)
{
    waiter_join(&r->waiter);
    EXPECT_OK(r->waiter.code);
    close_client(r->client);
}

TEST_EACH(a_holder_that_can_no_longer_subscribe_keeps_the_lock, 0, 4)
{
    struct shed_lock_options o = options_of(SHED_LOCK_LEASE);
    struct shed_lock *lock;
    struct rival rival;
    long long left_ms;

    if (_i % 2 == 0)
        o.watchdog_ms = 0;
    o.death_grace_ms = scaled_ms(GRACE_MS);
    lock = open_alone(&o);
    acquire(lock, 0);
    left_ms = server_int(&server, "PTTL %s", LEASE_KEY);
    if (_i < 2)
        refuse_pushes();
    else
        refuse_all();
    rival_start(&rival, &o);
    if (o.watchdog_ms == 0) /* without a watchdog the lease was not renewed */
        ck_assert_int_lt(server_int(&server, "PTTL %s", LEASE_KEY), left_ms);
    release(lock);
    rival_end(&rival);
}

TEST_EACH(a_holder_that_loses_pushes_while_it_acquires_keeps_the_lock, 0, 2)
{
    struct shed_lock_options o = options_of(SHED_LOCK_LEASE);
    struct shed_lock *lock;
    struct rival rival;
    struct waiter w;

    if (_i == 0)
        o.watchdog_ms = 0;
    lock = open_alone(&o);
    acquire(lock, 0); /* now all connections exist */
    release(lock);
    server_do(&server, "CLIENT PAUSE 60000 WRITE");
    waiter_start(&w, lock, PLENTY_MS);
    WAIT_FOR(server_clients(&server, "cmd=evalsha") == 1);
    refuse_pushes();
    WAIT_FOR(server_clients(&server, "cmd=subscribe") == 1);
    server_do(&server, "CLIENT UNPAUSE");
    WAIT_FOR(atomic_load(&w.has_ended));
    EXPECT_OK(w.code);
    rival_start(&rival, &o);
    waiter_join(&w);
    EXPECT_OK(w.release_code);
    rival_end(&rival);
}

int main(void)
{
    tcase_add_checked_fixture(test_case(), server_up, server_down);
    return run_tests("lock deaths");
}
