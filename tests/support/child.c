#include "support/child.h"

#include <check.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

void *share_memory(size_t size)
{
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    ck_assert_ptr_ne(memory, MAP_FAILED);
    return memory;
}

pid_t fork_child(void)
{
    pid_t pid = fork();

    if (pid == 0)
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    else /* a lock of Check's may be held for ever in the child */
        ck_assert_int_gt(pid, 0);
    return pid;
}

void kill_child(pid_t pid)
{
    if (pid == 0)
        return;
    ck_assert_int_eq(kill(pid, SIGKILL), 0);
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
}
