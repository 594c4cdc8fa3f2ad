/* The processes of a test: they share memory with it and end with it. */
#ifndef CHILD_H
#define CHILD_H

#include <stddef.h>
#include <sys/types.h>

/* Zeroed memory that this process and its children share. */
void *share_memory(size_t size);

/* fork, but the child is killed when the thread that has called this ends,
 * however that ends. */
pid_t fork_child(void);

/* Kill a child and wait for its end. Does nothing if pid is 0. */
void kill_child(pid_t pid);

#endif
