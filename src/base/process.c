/*
 * The process id is kept in a page that the kernel wipes in each child
 * (MADV_WIPEONFORK, Linux 4.14), however that was made: by fork, or by clone,
 * of which pthread_atfork does not hear. Where there is no such page, each call
 * asks the kernel.
 */
#include "base/process.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Atomic(pid_t) *_Atomic page; /* NULL: there is none; 0 in it: just
                                        forked */

static void map_page(void)
{
    size_t size = (size_t)sysconf(_SC_PAGESIZE);
    void *at = mmap(NULL, size, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (at == MAP_FAILED)
        return;
    if (madvise(at, size, MADV_WIPEONFORK) == 0)
        atomic_store_explicit(&page, at, memory_order_release);
    else
        (void)munmap(at, size);
}

pid_t shed_process_id(void)
{
    _Atomic(pid_t) *known = atomic_load_explicit(&page, memory_order_acquire);
    pid_t pid =
        known != NULL ? atomic_load_explicit(known, memory_order_relaxed) : 0;

    if (pid != 0)
        return pid;
    (void)pthread_once(&once, map_page);
    known = atomic_load_explicit(&page, memory_order_acquire);
    pid = getpid();
    if (known != NULL)
        atomic_store_explicit(known, pid, memory_order_relaxed);
    return pid;
}
