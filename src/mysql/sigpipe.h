/*
 * Oracle's client library writes to a connection that the server has closed in
 * such a way that the thread gets a SIGPIPE. A call of ours on the program's
 * own connection must not let it through, whatever the program does with the
 * signal.
 */
#ifndef SHED_MYSQL_SIGPIPE_H
#define SHED_MYSQL_SIGPIPE_H

#include <signal.h>
#include <stdbool.h>

/* What is restored afterwards. */
struct shed_mysql_sigpipe {
    sigset_t before;
    bool was_pending; /* then the pending signal is not ours to take */
    bool is_blocked;
};

/* Block SIGPIPE in the calling thread. */
void shed_mysql_sigpipe_block(struct shed_mysql_sigpipe *s);

/* Take a SIGPIPE that was raised since, and restore the thread's mask. */
void shed_mysql_sigpipe_restore(const struct shed_mysql_sigpipe *s);

#endif
