/* thread: which threads belong to the library, and what they may not do. */
#include "base/thread.h"

#include <signal.h>
#include <stdatomic.h>
#include <string.h>

#include "support/testing.h"

static void *check_signals(void *arg)
{
    sigset_t blocked;

    (void)arg;
    ck_assert_int_eq(pthread_sigmask(SIG_BLOCK, NULL, &blocked), 0);
    ck_assert_int_eq(sigismember(&blocked, SIGTERM), 1);
    return NULL;
}

TEST(a_thread_of_the_library_takes_no_signals)
{
    pthread_t thread;
    sigset_t blocked;

    ck_assert_int_eq(shed_thread_start(&thread, check_signals, NULL), 0);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_assert_int_eq(pthread_sigmask(SIG_BLOCK, NULL, &blocked), 0);
    ck_assert_int_eq(sigismember(&blocked, SIGTERM), 0);
}

TEST(a_thread_of_the_program_may_block)
{
    ck_assert(!shed_thread_is(SHED_THREAD_LOOP | SHED_THREAD_LOADER));
    EXPECT_OK(shed_thread_check_call(NULL));
}

/* A load may use other caches. */
TEST(a_loader_may_block)
{
    shed_thread_mark(SHED_THREAD_LOADER);
    ck_assert(shed_thread_is(SHED_THREAD_LOADER));
    ck_assert(!shed_thread_is(SHED_THREAD_LOOP));
    EXPECT_OK(shed_thread_check_call(NULL));
}

TEST(a_reactor_may_not_block)
{
    struct shed_error err;

    shed_thread_mark(SHED_THREAD_LOOP);
    EXPECT_CODE(shed_thread_check_call(&err), SHED_EINVAL);
    ck_assert_ptr_nonnull(strstr(err.reason, "a thread of your own"));
}

/* The thread of which it is a copy has stayed in the parent. */
TEST(a_child_that_a_callback_forked_may_block)
{
    pid_t pid;

    shed_thread_mark(SHED_THREAD_LOOP);
    pid = fork();
    if (pid == 0)
        _exit(shed_thread_check_call(NULL) == SHED_OK ? 0 : 1);
    expect_success(pid);
}

static void *note_thread(void *handle)
{
    atomic_store((_Atomic(pthread_t) *)handle, pthread_self());
    return NULL;
}

TEST(only_the_program_s_threads_close_a_handle_themselves)
{
    _Atomic(pthread_t) closer = 0;

    shed_thread_close(SHED_THREAD_LOOP, note_thread, &closer);
    ck_assert(pthread_equal(atomic_load(&closer), pthread_self()));
    shed_thread_mark(SHED_THREAD_LOOP);
    shed_thread_close(SHED_THREAD_LOOP, note_thread, &closer);
    WAIT_FOR(!pthread_equal(atomic_load(&closer), pthread_self()));
}

int main(void)
{
    return run_tests("thread");
}
