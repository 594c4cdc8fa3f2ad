/* Fair locks on a real server: their queue, within a process and between
 * processes. */
#include "support/lock_pair.h"

enum { MANY = 8 };

TEST(a_fair_lock_goes_to_the_first_waiter)
{
    struct shed_lock_options o = options_of(SHED_LOCK_LEASE);
    struct shed_lock *first, *locks[2];
    struct waiter w[MANY];

    o.fair = 1;
    first = open_lock(client, &o);
    locks[0] = open_lock(other, &o);
    locks[1] = open_lock(client, &o);
    acquire(first, 0);
    for (unsigned i = 0; i < MANY; i++) {
        waiter_start(&w[i], locks[i % 2], PLENTY_MS);
        WAIT_FOR(server_int(&server, "ZCARD %s:q", LEASE_KEY) == i + 1);
    }
    release(first);
    for (unsigned i = 0; i < MANY; i++) {
        waiter_join(&w[i]);
        EXPECT_OK(w[i].code);
        if (i > 0)
            ck_assert_uint_eq(w[i].order, w[i - 1].order + 1);
    }
    ck_assert_int_eq(server_int(&server, "EXISTS %s:q", LEASE_KEY), 0);
    shed_lock_close(first);
    shed_lock_close(locks[0]);
    shed_lock_close(locks[1]);
}

struct turns {
    struct shed_lock *lock;
    pthread_t thread;
    unsigned count;
};

static void *take_turns(void *arg)
{
    struct turns *t = arg;

    for (unsigned i = 0; i < t->count; i++) {
        acquire(t->lock, PLENTY_MS);
        release(t->lock);
    }
    return NULL;
}

/* A thread that comes again asks at once, to join the queue. That must not cost
 * the first in the queue the push that announces its turn; otherwise each turn
 * would take as long as a poll. */
TEST(a_fair_lock_wastes_no_time_between_threads)
{
    enum { THREADS = 4, TURNS = 500 };
    struct shed_lock_options o = options_of(SHED_LOCK_LEASE);
    struct turns t[THREADS];
    uint64_t end_ms = shed_now_ms() + 4 * (test_deadline_ms() - shed_now_ms());
    struct shed_lock *lock;

    o.fair = 1;
    lock = open_kept(client, &o);
    for (unsigned i = 0; i < THREADS; i++) {
        t[i] = (struct turns){.lock = lock, .count = TURNS};
        start_thread(&t[i].thread, take_turns, &t[i]);
    }
    for (unsigned i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_join(t[i].thread, NULL), 0);
    ck_assert_uint_lt(shed_now_ms(), end_ms);
}

/* A thread that tries without waiting, repeatedly, until it is told to stop. */
struct trier {
    struct shed_lock *lock;
    pthread_t thread;
    atomic_bool *is_over;
    atomic_uint *got;
};

static void *try_again_and_again(void *arg)
{
    struct trier *t = arg;

    while (!atomic_load(t->is_over)) {
        if (shed_lock_acquire(t->lock, 0, NULL) != SHED_OK)
            continue;
        atomic_fetch_add(t->got, 1);
        release(t->lock);
    }
    return NULL;
}

/* On the waiter's own handle, which asks on behalf of all. */
TEST(a_waiter_comes_before_those_who_try)
{
    enum { TRIERS = 4, TURNS = 5, SLACK = 10 };
    struct shed_lock_options o = options_of(SHED_LOCK_LEASE);
    struct shed_lock *shared, *lock;
    unsigned before = 0;

    o.fair = 1;
    shared = open_kept(client, &o);
    lock = open_kept(other, &o);
    for (unsigned i = 0; i < TURNS; i++) {
        atomic_bool is_over = false;
        atomic_uint got = 0;
        struct trier t[TRIERS];
        struct waiter w;
        acquire(lock, PLENTY_MS);
        waiter_start(&w, shared, PLENTY_MS);
        WAIT_FOR(server_int(&server, "ZCARD %s:q", LEASE_KEY) == 1);
        for (unsigned j = 0; j < TRIERS; j++) {
            t[j] = (struct trier){
                .lock = shared, .is_over = &is_over, .got = &got};
            start_thread(&t[j].thread, try_again_and_again, &t[j]);
        }
        usleep(20000);
        release(lock);
        WAIT_FOR(atomic_load(&w.has_ended));
        before += atomic_load(&got);
        atomic_store(&is_over, true);
        for (unsigned j = 0; j < TRIERS; j++)
            ck_assert_int_eq(pthread_join(t[j].thread, NULL), 0);
        waiter_join(&w);
    }
    ck_assert_uint_le(before, SLACK);
}

TEST(a_waiter_that_gives_up_leaves_the_queue)
{
    struct shed_lock_options o = options_of(SHED_LOCK_LEASE);
    struct shed_lock *a, *b;

    o.fair = 1;
    a = open_kept(client, &o);
    b = open_kept(other, &o);
    acquire(a, 0);
    expect_acquire(b, 30, SHED_ETIMEDOUT);
    expect_acquire(b, 0, SHED_ETIMEDOUT);
    WAIT_FOR(server_int(&server, "ZCARD %s:q", LEASE_KEY) == 0);
    release(a);
}

/* All of them are in the queue before the first gives up; on a slow machine
 * that takes more than one attempt. */
static void queue_together(struct shed_lock *lock, uint64_t wait_ms,
                           struct outcome *outcomes, unsigned count)
{
    for (;; wait_ms *= 2) {
        for (unsigned i = 0; i < count; i++)
            acquire_async(lock, wait_ms, &outcomes[i]);
        while (atomic_load(&outcomes[0].calls) == 0)
            if (server_int(&server, "ZCARD %s:q", LEASE_KEY) == count)
                return;
        ck_assert_uint_lt(wait_ms, PLENTY_MS);
        for (unsigned i = 0; i < count; i++) {
            WAIT_FOR(atomic_load(&outcomes[i].calls) == 1);
            outcomes[i] = (struct outcome){0};
        }
    }
}

/* 0: they give up; 1: the handle is closed. */
TEST_EACH(many_waiters_that_end_together_leave_the_queue, 0, 2)
{
    enum { WAITERS = 5, WAIT_MS = 100 };
    struct shed_lock_options o = options_of(SHED_LOCK_LEASE);
    struct outcome outcomes[WAITERS] = {{0}};
    struct shed_lock *held, *wanted;

    o.fair = 1;
    held = open_kept(other, &o);
    wanted = open_lock(client, &o);
    acquire(held, 0);
    queue_together(wanted, _i == 0 ? WAIT_MS : PLENTY_MS, outcomes, WAITERS);
    if (_i == 1)
        shed_lock_close(wanted);
    for (unsigned i = 0; i < WAITERS; i++) {
        WAIT_FOR(atomic_load(&outcomes[i].calls) == 1);
        ck_assert_int_eq(atomic_load(&outcomes[i].code),
                         _i == 0 ? SHED_ETIMEDOUT : SHED_ECLOSED);
    }
    WAIT_FOR(server_int(&server, "ZCARD %s:q", LEASE_KEY) == 0);
    if (_i == 0)
        shed_lock_close(wanted);
}

/* A waiter that is in the queue and does not come delays the others only for a
 * moment. */
TEST(a_waiter_that_misses_its_turn_loses_it)
{
    struct shed_lock_options o = options_of(SHED_LOCK_LEASE);
    struct shed_lock *lock;

    o.fair = 1;
    lock = open_kept(client, &o);
    server_do(&server, "ZADD %s:q 1 %s", LEASE_KEY,
              "0123456789abcdef                9000000000000");
    expect_acquire(lock, 0, SHED_ETIMEDOUT);
    acquire(lock, PLENTY_MS);
    release(lock);
}

int main(void)
{
    tcase_add_checked_fixture(test_case(), pair_up, pair_down);
    return run_tests("lock fair");
}
