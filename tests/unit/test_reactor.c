/* The loop: posts of its own thread run, too. */
#include "redis/reactor.h"

#include "base/latch.h"
#include "support/testing.h"

static struct shed_reactor *reactor;
static struct shed_timer *timer;
static struct shed_post first, second;
static struct shed_latch done = SHED_LATCH_INIT(1);

static void on_timer(void *unused)
{
    (void)unused;
    shed_reactor_post(reactor, &first);
}

static void run_first(struct shed_post *unused)
{
    (void)unused;
    shed_reactor_post(reactor, &second);
}

static void run_second(struct shed_post *unused)
{
    (void)unused;
    shed_timer_destroy(timer);
    shed_latch_count_down(&done, 1);
}

static void set_timer(void *unused)
{
    (void)unused;
    shed_timer_set(timer, 1);
}

/* Although nothing else wakes the loop. */
TEST(what_a_post_of_the_loop_posts_runs)
{
    ck_assert_int_eq(shed_reactor_start(&reactor, NULL), SHED_OK);
    timer = shed_timer_create(reactor, on_timer, NULL);
    ck_assert_ptr_nonnull(timer);
    first.run = run_first;
    second.run = run_second;
    shed_reactor_run(reactor, set_timer, NULL);
    ck_assert(shed_latch_wait(&done, UINT64_MAX));
    shed_reactor_stop(reactor);
}

static int runs;

static void count_run(struct shed_post *unused)
{
    (void)unused;
    runs++;
}

static void wake_twice(void *unused)
{
    (void)unused;
    shed_reactor_wake(reactor, &first);
    shed_reactor_wake(reactor, &first);
}

TEST(a_post_that_is_woken_twice_before_it_runs_runs_once)
{
    ck_assert_int_eq(shed_reactor_start(&reactor, NULL), SHED_OK);
    first.run = count_run;
    for (int i = 0; i < 3; i++)
        shed_reactor_run(reactor, wake_twice, NULL);
    shed_reactor_stop(reactor);
    ck_assert_int_eq(runs, 3);
}

int main(void)
{
    return run_tests("reactor");
}
