/* Which process this is, without a system call. */
#ifndef SHED_PROCESS_H
#define SHED_PROCESS_H

#include <sys/types.h>

/* As getpid, which would be the third system call of a hit, beside send and
 * recv. Any thread. */
pid_t shed_process_id(void);

#endif
