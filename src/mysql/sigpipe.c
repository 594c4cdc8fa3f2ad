/* The signal is blocked per thread, and the program's disposition is left
 * alone, so that other threads notice nothing (see sigtimedwait(2) and
 * pthread_sigmask(3)). */
#include "mysql/sigpipe.h"

#include <errno.h>
#include <time.h>

static bool is_pending(void)
{
    sigset_t pending;

    return sigpending(&pending) == 0 && sigismember(&pending, SIGPIPE) == 1;
}

static void set_sigpipe(sigset_t *set)
{
    (void)sigemptyset(set);
    (void)sigaddset(set, SIGPIPE);
}

void shed_mysql_sigpipe_block(struct shed_mysql_sigpipe *s)
{
    sigset_t sigpipe;

    set_sigpipe(&sigpipe);
    s->was_pending = is_pending();
    (void)pthread_sigmask(SIG_BLOCK, &sigpipe, &s->before); /* cannot fail */
}

void shed_mysql_sigpipe_restore(const struct shed_mysql_sigpipe *s)
{
    static const struct timespec no_time;
    sigset_t sigpipe;

    set_sigpipe(&sigpipe);
    if (!s->was_pending && is_pending())
        while (sigtimedwait(&sigpipe, NULL, &no_time) < 0 && errno == EINTR)
            continue;
    (void)pthread_sigmask(SIG_SETMASK, &s->before, NULL);
}
