/*
 * When the server has closed a connection, a write by Oracle's client library
 * raises SIGPIPE in the thread. Our calls on the program's own connection must
 * not let the signal through, whatever the program does with it.
 */
#ifndef SHED_MYSQL_SIGPIPE_H
#define SHED_MYSQL_SIGPIPE_H

#include <signal.h>
#include <stdbool.h>

/* What is restored afterwards. */
struct shed_mysql_sigpipe {
    sigset_t before;
    bool was_pending; /* then the pending signal is not ours to consume */
};

/* Block SIGPIPE in the calling thread. */
void shed_mysql_sigpipe_block(struct shed_mysql_sigpipe *s);

/* Consume a SIGPIPE that was raised since, and restore the thread's mask. */
void shed_mysql_sigpipe_restore(const struct shed_mysql_sigpipe *s);

#endif
