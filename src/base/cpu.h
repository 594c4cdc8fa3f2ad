/* Which processor a thread runs on, for memory that each of them has a copy of:
 * threads that write to different copies do not wait for each other's caches.
 */
#ifndef SHED_CPU_H
#define SHED_CPU_H

/* Copies are at least this many bytes apart. */
#define SHED_CPU_LINE_BYTES 64

/* More copies than this are not worth their memory. */
#define SHED_CPU_COPIES_MAX 16

/* How many copies there should be: at least 1. */
unsigned shed_cpu_copies(void);

/* Which of count copies this thread uses now. It may be on another processor at
 * once, so a copy has a lock, or is atomic. Any thread. */
unsigned shed_cpu_copy(unsigned count);

#endif
