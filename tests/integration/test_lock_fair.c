/* Fair locks on a real server: their queue, within a process and between
 * processes. */
#include "support/lock_pair.h"

static void open_fair(void)
{
    struct shed_lock_options o = options_of(SHED_LOCK_LEASE);

    o.fair = 1;
    mine = open_kept(client, &o);
    theirs = open_kept(other, &o);
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
    struct turns t[THREADS];
    uint64_t end_ms = shed_now_ms() + 4 * (test_deadline_ms() - shed_now_ms());

    open_fair();
    for (unsigned i = 0; i < THREADS; i++) {
        t[i] = (struct turns){.lock = mine, .count = TURNS};
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
    unsigned before = 0;

    open_fair();
    for (unsigned i = 0; i < TURNS; i++) {
        atomic_bool is_over = false;
        atomic_uint got = 0;
        struct trier t[TRIERS];
        struct waiter w;
        acquire(theirs, PLENTY_MS);
        waiter_start(&w, mine, PLENTY_MS);
        WAIT_FOR(server_int(&server, "ZCARD %s:q", LEASE_KEY) == 1);
        for (unsigned j = 0; j < TRIERS; j++) {
            t[j] =
                (struct trier){.lock = mine, .is_over = &is_over, .got = &got};
            start_thread(&t[j].thread, try_again_and_again, &t[j]);
        }
        usleep(20000);
        release(theirs);
        WAIT_FOR(atomic_load(&w.has_ended));
        before += atomic_load(&got);
        atomic_store(&is_over, true);
        for (unsigned j = 0; j < TRIERS; j++)
            ck_assert_int_eq(pthread_join(t[j].thread, NULL), 0);
        waiter_join(&w);
    }
    ck_assert_uint_le(before, SLACK);
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
    struct outcome outcomes[WAITERS] = {{0}};

    open_fair();
    acquire(theirs, 0);
    expect_acquire(mine, 0, SHED_ETIMEDOUT); /* it leaves at once */
    WAIT_FOR(server_int(&server, "ZCARD %s:q", LEASE_KEY) == 0);
    queue_together(mine, _i == 0 ? WAIT_MS : PLENTY_MS, outcomes, WAITERS);
    if (_i == 1)
        close_kept(mine);
    for (unsigned i = 0; i < WAITERS; i++) {
        WAIT_FOR(atomic_load(&outcomes[i].calls) == 1);
        ck_assert_int_eq(atomic_load(&outcomes[i].code),
                         _i == 0 ? SHED_ETIMEDOUT : SHED_ECLOSED);
    }
    WAIT_FOR(server_int(&server, "ZCARD %s:q", LEASE_KEY) == 0);
}

int main(void)
{
    tcase_add_checked_fixture(test_case(), pair_up, server_down);
    return run_tests("lock fair");
}
