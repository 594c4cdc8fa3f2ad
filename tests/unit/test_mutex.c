/* mutex: locks that are taken in the lock order pass, others abort. */
#include "base/mutex.h"

#include <signal.h>

#include "support/testing.h"

static struct shed_mutex outer, other, inner;

static void setup(void)
{
    ck_assert_int_eq(shed_mutex_init(&outer, SHED_RANK_LOCK), 0);
    ck_assert_int_eq(shed_mutex_init(&other, SHED_RANK_LOCK), 0);
    ck_assert_int_eq(shed_mutex_init(&inner, SHED_RANK_REACTOR), 0);
}

static void teardown(void)
{
    shed_mutex_destroy(&outer);
    shed_mutex_destroy(&other);
    shed_mutex_destroy(&inner);
}

TEST(locks_in_the_order_pass_again_and_again)
{
    for (int i = 0; i < 3; i++) {
        shed_mutex_lock(&outer);
        shed_mutex_lock(&inner);
        shed_mutex_unlock(&outer); /* in whatever order they are given back */
        shed_mutex_unlock(&inner);
    }
}

TEST(one_after_the_other_needs_no_order)
{
    shed_mutex_lock(&inner);
    shed_mutex_unlock(&inner);
    shed_mutex_lock(&outer);
    shed_mutex_unlock(&outer);
    shed_mutex_lock(&other);
    shed_mutex_unlock(&other);
}

#ifndef NDEBUG

START_TEST(a_lock_against_the_order_aborts)
{
    shed_mutex_lock(&inner);
    shed_mutex_lock(&outer);
}
END_TEST

START_TEST(two_locks_of_one_rank_abort)
{
    shed_mutex_lock(&outer);
    shed_mutex_lock(&other);
}
END_TEST

START_TEST(a_lock_that_this_thread_does_not_hold_aborts)
{
    shed_mutex_unlock(&inner);
}
END_TEST

static void add_assertions(TCase *tc)
{
    tcase_add_test_raise_signal(tc, a_lock_against_the_order_aborts, SIGABRT);
    tcase_add_test_raise_signal(tc, two_locks_of_one_rank_abort, SIGABRT);
    tcase_add_test_raise_signal(
        tc, a_lock_that_this_thread_does_not_hold_aborts, SIGABRT);
}

#else

/* Nothing is asserted. */
static void add_assertions(TCase *tc)
{
    (void)tc;
}

#endif

int main(void)
{
    tcase_add_checked_fixture(test_case(), setup, teardown);
    add_assertions(test_case());
    return run_tests("mutex");
}
