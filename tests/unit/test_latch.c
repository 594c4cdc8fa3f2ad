/* latch: a waiter continues when everything has happened, or at the
 * deadline. */
#include "base/latch.h"

#include <sched.h>
#include <stdatomic.h>
#include <time.h>

#include "support/testing.h"

/* Long enough to detect, by its CPU time, a waiter that does not sleep. */
enum { LATE_MS = 200 };

/* A thread that counts one thing at each latch that it is given. */
struct opener {
    pthread_t thread;
    struct shed_latch *_Atomic latch; /* NULL: none is given */
    atomic_bool is_over;
};

static void *open_latches(void *user)
{
    struct opener *opener = user;
    struct shed_latch *latch;

    while (!atomic_load(&opener->is_over)) {
        latch = atomic_exchange(&opener->latch, NULL);
        if (latch != NULL)
            shed_latch_count_down(latch, 1);
        else
            sched_yield();
    }
    return NULL;
}

static void start_opener(struct opener *opener)
{
    atomic_init(&opener->latch, NULL);
    atomic_init(&opener->is_over, false);
    start_thread(&opener->thread, open_latches, opener);
}

static void stop_opener(struct opener *opener)
{
    atomic_store(&opener->is_over, true);
    ck_assert_int_eq(pthread_join(opener->thread, NULL), 0);
}

/* Also where it takes several sleeps. */
TEST_EACH(a_wait_lasts_until_its_deadline, 0, 2)
{
    uint64_t deadline_ms = shed_now_ms() + (_i == 0 ? 30 : 1100);
    struct shed_latch latch;

    shed_latch_init(&latch, 1);
    ck_assert(!shed_latch_wait(&latch, deadline_ms));
    ck_assert_uint_ge(shed_now_ms(), deadline_ms);
    ck_assert_uint_lt(shed_now_ms(), test_deadline_ms());
}

static uint64_t thread_cpu_ms(void)
{
    struct timespec used;

    ck_assert_int_eq(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used), 0);
    return (uint64_t)used.tv_sec * 1000 + (uint64_t)used.tv_nsec / 1000000;
}

TEST(a_waiter_sleeps_instead_of_looking_all_the_time)
{
    enum { WAIT_MS = 200 };
    uint64_t before_ms = thread_cpu_ms();
    struct shed_latch latch;

    shed_latch_init(&latch, 1);
    ck_assert(!shed_latch_wait(&latch, shed_now_ms() + WAIT_MS));
    ck_assert_uint_lt(thread_cpu_ms() - before_ms, WAIT_MS / 4);
}

static void *count_late(void *latch)
{
    struct shed_latch pause;

    shed_latch_init(&pause, 1);
    ck_assert(!shed_latch_wait(&pause, shed_now_ms() + LATE_MS));
    shed_latch_count_down(latch, 1);
    return NULL;
}

TEST(a_waiter_without_a_deadline_sleeps_at_a_static_latch)
{
    struct shed_latch latch = SHED_LATCH_INIT(1);
    uint64_t before_ms = thread_cpu_ms();
    pthread_t thread;

    start_thread(&thread, count_late, &latch);
    ck_assert(shed_latch_wait(&latch, UINT64_MAX));
    ck_assert_uint_lt(thread_cpu_ms() - before_ms, LATE_MS / 4);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
}

/* How many things are pending, and how many are counted at a time. */
static const struct {
    size_t pending, counted;
    bool is_open;
} counts[] = {{0, 0, true}, {1, 0, false}, {2, 1, false},
              {5, 5, true}, {1, 2, true},  {5, 4, false}};

TEST_EACH(a_latch_is_open_once_all_is_counted, 0, COUNT_OF(counts))
{
    struct shed_latch latch;

    shed_latch_init(&latch, counts[_i].pending);
    shed_latch_count_down(&latch, counts[_i].counted);
    ck_assert_int_eq(shed_latch_wait(&latch, 0), counts[_i].is_open);
    shed_latch_count_down(&latch, 1);
    ck_assert_int_eq(shed_latch_wait(&latch, 0),
                     counts[_i].pending <= counts[_i].counted + 1);
}

TEST(a_waiter_is_woken_long_before_its_deadline)
{
    uint64_t deadline_ms = test_deadline_ms();
    struct opener opener;
    struct shed_latch latch;

    start_opener(&opener);
    /* two rounds; in each the waiter may be asleep or not yet */
    for (int i = 0; i < 2; i++) {
        shed_latch_init(&latch, 1);
        atomic_store(&opener.latch, &latch);
        ck_assert(shed_latch_wait(&latch, UINT64_MAX));
    }
    ck_assert_uint_lt(shed_now_ms(), deadline_ms);
    stop_opener(&opener);
}

/* A sanitizer reports it if the opener touches a latch that is gone. */
TEST(a_latch_may_go_as_soon_as_the_wait_is_over)
{
    enum { ROUNDS = 5000 };
    struct opener opener;
    struct shed_latch *latch;

    start_opener(&opener);
    for (int i = 0; i < ROUNDS; i++) {
        latch = malloc(sizeof(*latch));
        ck_assert_ptr_nonnull(latch);
        shed_latch_init(latch, 1);
        atomic_store(&opener.latch, latch);
        ck_assert(shed_latch_wait(latch, test_deadline_ms()));
        free(latch);
    }
    stop_opener(&opener);
}

int main(void)
{
    return run_tests("latch");
}
