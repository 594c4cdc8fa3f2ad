/* A private MariaDB server, or MySQL where that is installed instead; it can be
 * stopped, killed and started again. */
#ifndef OWN_DATABASE_H
#define OWN_DATABASE_H

#include <sys/types.h>

struct own_database {
    char dir[64];
    char uri[256]; /* of its database mysql; as root, over a unix socket */
    pid_t pid;     /* 0: not running */
};

/* Returns: "mariadbd", or "mysqld" if there is only MySQL. */
const char *own_database_program(void);

/* Make a data directory in a temporary directory; fails the test. */
void own_database_install(struct own_database *server);

/* Start it, and wait until it answers. It dies with the process that started
 * it, so that a test that fails leaves nothing behind. */
void own_database_start(struct own_database *server);

/* Send SIGTERM, SIGKILL or SIGSTOP, and wait until the server has ended or is
 * stopped; or send SIGCONT. */
void own_database_signal(struct own_database *server, int number);

/* Move a log out of the directory, so that it still exists when a failed test
 * names it. Returns its new path; static. */
const char *own_database_keep_log(const struct own_database *server,
                                  const char *name);

/* Remove the directory. */
void own_database_remove(struct own_database *server);

#endif
