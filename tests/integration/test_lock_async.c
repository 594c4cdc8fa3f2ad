/* The calls that do not block, on a real server: cancelled acquires, and
 * asynchronous releases. */
#include <snowshed/stats.h>

#include "support/lock_pair.h"

enum { MANY = 8 };

static void release_async(struct shed_lock *lock, struct outcome *out)
{
    EXPECT_OK(shed_lock_release_async(lock, note_outcome, out, NULL));
}

static bool is_in_redis(void)
{
    return server_int(&server, "EXISTS %s %s", LOCK_NAME, LEASE_KEY) != 0;
}

/* ----------------------------------------------------------------- cancel */

TEST_EACH(a_cancelled_request_is_answered_at_once, 0, SINGLES)
{
    struct outcome first = {0}, second = {0};

    open_pair(singles[_i]);
    acquire(mine, PLENTY_MS);
    acquire_async(theirs, PLENTY_MS, &first);
    acquire_async(theirs, PLENTY_MS, &second);
    ck_assert_uint_eq(shed_lock_cancel(theirs, &first), 1);
    expect_outcome(&first, SHED_ETIMEDOUT);
    ck_assert_uint_eq(shed_lock_cancel(theirs, &first), 0);
    release(mine);
    expect_outcome(&second, SHED_OK);
    ck_assert_uint_eq(shed_lock_cancel(theirs, &second), 0);
    ck_assert_int_eq(shed_lock_is_mine(theirs), 1);
    release(theirs);
}

/* Redis was asked before the cancel, and grants the lock after it. */
TEST_EACH(a_lock_granted_to_a_cancelled_request_is_released, 0, SINGLES)
{
    struct outcome out = {0};

    open_pair(singles[_i]);
    acquire(mine, PLENTY_MS); /* the connections are up */
    release(mine);
    server_do(&server, "CLIENT PAUSE %d WRITE", (int)PLENTY_MS);
    acquire_async(mine, PLENTY_MS, &out);
    WAIT_FOR(server_clients(&server, "flags=b") == 1); /* now it is under way */
    ck_assert_uint_eq(shed_lock_cancel(mine, &out), 1);
    ck_assert_uint_eq(atomic_load(&out.calls), 0);
    server_do(&server, "CLIENT UNPAUSE");
    expect_outcome(&out, SHED_ETIMEDOUT);
    ck_assert_int_eq(shed_lock_is_mine(mine), 0);
    /* TIMESTAMP cannot tell its lock from another's */
    ck_assert_int_eq(is_in_redis(), singles[_i] == SHED_LOCK_TIMESTAMP);
}

TEST(only_asynchronous_acquires_of_that_user_are_cancelled)
{
    struct outcome out = {0};
    struct waiter waiter;

    open_pair(SHED_LOCK_LEASE);
    acquire(mine, PLENTY_MS);
    waiter_start(&waiter, theirs, PLENTY_MS);
    acquire_async(theirs, PLENTY_MS, &out);
    ck_assert_uint_eq(shed_lock_cancel(theirs, NULL), 0);
    ck_assert_uint_eq(shed_lock_cancel(theirs, &waiter), 0);
    ck_assert_uint_eq(shed_lock_cancel(mine, &out), 0);
    ck_assert_uint_eq(shed_lock_cancel(theirs, &out), 1);
    expect_outcome(&out, SHED_ETIMEDOUT);
    release(mine);
    waiter_join(&waiter);
    EXPECT_OK(waiter.code);
}

/* A cancel and a release race. Whichever comes first, done is called exactly
 * once, and not with SHED_OK if the cancel has found the acquire. */
TEST(a_cancel_that_races_with_a_release_ends_it_once)
{
    struct shed_lock_options o = options_of(SHED_LOCK_LEASE);
    struct shed_lock *lock = open_lock(client, &o);
    struct shed_lock *rival = open_lock(other, &o);

    for (unsigned i = 0; i < 100; i++) {
        struct outcome out = {0}, released = {0};
        bool is_cancelled;
        acquire(lock, PLENTY_MS);
        acquire_async(rival, PLENTY_MS, &out);
        release_async(lock, &released);
        is_cancelled = shed_lock_cancel(rival, &out) == 1;
        WAIT_FOR(atomic_load(&out.calls) > 0);
        if (is_cancelled)
            EXPECT_CODE(atomic_load(&out.code), SHED_ETIMEDOUT);
        else
            release(rival);
        expect_outcome(&released, SHED_OK);
        ck_assert_uint_eq(atomic_load(&out.calls), 1);
    }
    shed_lock_close(rival);
    shed_lock_close(lock);
    ck_assert(!is_in_redis());
}

/* --------------------------------------------------------------- no wait */

static void acquire_many(void *user, struct shed_lock *lock,
                         enum shed_code code, const struct shed_error *reason)
{
    struct outcome *out = user;

    (void)reason;
    EXPECT_CODE(code, SHED_ETIMEDOUT);
    for (unsigned i = 0; i < MANY; i++)
        acquire_async(lock, 0, &out[i]);
}

/* From a callback, so that all of them come before the engine asks. */
TEST(acquires_that_do_not_wait_share_an_answer)
{
    struct outcome out[MANY] = {{0}};
    struct shed_lock_stats stats;

    open_pair(SHED_LOCK_LEASE);
    acquire(theirs, PLENTY_MS);
    EXPECT_OK(shed_lock_acquire_async(mine, 0, acquire_many, out, NULL));
    for (unsigned i = 0; i < MANY; i++)
        expect_outcome(&out[i], SHED_ETIMEDOUT);
    EXPECT_OK(shed_lock_stats_read(mine, &stats, sizeof(stats), NULL));
    ck_assert_uint_eq(stats.tries, 2);
    release(theirs);
}

/* ---------------------------------------------------------------- release */

TEST_EACH(an_asynchronous_release_lets_the_next_in, 0, SINGLES)
{
    struct outcome out = {0};

    open_pair(singles[_i]);
    for (unsigned i = 0; i < MANY; i++) {
        acquire(mine, 0); /* after the release, although it tries only once */
        out = (struct outcome){0};
        release_async(mine, &out);
        ck_assert_int_eq(shed_lock_is_mine(mine), 0);
    }
    expect_outcome(&out, SHED_OK);
    ck_assert(!is_in_redis());
}

TEST_EACH(it_is_released_as_often_as_it_was_entered, 0, SINGLES)
{
    struct outcome inner = {0}, outer = {0};
    struct shed_error err;

    open_pair(singles[_i]);
    acquire(mine, PLENTY_MS);
    acquire(mine, 0);
    release_async(mine, &inner);
    expect_outcome(&inner, SHED_OK);
    ck_assert_int_eq(shed_lock_is_mine(mine), 1);
    ck_assert(is_in_redis());
    release_async(mine, &outer);
    expect_outcome(&outer, SHED_OK);
    ck_assert(!is_in_redis());
    EXPECT_CODE(shed_lock_release_async(mine, note_outcome, &outer, &err),
                SHED_ELOST);
    ck_assert_uint_eq(atomic_load(&outer.calls), 1);
}

/* SETNX and EXPIRE remove whatever the key holds; here it holds nothing. */
TEST_EACH(a_release_of_what_is_gone_says_so, 0, SINGLES)
{
    struct outcome out = {0};
    enum shed_code code;

    open_pair(singles[_i]);
    acquire(mine, PLENTY_MS);
    server_do(&server, "DEL %s %s", LOCK_NAME, LEASE_KEY);
    code = shed_lock_release_async(mine, note_outcome, &out, NULL);
    /* the renewal after a new connection may have found out first */
    if (code == SHED_OK)
        expect_outcome(&out, SHED_ELOST);
    else
        EXPECT_CODE(code, SHED_ELOST);
    ck_assert_int_eq(shed_lock_is_mine(mine), 0);
}

/* As in an event loop: the callback of an acquire releases, that of the release
 * acquires again. */
struct loop {
    atomic_uint left;
    atomic_bool has_ended;
};

static void on_released(void *user, struct shed_lock *lock, enum shed_code code,
                        const struct shed_error *reason);

static void on_acquired(void *user, struct shed_lock *lock, enum shed_code code,
                        const struct shed_error *reason)
{
    (void)reason;
    EXPECT_OK(code);
    EXPECT_OK(shed_lock_release_async(lock, on_released, user, NULL));
}

static void on_released(void *user, struct shed_lock *lock, enum shed_code code,
                        const struct shed_error *reason)
{
    struct loop *loop = user;

    (void)reason;
    EXPECT_OK(code);
    if (atomic_fetch_sub(&loop->left, 1) == 1)
        atomic_store(&loop->has_ended, true);
    else
        EXPECT_OK(
            shed_lock_acquire_async(lock, PLENTY_MS, on_acquired, loop, NULL));
}

TEST_EACH(callbacks_release_and_acquire, 0, SINGLES)
{
    struct loop loop = {.left = MANY};

    open_pair(singles[_i]);
    EXPECT_OK(
        shed_lock_acquire_async(mine, PLENTY_MS, on_acquired, &loop, NULL));
    WAIT_FOR(atomic_load(&loop.has_ended));
    ck_assert(!is_in_redis());
}

TEST_EACH(closing_waits_for_a_release, 0, SINGLES)
{
    struct shed_lock_options o = options_of(singles[_i]);
    struct shed_lock *lock = open_lock(client, &o);
    struct outcome out = {0};

    acquire(lock, PLENTY_MS);
    release_async(lock, &out);
    shed_lock_close(lock);
    ck_assert_uint_eq(atomic_load(&out.calls), 1);
    EXPECT_OK(atomic_load(&out.code));
    ck_assert(!is_in_redis());
}

/* Told that its acquire is closed, it tries to release what is held. */
static void release_at_the_end(void *user, struct shed_lock *lock,
                               enum shed_code code,
                               const struct shed_error *reason)
{
    struct outcome *out = user;

    EXPECT_CODE(code, SHED_ECLOSED);
    (void)reason;
    atomic_store(&out->code,
                 shed_lock_release_async(lock, note_outcome, out, NULL));
    atomic_fetch_add(&out->calls, 1);
}

TEST(a_lock_that_is_being_closed_keeps_its_release)
{
    struct shed_lock_options o = options_of(SHED_LOCK_LEASE);
    struct shed_lock *lock = open_lock(client, &o);
    struct outcome out = {0};

    acquire_for_all(lock);
    EXPECT_OK(shed_lock_acquire_async(lock, PLENTY_MS, release_at_the_end, &out,
                                      NULL));
    shed_lock_close(lock);
    ck_assert_uint_eq(atomic_load(&out.calls), 1);
    ck_assert(atomic_load(&out.code) == SHED_ECLOSED ||
              atomic_load(&out.code) == SHED_ELOST); /* already released */
    ck_assert(!is_in_redis());
}

TEST(a_wrong_call_calls_nobody_back)
{
    struct shed_lock_options o = options_of(SHED_LOCK_LEASE);
    struct shed_lock *lock = open_lock(client, &o);
    struct outcome out = {0};

    EXPECT_CODE(shed_lock_release_async(NULL, note_outcome, &out, NULL),
                SHED_EINVAL);
    EXPECT_CODE(shed_lock_release_async(lock, NULL, &out, NULL), SHED_EINVAL);
    EXPECT_CODE(shed_lock_release_async(lock, note_outcome, &out, NULL),
                SHED_ELOST);
    ck_assert_uint_eq(shed_lock_cancel(NULL, &out), 0);
    ck_assert_uint_eq(shed_lock_cancel(lock, &out), 0);
    shed_lock_close(lock);
    ck_assert_uint_eq(atomic_load(&out.calls), 0);
}

int main(void)
{
    tcase_add_checked_fixture(test_case(), pair_up, server_down);
    return run_tests("lock async");
}
