/* One lock on a real server: exclusion, waiting, re-entry, tokens, and what
 * other clients of the algorithms see. */
#include <string.h>

#include <snowshed/stats.h>

#include "support/lock_pair.h"

enum { MANY = 8 };

/* Redis does not show how many threads of this process wait. It shows that they
 * have asked, because INFO counts tracked keys. */
static bool is_tracked(void)
{
    char count[32];

    server_info(&server, "tracking_total_keys", count, sizeof(count));
    return strtoul(count, NULL, 10) > 0;
}

/* -------------------------------------------------------------- exclusion */

TEST_EACH(a_held_lock_is_refused_to_others, 0, SINGLES)
{
    open_pair(singles[_i]);
    acquire(mine, 0);
    ck_assert_int_eq(shed_lock_is_mine(mine), 1);
    expect_acquire(theirs, 0, SHED_ETIMEDOUT);
    expect_acquire(theirs, 20, SHED_ETIMEDOUT);
    ck_assert_int_eq(shed_lock_is_mine(theirs), 0);
    EXPECT_CODE(shed_lock_release(theirs, NULL), SHED_ELOST);
    release(mine);
    ck_assert_int_eq(shed_lock_is_mine(mine), 0);
    acquire(theirs, 0);
    release(theirs);
    ck_assert_int_eq(server_int(&server, "EXISTS %s %s", LOCK_NAME, LEASE_KEY),
                     0);
}

/* The lease is 30 s and a poll comes after half a second, so it is the push
 * that wakes the waiter. */
TEST_EACH(release_lets_a_waiter_in, 0, SINGLES)
{
    struct waiter w;

    open_pair(singles[_i]);
    acquire(mine, 0);
    waiter_start(&w, theirs, PLENTY_MS);
    WAIT_FOR(is_tracked());
    ck_assert(!atomic_load(&w.has_ended));
    release(mine);
    WAIT_FOR(atomic_load(&w.has_ended));
    expect_acquire(mine, 0, SHED_ETIMEDOUT);
    waiter_join(&w);
    EXPECT_OK(w.code);
    EXPECT_OK(w.release_code);
    acquire(mine, 0);
    release(mine);
}

TEST_EACH(without_pushes_a_waiter_polls, 0, SINGLES)
{
    struct shed_lock_options o = options_of(singles[_i]);
    struct shed_client *poller = open_client(&server, SHED_WAIT_POLL);
    struct shed_lock *a = open_lock(client, &o);
    struct shed_lock *b = open_lock(poller, &o);
    struct waiter w;

    acquire(a, 0);
    waiter_start(&w, b, PLENTY_MS);
    WAIT_FOR(server_calls(&server, singles[_i] == SHED_LOCK_LEASE
                                       ? "evalsha"
                                       : "setnx") > 3);
    release(a);
    waiter_join(&w);
    EXPECT_OK(w.code);
    shed_lock_close(a);
    shed_lock_close(b);
}

struct counted {
    struct shed_lock *lock;
    unsigned rounds;
    unsigned *inside, *most, *entries; /* guarded only by the lock */
};

static void *count_entries(void *arg)
{
    struct counted *c = arg;

    for (unsigned i = 0; i < c->rounds; i++) {
        acquire(c->lock, PLENTY_MS);
        if (++*c->inside > *c->most)
            *c->most = *c->inside;
        ++*c->entries;
        --*c->inside;
        release(c->lock);
    }
    return NULL;
}

TEST_EACH(threads_and_handles_exclude_each_other, 0, SINGLES)
{
    enum { THREADS = 6, HANDLES = 3, ROUNDS = 30 };
    struct shed_lock_options o = options_of(singles[_i]);
    struct shed_lock *locks[HANDLES] = {
        open_lock(client, &o), open_lock(client, &o), open_lock(other, &o)};
    unsigned inside = 0, most = 0, entries = 0;
    struct counted c[THREADS];
    pthread_t threads[THREADS];

    for (unsigned i = 0; i < THREADS; i++) {
        c[i] = (struct counted){locks[i % HANDLES], ROUNDS, &inside, &most,
                                &entries};
        start_thread(&threads[i], count_entries, &c[i]);
    }
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    ck_assert_uint_eq(entries, THREADS * ROUNDS);
    ck_assert_uint_eq(most, 1);
    for (unsigned i = 0; i < HANDLES; i++)
        shed_lock_close(locks[i]);
}

/* --------------------------------------------------------- whose it is */

TEST(nobody_asks_redis_while_the_handle_has_the_lock)
{
    enum { WAITERS = 5, WHILE_US = 300000 };
    struct waiter waiters[WAITERS];
    long long calls;

    open_pair(SHED_LOCK_LEASE);
    acquire(mine, 0);
    calls = server_calls(&server, "evalsha");
    for (unsigned i = 0; i < WAITERS; i++)
        waiter_start(&waiters[i], mine, PLENTY_MS);
    usleep(WHILE_US);
    ck_assert_int_eq(server_calls(&server, "evalsha"), calls);
    release(mine);
    for (unsigned i = 0; i < WAITERS; i++)
        atomic_store(&waiters[i].may_go, true);
    for (unsigned i = 0; i < WAITERS; i++) {
        waiter_join(&waiters[i]);
        EXPECT_OK(waiters[i].code);
    }
}

enum { HOLD_US = 1000 };

struct greedy {
    struct shed_lock *lock;
    atomic_bool is_over;
    atomic_uint rounds;
};

static void *take_again_and_again(void *arg)
{
    struct greedy *g = arg;

    while (!atomic_load(&g->is_over)) {
        acquire(g->lock, PLENTY_MS);
        atomic_fetch_add(&g->rounds, 1);
        usleep(HOLD_US);
        release(g->lock);
    }
    return NULL;
}

/* By another client, and by another handle of the same client. Until then the
 * first takes it a few times; if its cohort never ended it would take it
 * hundreds of times, in every run, not only when the waiter was not
 * scheduled. */
TEST_EACH(a_handle_that_acquires_repeatedly_lets_others_in, 0, 2)
{
    enum { TIMES = 60, ROUNDS_MAX = 100, SLOW_MAX = TIMES / 4 };
    struct shed_lock_options o = options_of(SHED_LOCK_LEASE);
    unsigned slow = 0;
    struct greedy g = {.lock = open_lock(client, &o)};
    struct shed_lock *lock = open_lock(_i == 0 ? other : client, &o);
    pthread_t thread;

    start_thread(&thread, take_again_and_again, &g);
    for (unsigned i = 0; i < TIMES; i++) {
        unsigned before = atomic_load(&g.rounds);
        acquire(lock, PLENTY_MS);
        slow += atomic_load(&g.rounds) - before >= ROUNDS_MAX;
        release(lock);
        WAIT_FOR(atomic_load(&g.rounds) > before);
    }
    atomic_store(&g.is_over, true);
    pthread_join(thread, NULL);
    ck_assert_uint_le(slow, SLOW_MAX);
    shed_lock_close(g.lock);
    shed_lock_close(lock);
}

TEST_EACH(its_thread_enters_again_and_leaves_as_often, 0, SINGLES)
{
    open_pair(singles[_i]);
    acquire(mine, 0);
    acquire(mine, PLENTY_MS);
    release(mine);
    ck_assert_int_eq(shed_lock_is_mine(mine), 1);
    expect_acquire(theirs, 0, SHED_ETIMEDOUT);
    release(mine);
    EXPECT_CODE(shed_lock_release(mine, NULL), SHED_ELOST);
    acquire(theirs, 0);
    release(theirs);
}

static void *look_from_elsewhere(void *arg)
{
    struct shed_lock *lock = arg;

    ck_assert_int_eq(shed_lock_is_mine(lock), 0);
    ck_assert_uint_eq(shed_lock_remaining_ms(lock), 0);
    EXPECT_CODE(shed_lock_release(lock, NULL), SHED_ELOST);
    EXPECT_CODE(shed_lock_extend(lock, 0, NULL), SHED_ELOST);
    expect_acquire(lock, 0, SHED_ETIMEDOUT);
    expect_acquire(lock, 20, SHED_ETIMEDOUT);
    return NULL;
}

TEST_EACH(another_thread_does_not_own_it, 0, SINGLES)
{
    pthread_t thread;

    open_pair(singles[_i]);
    acquire(mine, 0);
    start_thread(&thread, look_from_elsewhere, mine);
    pthread_join(thread, NULL);
    ck_assert_int_eq(shed_lock_is_mine(mine), 1);
    release(mine);
}

TEST_EACH(an_asynchronous_acquire_belongs_to_the_process, 0, SINGLES)
{
    struct outcome first = {0}, second = {0}, third = {0};

    open_pair(singles[_i]);
    acquire_async(mine, 0, &first);
    WAIT_FOR(atomic_load(&first.calls) == 1);
    EXPECT_OK(atomic_load(&first.code));
    ck_assert_int_eq(shed_lock_is_mine(mine), 1);
    acquire_async(mine, 0, &second);
    acquire_async(mine, PLENTY_MS, &third);
    WAIT_FOR(atomic_load(&second.calls) == 1);
    EXPECT_CODE(atomic_load(&second.code), SHED_ETIMEDOUT);
    ck_assert_uint_eq(atomic_load(&third.calls), 0);
    expect_acquire(mine, 0, SHED_ETIMEDOUT);
    release(mine);
    WAIT_FOR(atomic_load(&third.calls) == 1);
    EXPECT_OK(atomic_load(&third.code));
    release(mine);
}

TEST_EACH(closing_ends_what_waits_and_releases_what_is_held, 0, SINGLES)
{
    struct shed_lock_options o = options_of(singles[_i]);
    struct shed_lock *a = open_lock(client, &o);
    struct shed_lock *b = open_lock(other, &o);
    struct outcome waiting[MANY] = {0};

    acquire(a, 0);
    for (unsigned i = 0; i < MANY; i++)
        acquire_async(b, PLENTY_MS, &waiting[i]);
    shed_lock_close(b);
    for (unsigned i = 0; i < MANY; i++) {
        ck_assert_uint_eq(atomic_load(&waiting[i].calls), 1);
        EXPECT_CODE(atomic_load(&waiting[i].code), SHED_ECLOSED);
    }
    shed_lock_close(a);
    b = open_lock(other, &o);
    acquire(b, 0);
    shed_lock_close(b);
    ck_assert_int_eq(server_int(&server, "EXISTS %s %s", LOCK_NAME, LEASE_KEY),
                     0);
}

/* --------------------------------------------------------------- the tokens */

TEST(numbers_grow_whatever_becomes_of_the_data)
{
    uint64_t last = 0;

    open_pair(SHED_LOCK_LEASE);
    for (unsigned i = 0; i < MANY; i++) {
        struct shed_lock *lock = i % 2 == 0 ? mine : theirs;
        acquire(lock, 0);
        ck_assert_uint_gt(fence_of(lock), last);
        last = fence_of(lock);
        release(lock);
        if (i == MANY / 2)
            server_do(&server, "FLUSHALL");
    }
}

TEST(advance_lifts_the_numbers)
{
    enum { DAY_MS = 86400000, HOLDERS = 5 };
    const uint64_t end = (uint64_t)1 << 52;

    open_pair(SHED_LOCK_LEASE);
    EXPECT_OK(shed_lock_advance(mine, end - 1, NULL));
    EXPECT_OK(shed_lock_advance(mine, 5, NULL));
    for (unsigned i = 0; i < HOLDERS; i++) {
        acquire(mine, 0);
        ck_assert_uint_eq(fence_of(mine), end + i);
        release(mine);
    }
    /* this far ahead of the clock, it is kept until the clock gets there */
    ck_assert_int_gt(server_int(&server, "PTTL %s:f", LEASE_KEY),
                     10000LL * DAY_MS);
    EXPECT_CODE(shed_lock_advance(mine, end, NULL), SHED_EINVAL);
}

TEST_EACH(the_first_three_have_no_tokens, 0, 3)
{
    struct shed_fence fence;

    open_pair(singles[_i]);
    acquire(mine, 0);
    EXPECT_CODE(shed_lock_fence(mine, &fence, NULL), SHED_EINVAL);
    ck_assert_uint_eq(fence.number, 0);
    EXPECT_CODE(shed_lock_advance(mine, 1, NULL), SHED_EINVAL);
    release(mine);
}

/* ------------------------------------- other clients of the same algorithms */

TEST(setnx_is_shared_with_plain_commands)
{
    struct waiter w;

    open_pair(SHED_LOCK_SETNX);
    acquire(mine, 0);
    ck_assert_int_eq(server_int(&server, "SETNX %s 1", LOCK_NAME), 0);
    ck_assert_int_eq(server_int(&server, "PTTL %s", LOCK_NAME), -1);
    release(mine);
    ck_assert_int_eq(server_int(&server, "SETNX %s 1", LOCK_NAME), 1);
    expect_acquire(mine, 0, SHED_ETIMEDOUT);
    waiter_start(&w, mine, PLENTY_MS);
    server_do(&server, "DEL %s", LOCK_NAME);
    waiter_join(&w);
    EXPECT_OK(w.code);
}

TEST(expire_is_shared_with_plain_commands)
{
    long long ttl;

    open_pair(SHED_LOCK_EXPIRE);
    acquire(mine, 0);
    ck_assert_int_eq(server_int(&server, "SETNX %s 1", LOCK_NAME), 0);
    ttl = server_int(&server, "TTL %s", LOCK_NAME);
    ck_assert_int_ge(ttl, 1);
    ck_assert_int_le(ttl, 30);
    release(mine);
    /* another client's lock, whose lease ends by itself */
    ck_assert_int_eq(server_int(&server, "SETNX %s 1", LOCK_NAME), 1);
    ck_assert_int_eq(server_int(&server, "EXPIRE %s 1000", LOCK_NAME), 1);
    expect_acquire(mine, 0, SHED_ETIMEDOUT);
    ck_assert_int_eq(server_int(&server, "EXPIRE %s 1", LOCK_NAME), 1);
    acquire(mine, PLENTY_MS);
    release(mine);
    /* a client that died between the two commands */
    ck_assert_int_eq(server_int(&server, "SETNX %s 1", LOCK_NAME), 1);
    expect_acquire(mine, 0, SHED_ETIMEDOUT); /* it may still be alive */
    acquire(mine, PLENTY_MS);
    ck_assert_int_ge(server_int(&server, "TTL %s", LOCK_NAME), 1);
    ck_assert_int_eq(server_int(&server, "SETNX %s 1", LOCK_NAME), 0);
    release(mine);
}

static long long wall_ms(void)
{
    return (long long)shed_wall_ms();
}

/* in milliseconds, and in seconds */
TEST_EACH(timestamp_is_shared_with_plain_commands, 0, 2)
{
    enum { SECOND_MS = 1000, LEASE_MS = 30000 };
    struct shed_lock_options o =
        options_of(_i == 0 ? SHED_LOCK_TIMESTAMP : SHED_LOCK_TIMESTAMP_SECONDS);
    long long unit = _i == 0 ? 1 : SECOND_MS;
    struct shed_lock *lock;
    long long stamp;
    redisReply *reply;

    lock = open_kept(client, &o);
    acquire(lock, 0);
    reply = server_run(&server, "GET %s", LOCK_NAME);
    stamp = strtoll(reply->str, NULL, 10);
    freeReplyObject(reply);
    ck_assert_int_gt(stamp, wall_ms() / unit);
    ck_assert_int_le(stamp, (wall_ms() + LEASE_MS) / unit + 1);
    release(lock);
    ck_assert_int_eq(server_int(&server, "EXISTS %s", LOCK_NAME), 0);
    /* another client's valid lock, and one that has ended */
    server_do(&server, "SET %s %lld", LOCK_NAME, wall_ms() / unit + 1000000);
    expect_acquire(lock, 0, SHED_ETIMEDOUT);
    server_do(&server, "SET %s %lld", LOCK_NAME, wall_ms() / unit - 2);
    acquire(lock, 0);
    release(lock);
}

/* ----------------------------------------------------------- what is wrong */

TEST_EACH(a_key_that_is_no_lock_is_named_as_such, 0, SINGLES)
{
    open_pair(singles[_i]);
    server_do(&server, "RPUSH %s x",
              singles[_i] == SHED_LOCK_LEASE ? LEASE_KEY : LOCK_NAME);
    if (singles[_i] == SHED_LOCK_EXPIRE) /* EXPIRE sees that it never expires */
        server_do(&server, "PEXPIRE %s 100000", LOCK_NAME);
    expect_acquire(mine, 0,
                   singles[_i] == SHED_LOCK_EXPIRE ? SHED_ETIMEDOUT
                                                   : SHED_EINVAL);
}

static struct shed_lock_stats stats_of(struct shed_lock *lock)
{
    struct shed_lock_stats stats;

    EXPECT_OK(shed_lock_stats_read(lock, &stats, sizeof(stats), NULL));
    return stats;
}

TEST_EACH(all_outcomes_are_counted, 0, SINGLES)
{
    struct shed_lock_options o = options_of(singles[_i]);
    bool is_renewed = singles[_i] != SHED_LOCK_SETNX;
    struct shed_lock *first, *second;
    struct shed_lock_stats stats;
    struct outcome late = {0};

    o.lease_ms = 6000; /* longer than a process can stop */
    first = open_kept(client, &o);
    second = open_kept(other, &o);
    acquire(first, 0);
    acquire(first, 0); /* not a hold of its own */
    expect_acquire(second, 0, SHED_ETIMEDOUT);
    acquire_async(second, 0, &late);
    WAIT_FOR(atomic_load(&late.calls) == 1);
    WAIT_FOR(!is_renewed || stats_of(first).renewals > 0);
    release(first);
    release(first);
    acquire(first, 0);
    server_do(&server, "DEL %s %s", LOCK_NAME, LEASE_KEY);
    EXPECT_CODE(shed_lock_extend(first, 0, NULL), SHED_ELOST);
    acquire(first, 0);
    server_do(&server, "DEL %s %s", LOCK_NAME, LEASE_KEY);
    EXPECT_CODE(shed_lock_release(first, NULL), SHED_ELOST);
    stats = stats_of(first);
    ck_assert_uint_eq(stats.acquired, 3);
    ck_assert_uint_eq(stats.released, 1);
    ck_assert_uint_eq(stats.lost, 2);
    ck_assert_uint_eq(stats.wait_us.count, 3);
    ck_assert_uint_eq(stats.hold_us.count, 3);
    ck_assert_uint_eq(stats.tries, 3);
    ck_assert_uint_eq(stats.timeouts, 0);
    stats = stats_of(second);
    ck_assert_uint_eq(stats.acquired, 0);
    ck_assert_uint_eq(stats.timeouts, 2);
    ck_assert_uint_eq(stats.tries, 2);
    ck_assert_uint_eq(stats.wait_us.count, 0);
}

TEST_EACH(what_cannot_be_renewed_is_counted, LEASED, SINGLES)
{
    struct shed_lock_options o = options_of(singles[_i]);
    struct shed_lock_stats stats;
    struct shed_lock *lock;

    o.lease_ms = 3000;
    lock = open_kept(client, &o);
    acquire(lock, 0);
    server_kill(&server);
    WAIT_FOR(stats_of(lock).lost == 1);
    expect_acquire(lock, 0, SHED_EREDIS);
    stats = stats_of(lock);
    ck_assert_uint_gt(stats.renewal_failures, 0);
    ck_assert_uint_eq(stats.failures, 1);
    ck_assert_uint_eq(stats.released, 0);
}

TEST(locks_are_told_as_prometheus_text)
{
    static char text[65536];
    struct shed_lock *locks[2];
    size_t size;

    for (size_t i = 0; i < 2; i++)
        EXPECT_OK(shed_lock_open(client, shed_bytes(i == 0 ? "job" : "tax", 3),
                                 NULL, &locks[i], NULL));
    acquire(locks[1], 0);
    size = shed_stats_prometheus(NULL, 0, locks, 2, text, sizeof(text));
    ck_assert_uint_eq(strlen(text), size);
    ck_assert_ptr_nonnull(
        strstr(text, "\nsnowshed_lock_acquired_total{lock=\"job\"} 0\n"
                     "snowshed_lock_acquired_total{lock=\"tax\"} 1\n"));
    EXPECT_CODE(shed_lock_stats_read(NULL, NULL, 0, NULL), SHED_EINVAL);
    shed_lock_close(locks[0]);
    shed_lock_close(locks[1]);
}

/* A caller that is told that it does not have the lock does not have it. */
TEST_EACH(a_counter_that_is_no_number_leaves_no_lock, 0, 2)
{
    open_pair(SHED_LOCK_LEASE);
    server_do(&server, "RPUSH %s:f a", LEASE_KEY);
    expect_acquire(mine, (uint64_t)_i * PLENTY_MS, SHED_EINVAL);
    ck_assert_int_eq(server_int(&server, "EXISTS %s", LEASE_KEY), 0);
}

/* A callback that asks again, when told that the lock is closed, is refused. */
static void note_end(void *user, struct shed_lock *lock, enum shed_code code,
                     const struct shed_error *reason)
{
    struct outcome *out = user;

    EXPECT_CODE(code, SHED_ECLOSED);
    EXPECT_CODE((int)reason->code, SHED_ECLOSED);
    atomic_store(&out->code,
                 shed_lock_acquire_async(lock, 0, note_end, out, NULL));
    atomic_fetch_add(&out->calls, 1);
}

TEST_EACH(a_lock_that_is_being_closed_accepts_no_requests, 0, SINGLES)
{
    struct shed_lock_options o = options_of(singles[_i]);
    struct shed_lock *first = open_kept(client, &o);
    struct shed_lock *second = open_lock(other, &o);
    struct outcome end = {0};

    acquire(first, 0);
    EXPECT_OK(shed_lock_acquire_async(second, PLENTY_MS, note_end, &end, NULL));
    shed_lock_close(second);
    ck_assert_uint_eq(atomic_load(&end.calls), 1);
    EXPECT_CODE(atomic_load(&end.code), SHED_ECLOSED);
}

/* A mistake of the program is not reported as a loss. */
TEST(a_refused_release_says_why)
{
    struct shed_error err;

    open_pair(SHED_LOCK_LEASE);
    EXPECT_CODE(shed_lock_release(mine, &err), SHED_ELOST);
    ck_assert_ptr_nonnull(strstr(err.reason, "not acquired"));
    acquire(mine, 0);
    server_do(&server, "DEL %s", LEASE_KEY);
    EXPECT_CODE(shed_lock_extend(mine, 0, NULL), SHED_ELOST);
    EXPECT_CODE(shed_lock_release(mine, &err), SHED_ELOST);
    ck_assert_ptr_nonnull(strstr(err.reason, "was lost"));
    acquire(mine, 0);
    server_do(&server, "DEL %s", LEASE_KEY);
    EXPECT_CODE(shed_lock_release(mine, &err), SHED_ELOST);
    ck_assert_ptr_nonnull(strstr(err.reason, "was lost"));
    EXPECT_CODE(shed_lock_release(mine, &err), SHED_ELOST);
    ck_assert_ptr_nonnull(strstr(err.reason, "already been released"));
}

TEST(a_wrong_call_says_so)
{
    struct shed_lock_options o = options_of(SHED_LOCK_LEASE);
    struct shed_client *two[] = {client, other};
    struct shed_lock *lock;
    struct shed_fence fence;
    char name[SHED_LOCK_NAME_MAX_BYTES + 1] = {0};

    EXPECT_CODE(shed_lock_open_quorum(two, 2, shed_str("a"), &o, &lock, NULL),
                SHED_EINVAL);
    EXPECT_CODE(shed_lock_open_quorum(two, 0, shed_str("a"), &o, &lock, NULL),
                SHED_EINVAL);
    EXPECT_CODE(shed_lock_open_quorum(NULL, 1, shed_str("a"), &o, &lock, NULL),
                SHED_EINVAL);
    EXPECT_CODE(shed_lock_open(client, shed_str(""), &o, &lock, NULL),
                SHED_EINVAL);
    EXPECT_CODE(
        shed_lock_open(client, shed_bytes(name, sizeof(name)), &o, &lock, NULL),
        SHED_EINVAL);
    o.fair = 1;
    o.algorithm = SHED_LOCK_SETNX;
    EXPECT_CODE(shed_lock_open(client, shed_str("a"), &o, &lock, NULL),
                SHED_EINVAL);
    o = options_of(SHED_LOCK_LEASE);
    o.lease_ms = 9;
    EXPECT_CODE(shed_lock_open(client, shed_str("a"), &o, &lock, NULL),
                SHED_EINVAL);
    ck_assert_ptr_null(lock);
    EXPECT_OK(shed_lock_open(client, shed_bytes(name, sizeof(name) - 1), NULL,
                             &lock, NULL));
    expect_acquire(lock, SHED_LOCK_WAIT_MAX_MS + 1, SHED_EINVAL);
    acquire(lock, 0);
    shed_lock_close(lock);
    shed_lock_close(NULL);
    EXPECT_CODE(shed_lock_acquire(NULL, 0, NULL), SHED_EINVAL);
    EXPECT_CODE(shed_lock_acquire_async(NULL, 0, note_end, NULL, NULL),
                SHED_EINVAL);
    EXPECT_CODE(shed_lock_release(NULL, NULL), SHED_EINVAL);
    EXPECT_CODE(shed_lock_extend(NULL, 0, NULL), SHED_EINVAL);
    EXPECT_CODE(shed_lock_advance(NULL, 0, NULL), SHED_EINVAL);
    EXPECT_CODE(shed_lock_fence(NULL, &fence, NULL), SHED_EINVAL);
    ck_assert_int_eq(shed_lock_is_mine(NULL), 0);
}

int main(void)
{
    tcase_add_checked_fixture(test_case(), pair_up, server_down);
    return run_tests("lock");
}
