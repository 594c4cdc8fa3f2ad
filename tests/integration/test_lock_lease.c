/* The lease of a lock on a real server: its end, its renewal by the watchdog
 * and by the caller, and releases and closes in between. */
#include "support/lock_pair.h"

enum { SHORT_LEASE_MS = 300, LONGEST_LEASE_MS = 10000 };

static struct shed_lock_options short_lease(enum shed_lock_algorithm algorithm)
{
    struct shed_lock_options o = options_of(algorithm);

    o.lease_ms = SHORT_LEASE_MS;
    return o;
}

/* For tests in which a lease must not end early. On a busy machine a process
 * can stop for longer than a short lease, so a failure is repeated with longer
 * leases; a defect ends a lease of any length. */
static void expect_with_a_lease(bool (*succeeds)(struct shed_lock_options *o),
                                enum shed_lock_algorithm algorithm)
{
    enum { FACTOR = 3 };
    struct shed_lock_options o = short_lease(algorithm);

    while (!succeeds(&o)) {
        o.lease_ms *= FACTOR;
        ck_assert_uint_le(o.lease_ms, LONGEST_LEASE_MS);
    }
}

static void *close_lock(void *lock)
{
    shed_lock_close(lock);
    return NULL;
}

static void refuse(void *user, struct shed_lock *lock, enum shed_code code,
                   const struct shed_error *reason)
{
    (void)user;
    (void)lock;
    (void)reason;
    EXPECT_CODE(code, SHED_ECLOSED);
}

/* Redis grants the lock when the handle is already being closed. */
TEST_EACH(a_lock_granted_during_the_close_is_released, 0, SINGLES)
{
    struct shed_lock_options o = options_of(singles[_i]);
    struct outcome out = {0};
    pthread_t closer;

    mine = open_lock(client, &o);
    acquire(mine, PLENTY_MS); /* now the connections exist */
    release(mine);
    server_do(&server, "CLIENT PAUSE %d WRITE", (int)PLENTY_MS);
    acquire_async(mine, PLENTY_MS, &out);
    WAIT_FOR(server_clients(&server, "flags=b") == 1); /* now it is under way */
    start_thread(&closer, close_lock, mine);
    WAIT_FOR(shed_lock_acquire_async(mine, PLENTY_MS, refuse, NULL, NULL) ==
             SHED_ECLOSED);
    /* closing another lock on the same thread comes after it */
    shed_lock_close(open_lock(client, &o));
    server_do(&server, "CLIENT UNPAUSE");
    ck_assert_int_eq(pthread_join(closer, NULL), 0);
    ck_assert_uint_eq(atomic_load(&out.calls), 1);
    EXPECT_CODE(atomic_load(&out.code), SHED_ECLOSED);
    ck_assert_int_eq(server_int(&server, "EXISTS %s %s", LOCK_NAME, LEASE_KEY),
                     0);
}

/* Whether the lock is renewed for three leases, and a waiter of another process
 * does not get it meanwhile. */
static bool is_renewed(struct shed_lock_options *o)
{
    bool is_mine = true;
    struct waiter w;
    uint64_t end_ms;

    atomic_store(&losses, 0);
    theirs = open_kept(other, o);
    o->on_lost = count_loss;
    mine = open_kept(client, o);
    acquire(mine, PLENTY_MS);
    waiter_start(&w, theirs, PLENTY_MS);
    end_ms = shed_now_ms() + 3 * o->lease_ms;
    while (is_mine && shed_now_ms() < end_ms) {
        bool has_ended = atomic_load(&w.has_ended);
        usleep(1000);
        is_mine = shed_lock_is_mine(mine) == 1;
        ck_assert(!is_mine || !has_ended);
    }
    is_mine = shed_lock_release(mine, NULL) == SHED_OK && is_mine;
    waiter_join(&w);
    EXPECT_OK(w.code);
    /* none if the release reported it first */
    ck_assert_uint_le(atomic_load(&losses), is_mine ? 0 : 1);
    o->on_lost = NULL;
    return is_mine;
}

TEST_EACH(the_watchdog_renews_until_release, LEASED, SINGLES)
{
    expect_with_a_lease(is_renewed, singles[_i]);
}

static bool is_free(void)
{
    return server_int(&server, "EXISTS %s %s", LOCK_NAME, LEASE_KEY) == 0;
}

/* A released lock must never reappear, although renewals are under way at every
 * moment. A lock that was lost before its release, on a slow machine, proves
 * nothing. */
TEST_EACH(a_renewal_does_not_outlive_the_release, LEASED, SINGLES)
{
    enum { ROUNDS = 40, LEASE_MS = 20 };
    struct shed_lock_options o = options_of(singles[_i]);
    uint64_t end_ms = test_deadline_ms();

    o.lease_ms = LEASE_MS;
    mine = open_kept(client, &o);
    for (useconds_t i = 0; i < ROUNDS;) {
        acquire(mine, PLENTY_MS);
        usleep(i * 250);
        if (shed_lock_release(mine, NULL) == SHED_OK) {
            ck_assert(is_free());
            i++;
        }
        ck_assert_uint_lt(shed_now_ms(), end_ms);
    }
}

enum { IS_FREE, IS_BUSY, MAY_GO_ON };

/* Keep the library's thread busy. */
static void stay(void *user, struct shed_lock *lock, enum shed_code code,
                 const struct shed_error *err)
{
    atomic_int *stage = user;

    (void)lock;
    (void)code;
    (void)err;
    atomic_store(stage, IS_BUSY);
    while (atomic_load(stage) != MAY_GO_ON)
        usleep(1000);
}

/* The library's own thread, which notices the end of a lease, is late. */
TEST(an_extension_that_comes_too_late_tells_of_the_loss)
{
    struct shed_lock_options o = short_lease(SHED_LOCK_LEASE);
    atomic_int stage = IS_FREE;
    struct shed_lock *second;

    o.watchdog_ms = 0;
    second = open_kept(client, &o);
    o.on_lost = count_loss;
    mine = open_kept(client, &o);
    acquire(mine, PLENTY_MS);
    EXPECT_OK(shed_lock_acquire_async(second, 0, stay, &stage, NULL));
    WAIT_FOR(atomic_load(&stage) == IS_BUSY);
    WAIT_FOR(!shed_lock_is_mine(mine));
    EXPECT_CODE(shed_lock_extend(mine, 0, NULL), SHED_ELOST);
    EXPECT_CODE(shed_lock_release(mine, NULL), SHED_ELOST);
    atomic_store(&stage, MAY_GO_ON);
    WAIT_FOR(atomic_load(&losses) == 1);
    close_kept(mine);
    ck_assert_uint_eq(atomic_load(&losses), 1);
}

TEST_EACH(without_a_watchdog_the_lease_ends, LEASED, SINGLES)
{
    struct shed_lock_options o = short_lease(singles[_i]);

    o.watchdog_ms = 0;
    o.on_lost = count_loss;
    open_pair(singles[_i]);
    mine = open_kept(client, &o);
    acquire(mine, PLENTY_MS);
    ck_assert_uint_lt(shed_lock_remaining_ms(mine), SHORT_LEASE_MS);
    acquire(theirs, PLENTY_MS); /* gets it when the lease is over */
    ck_assert_int_eq(shed_lock_is_mine(mine), 0);
    ck_assert_uint_eq(shed_lock_remaining_ms(mine), 0);
    EXPECT_CODE(shed_lock_extend(mine, 0, NULL), SHED_ELOST);
    EXPECT_CODE(shed_lock_release(mine, NULL), SHED_ELOST);
    release(theirs);
    WAIT_FOR(atomic_load(&losses) == 1 || atomic_load(&losses) == 2);
    ck_assert_uint_eq(atomic_load(&losses), 1);
}

/* Without a watchdog and on_lost nobody watches the end of the lease. */
TEST_EACH(an_entry_that_outlived_the_lease_is_not_left_in_peace, LEASED,
          SINGLES)
{
    struct shed_lock_options o = options_of(singles[_i]);
    struct shed_fence fence;

    o.watchdog_ms = 0;
    o.lease_ms = 1000;
    mine = open_kept(client, &o);
    acquire(mine, PLENTY_MS);
    acquire(mine, PLENTY_MS);
    WAIT_FOR(!shed_lock_is_mine(mine));
    if (singles[_i] == SHED_LOCK_LEASE)
        EXPECT_CODE(shed_lock_fence(mine, &fence, NULL), SHED_ELOST);
    EXPECT_CODE(shed_lock_release(mine, NULL), SHED_ELOST);
    EXPECT_CODE(shed_lock_release(mine, NULL), SHED_ELOST);
}

/* The lease counts from before the command was sent. */
static bool is_had_after_a_pause(struct shed_lock_options *o)
{
    bool is_mine;

    mine = open_kept(client, o);
    acquire(mine, PLENTY_MS); /* now the connections exist */
    (void)!shed_lock_release(mine, NULL);
    server_do(&server, "CLIENT PAUSE %d WRITE", (int)o->lease_ms * 4 / 3);
    acquire(mine, PLENTY_MS);
    is_mine = shed_lock_is_mine(mine) == 1;
    return shed_lock_release(mine, NULL) == SHED_OK && is_mine;
}

TEST_EACH(an_answer_that_takes_longer_than_the_lease_is_none, LEASED, SINGLES)
{
    expect_with_a_lease(is_had_after_a_pause, singles[_i]);
}

TEST_EACH(extend_lets_it_last, LEASED, SINGLES)
{
    struct shed_lock_options o = options_of(singles[_i]);

    o.watchdog_ms = 0;
    mine = open_kept(client, &o);
    acquire(mine, 0);
    ck_assert_uint_gt(shed_lock_remaining_ms(mine), 0);
    EXPECT_OK(shed_lock_extend(mine, 90000, NULL));
    ck_assert_uint_gt(shed_lock_remaining_ms(mine), o.lease_ms);
    EXPECT_CODE(shed_lock_extend(mine, 9, NULL), SHED_EINVAL);
    release(mine);
}

TEST_EACH(what_is_gone_is_not_revived, 0, SINGLES)
{
    struct shed_lock_options o = options_of(singles[_i]);

    o.on_lost = count_loss;
    mine = open_kept(client, &o);
    acquire(mine, 0);
    server_do(&server, "DEL %s %s", LOCK_NAME, LEASE_KEY);
    EXPECT_CODE(shed_lock_extend(mine, 0, NULL), SHED_ELOST);
    ck_assert_int_eq(shed_lock_is_mine(mine), 0);
    WAIT_FOR(atomic_load(&losses) == 1);
    ck_assert_int_eq(server_int(&server, "EXISTS %s %s", LOCK_NAME, LEASE_KEY),
                     0);
    acquire(mine, 0);
    server_do(&server, "DEL %s %s", LOCK_NAME, LEASE_KEY);
    EXPECT_CODE(shed_lock_release(mine, NULL), SHED_ELOST);
}

TEST_EACH(the_watchdog_reports_a_loss, LEASED, SINGLES)
{
    struct shed_lock_options o = short_lease(singles[_i]);

    o.on_lost = count_loss;
    mine = open_kept(client, &o);
    acquire(mine, PLENTY_MS);
    server_do(&server, "DEL %s %s", LOCK_NAME, LEASE_KEY);
    WAIT_FOR(atomic_load(&losses) == 1);
    ck_assert_int_eq(shed_lock_is_mine(mine), 0);
}

static void *acquire_and_end(void *arg)
{
    acquire(arg, PLENTY_MS);
    return NULL;
}

TEST_EACH(a_thread_that_ends_ends_its_renewals, LEASED, SINGLES)
{
    struct shed_lock_options o = short_lease(singles[_i]);
    pthread_t thread;

    open_pair(singles[_i]);
    mine = open_kept(client, &o);
    start_thread(&thread, acquire_and_end, mine);
    pthread_join(thread, NULL);
    acquire(theirs, PLENTY_MS);
    release(theirs);
}

/* The lock of an ended thread is no longer renewed; a new session must not make
 * it last for ever. */
TEST_EACH(a_thread_that_ended_leaves_no_lock_without_an_end, LEASED, SINGLES)
{
    pthread_t thread;

    open_pair(singles[_i]);
    start_thread(&thread, acquire_and_end, mine);
    pthread_join(thread, NULL);
    server_do(&server, "CLIENT KILL TYPE pubsub");
    WAIT_FOR(server_clients(&server, "sub=4") == 2);
    expect_acquire(mine, 100, SHED_ETIMEDOUT);
    if (singles[_i] != SHED_LOCK_TIMESTAMP) /* its end is in its value */
        server_check_ttls(&server);
}

/* EXPIRE would remove the other's lock */
TEST_EACH(the_watchdog_ends_after_its_time, LEASED + 1, SINGLES)
{
    struct shed_lock_options o = short_lease(singles[_i]);

    o.watchdog_ms = SHORT_LEASE_MS;
    open_pair(singles[_i]);
    mine = open_kept(client, &o);
    acquire(mine, PLENTY_MS);
    acquire(theirs, PLENTY_MS);
    EXPECT_CODE(shed_lock_release(mine, NULL), SHED_ELOST);
    release(theirs);
}

int main(void)
{
    tcase_add_checked_fixture(test_case(), pair_up, server_down);
    return run_tests("lock lease");
}
