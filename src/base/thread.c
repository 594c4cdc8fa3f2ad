/* Which threads belong to the library. Its invariant: a mark counts only in the
 * process that set it, because a child that is forked in a callback runs on a
 * copy of the marked thread. */
#include "base/thread.h"

#include <signal.h>

#include "base/error.h"
#include "base/process.h"

static _Thread_local unsigned kind_of_this;
static _Thread_local pid_t marked_by; /* the process */

int shed_thread_start(pthread_t *out, void *(*run)(void *arg), void *arg)
{
    sigset_t all, before;
    int failure;

    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    failure = pthread_create(out, NULL, run, arg);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
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
