/* See own_database.h. Linux only: prctl makes the child die with its parent. */
#include "support/own_database.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/prctl.h>
#include <sys/wait.h>

#include "mysql/compat.h"
#include "support/testing.h"

/* MySQL makes its files in a directory that has nothing but such files. */
#define LOG ".log"
#define NORMAL_AUTHENTICATION "--auth-root-authentication-method=normal"

enum {
    OPTION_BYTES = 128,
    OPTIONS_MAX = 24,
    PATH_BYTES = 1024,
    START_PATIENCE = 2
};

/* Servers are in sbin, which not every PATH contains. */
static void search_path(char path[PATH_BYTES])
{
    snprintf(path, PATH_BYTES, "%s:/usr/local/sbin:/usr/sbin", getenv("PATH"));
}

const char *own_database_program(void)
{
    char path[PATH_BYTES], *rest = NULL;

    search_path(path);
    for (char *dir = strtok_r(path, ":", &rest); dir != NULL;
         dir = strtok_r(NULL, ":", &rest)) {
        char file[PATH_BYTES + OPTION_BYTES];
        snprintf(file, sizeof(file), "%s/mariadbd", dir);
        if (access(file, X_OK) == 0)
            return "mariadbd";
    }
    return "mysqld";
}

static bool is_mysql(void)
{
    return strcmp(own_database_program(), "mysqld") == 0;
}

/* Execute a program with its output going to the log. */
_Noreturn static void become(const struct own_database *server, char **argv)
{
    char path[PATH_BYTES], log[OPTION_BYTES];
    int fd;

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    snprintf(log, sizeof(log), "%s/" LOG, server->dir);
    fd = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (fd >= 0) {
        (void)dup2(fd, STDOUT_FILENO);
        (void)dup2(fd, STDERR_FILENO);
    }
    search_path(path);
    (void)setenv("PATH", path, 1);
    (void)execvp(argv[0], argv);
    perror(argv[0]); /* to the log */
    _exit(EXIT_FAILURE);
}

/* Run a program in the background. An option that ends in '=' gets the
 * directory. */
static pid_t spawn(const struct own_database *server, const char *program,
                   const char *const *options)
{
    static char texts[OPTIONS_MAX][OPTION_BYTES];
    char *argv[OPTIONS_MAX + 1] = {0};
    size_t count = 0;
    pid_t pid;

    snprintf(texts[count], OPTION_BYTES, "%s", program);
    argv[count] = texts[count];
    for (; *options != NULL; options++) {
        ck_assert_uint_lt(++count, OPTIONS_MAX);
        snprintf(texts[count], OPTION_BYTES, "%s%s", *options,
                 (*options)[strlen(*options) - 1] == '=' ? server->dir : "");
        argv[count] = texts[count];
    }
    pid = fork();
    if (pid == 0)
        become(server, argv);
    ck_assert_int_ge(pid, 0);
    return pid;
}

const char *own_database_keep_log(const struct own_database *server,
                                  const char *name)
{
    static char kept[OPTION_BYTES];
    char log[OPTION_BYTES];

    snprintf(log, sizeof(log), "%s/%s", server->dir, name);
    snprintf(kept, sizeof(kept), "%s.log", server->dir);
    return rename(log, kept) == 0 ? kept : "no log";
}

static void run_to_its_end(const struct own_database *server,
                           const char *program, const char *const *options)
{
    int status = 0;
    pid_t pid = spawn(server, program, options);

    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    if (status != 0)
        ck_abort_msg("%s failed: see %s", program,
                     own_database_keep_log(server, LOG));
}

void own_database_install(struct own_database *server)
{
    /* --force: otherwise the machine's own name must resolve. --tmpdir: see
     * own_database_start; the installation runs a server, too */
    static const char *const options[] = {
        "--no-defaults", "--user=root", NORMAL_AUTHENTICATION, "--skip-test-db",
        "--force",       "--datadir=",  "--tmpdir=",           NULL};
    static const char *const mysql_options[] = {
        "--no-defaults",         "--user=root", "--secure-file-priv=NULL",
        "--initialize-insecure", "--datadir=",  NULL};

    *server = (struct own_database){.dir = "/tmp/shed_mariadb_XXXXXX"};
    ck_assert_ptr_nonnull(mkdtemp(server->dir));
    snprintf(server->uri, sizeof(server->uri),
             "mysql://root@/mysql?socket=%s/socket", server->dir);
    if (is_mysql())
        run_to_its_end(server, "mysqld", mysql_options);
    else
        run_to_its_end(server, "mariadb-install-db", options);
}

static bool answers(const struct own_database *server)
{
    MYSQL *mysql = mysql_init(NULL);
    char path[OPTION_BYTES];
    bool is_there;

    ck_assert_ptr_nonnull(mysql);
    snprintf(path, sizeof(path), "%s/socket", server->dir);
    is_there =
        mysql_real_connect(mysql, NULL, "root", NULL, NULL, 0, path, 0) != NULL;
    mysql_close(mysql);
    return is_there;
}

void own_database_start(struct own_database *server)
{
    /* a starting server clears its directory for temporary tables; another
     * server that shared it would lose its tables and crash */
    const char *const options[] = {"--no-defaults",
                                   "--user=root",
                                   "--skip-networking",
                                   "--skip-name-resolve",
                                   "--skip-log-bin",
                                   "--innodb-buffer-pool-size=16M",
                                   "--innodb-flush-log-at-trx-commit=2",
                                   "--innodb-fast-shutdown=2",
                                   "--key-buffer-size=1M",
                                   "--socket=socket",
                                   "--pid-file=pid",
                                   "--tmpdir=",
                                   "--datadir=",
                                   "--loose-mysqlx=OFF",
                                   is_mysql() ? "--secure-file-priv=NULL"
                                              : NULL,
                                   NULL};
    uint64_t now_ms = shed_now_ms();
    uint64_t patience_ms = (test_deadline_ms() - now_ms) * START_PATIENCE;

    server->pid = spawn(server, own_database_program(), options);
    while (!answers(server)) {
        if (shed_now_ms() >= now_ms + patience_ms ||
            waitpid(server->pid, NULL, WNOHANG) != 0)
            ck_abort_msg("%s does not start: see %s", own_database_program(),
                         own_database_keep_log(server, LOG));
        sched_yield();
    }
}

void own_database_signal(struct own_database *server, int number)
{
    int options = number == SIGSTOP ? WUNTRACED : 0;

    if (server->pid == 0)
        return;
    ck_assert_int_eq(kill(server->pid, number), 0);
    if (number == SIGCONT)
        return;
    ck_assert_int_eq(waitpid(server->pid, NULL, options), server->pid);
    if (number != SIGSTOP)
        server->pid = 0;
}

void own_database_remove(struct own_database *server)
{
    char *argv[] = {"rm", "-rf", server->dir, NULL};
    pid_t pid = fork();

    if (pid == 0) {
        (void)execvp(argv[0], argv);
        _exit(127);
    }
    ck_assert_int_ge(pid, 0);
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
}
