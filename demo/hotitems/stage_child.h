/*
 * Programs that the stage starts. Each is in a process group of its own, where
 * the terminal's Ctrl-C does not reach it, and the kernel kills it when the
 * thread that started it ends, so that none outlives a stage that is killed.
 */
#ifndef HOTITEMS_STAGE_CHILD_H
#define HOTITEMS_STAGE_CHILD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define CHILD_NOT_FOUND 127  /* status when there is no such program */
#define CHILD_INHERITED_FD 3 /* in a child, of an inherited file */

struct child {
    pid_t pid; /* 0: there is none */
    int out;   /* what it prints, errors as well, not blocking; -1: lost */
    int copy;  /* a file that gets it, too; -1: none */
};

#define CHILD_NONE ((struct child){0, -1, -1})

/* Start argv[0], looked up in PATH. inherited: a file for it, or -1. Returns
 * false with errno, and *child is none. */
bool child_start(struct child *child, const char *const *argv, int inherited,
                 bool is_read);

/* Whether it has ended; then its pid is 0, *status is waitpid's, and what it
 * printed last can still be read. */
bool child_reap(struct child *child, int *status);
void child_close(struct child *child); /* read no more */

/* Some of what it prints, which is copied. As read(). */
ssize_t child_take(const struct child *child, char *data, size_t size);

/* Send a signal, if there is one to send it to. */
void child_signal(const struct child *child, int number);

/* SIGTERM to all of them, SIGKILL after patience_ms; all are none then. */
void child_end_all(struct child *const *children, size_t count,
                   uint64_t patience_ms);

/* Run a program to its end. Returns its standard output (malloc'd, terminated),
 * or NULL if it could not be started or had not ended after timeout_ms. */
char *child_read(const char *const *argv, uint64_t timeout_ms, int *status);

/* SIGSTOP a process that is no child. The keeper, which is one, lets it
 * continue after for_ms, when the keeper gets SIGTERM, and when this thread
 * ends. */
bool child_start_stopping(struct child *keeper, pid_t pid, uint64_t for_ms);

#endif
