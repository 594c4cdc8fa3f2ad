/*
 * The library's own threads. Callbacks run on them, so a call may come from
 * such a thread, and must not wait there for something that only this thread
 * can do.
 */
#ifndef SHED_THREAD_H
#define SHED_THREAD_H

#include <pthread.h>
#include <stdbool.h>

#include <snowshed/snowshed.h>

enum shed_thread {
    SHED_THREAD_LOOP = 1,  /* a client's reactor */
    SHED_THREAD_LOADER = 2 /* runs the loads of a source */
};

/* Start a thread with all signals blocked, because the program's signals are
 * for its own threads, and with a stack of the default size, at least 256 kB.
 * Returns: 0, or an errno. */
SHED_MUST_CHECK int shed_thread_start(pthread_t *out, void *(*run)(void *arg),
                                      void *arg);

/* Mark the calling thread, before it runs any callback. */
void shed_thread_mark(enum shed_thread kind);

/* Whether the calling thread is of one of these kinds, of whatever client or
 * source. In a forked child: no. */
bool shed_thread_is(unsigned kinds);

/* Check that a blocking call is allowed on this thread. Returns: SHED_OK;
 * SHED_EINVAL on a reactor, where nothing makes progress until the call has
 * returned. */
SHED_MUST_CHECK enum shed_code shed_thread_check_call(struct shed_error *err);

/* Close a handle: here, or, if this thread is of one of these kinds and must
 * not wait for the end, on a new thread. If no thread can be started the handle
 * stays open. */
void shed_thread_close(unsigned kinds, void *(*close)(void *handle),
                       void *handle);

#endif
