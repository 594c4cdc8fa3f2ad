/* process: a child that was forked, or cloned, is another process. */
#include "base/process.h"

#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/testing.h"

static int knows_itself(void)
{
    return shed_process_id() == getpid() && shed_process_id() == getpid();
}

TEST(a_process_knows_its_id)
{
    ck_assert(knows_itself());
}

TEST(a_child_and_its_child_know_theirs)
{
    pid_t child, grandchild;
    int status = 1;

    ck_assert(knows_itself());
    child = fork();
    if (child == 0) {
        if (!knows_itself())
            _exit(1);
        grandchild = fork();
        if (grandchild == 0)
            _exit(!knows_itself());
        (void)waitpid(grandchild, &status, 0);
        _exit(status != 0 || !knows_itself());
    }
    expect_success(child);
    ck_assert(knows_itself());
}

/* The handlers of pthread_atfork do not run. */
TEST(a_cloned_child_knows_its_id)
{
    long child;

    ck_assert(knows_itself());
    child = syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
    if (child == 0)
        _exit(shed_process_id() != (pid_t)syscall(SYS_getpid));
    expect_success((pid_t)child);
}

int main(void)
{
    return run_tests("process");
}
