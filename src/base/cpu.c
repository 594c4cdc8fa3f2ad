/* The processor of a thread, which glibc reads without a system call. */
#include "base/cpu.h"

#include <sched.h>
#include <unistd.h>

unsigned shed_cpu_copies(void)
{
    long count = sysconf(_SC_NPROCESSORS_ONLN);

    if (count < 1)
        return 1;
    return count < SHED_CPU_COPIES_MAX ? (unsigned)count : SHED_CPU_COPIES_MAX;
}

unsigned shed_cpu_copy(unsigned count)
{
    int cpu = count > 1 ? sched_getcpu() : 0;

    return cpu > 0 ? (unsigned)cpu % count : 0;
}
