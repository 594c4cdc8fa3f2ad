/* Which process this is, without a system call. */
#ifndef SHED_PROCESS_H
#define SHED_PROCESS_H

#include <sys/types.h>

/* As getpid, which costs a system call, and so a third of what a hit costs the
 * kernel. Any thread. */
pid_t shed_process_id(void);

#endif
