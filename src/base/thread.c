/* Which threads belong to the library. Its invariant: a mark counts only in the
 * process that set it, because a child that is forked in a callback runs on a
 * copy of the marked thread. */
#include "base/thread.h"

#include <signal.h>
#include <stddef.h>

#include "base/error.h"
#include "base/process.h"

/* The least stack of a thread of ours. A call needs 16 kB at most, as
 * snowshed.h says; the rest is for the program's functions and for what we
 * call: the C library's resolver and MySQL's client. */
#define STACK_BYTES ((size_t)256 * 1024)

static _Thread_local unsigned kind_of_this;
static _Thread_local pid_t marked_by; /* the process */

/* The default stack can be too small: musl's has 128 kB, and a program can set
 * it. */
static int raise_stack(pthread_attr_t *attr)
{
    size_t size;
    int failure = pthread_attr_getstacksize(attr, &size);

    if (failure == 0 && size < STACK_BYTES)
        failure = pthread_attr_setstacksize(attr, STACK_BYTES);
    return failure;
}

int shed_thread_start(pthread_t *out, void *(*run)(void *arg), void *arg)
{
    sigset_t all, before;
    pthread_attr_t attr;
    int failure = pthread_attr_init(&attr);

    if (failure != 0)
        return failure;
    failure = raise_stack(&attr);
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    if (failure == 0)
        failure = pthread_create(out, &attr, run, arg);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    (void)pthread_attr_destroy(&attr);
    return failure;
}

void shed_thread_mark(enum shed_thread kind)
{
    kind_of_this = kind;
    marked_by = shed_process_id();
}

bool shed_thread_is(unsigned kinds)
{
    return (kind_of_this & kinds) != 0 && marked_by == shed_process_id();
}

enum shed_code shed_thread_check_call(struct shed_error *err)
{
    if (!shed_thread_is(SHED_THREAD_LOOP))
        return SHED_OK;
    return shed_fail(err, SHED_EINVAL,
                     "a call that blocks was made from a callback, on the "
                     "library's own thread, which must not wait: make it from "
                     "a thread of your own");
}

void shed_thread_close(unsigned kinds, void *(*close)(void *handle),
                       void *handle)
{
    pthread_t thread;

    if (!shed_thread_is(kinds))
        (void)close(handle);
    else if (shed_thread_start(&thread, close, handle) == 0)
        (void)pthread_detach(thread);
}
