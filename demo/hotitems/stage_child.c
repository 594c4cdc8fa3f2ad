/* Children by fork: posix_spawn cannot tie a child's life to its parent's. Only
 * what is allowed after a fork of a program with threads happens before exec.
 */
#include "stage_child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "http.h"

#define OUTPUT_MAX_BYTES ((size_t)64 * 1024) /* of child_read */
#define LOOK_AGAIN_MS 5
#define FILES_MAX 4096 /* that a process of ours has open */

/* ------------------------------------------------------ after the fork */

static void bind_to_parent(pid_t parent, int number)
{
    (void)prctl(PR_SET_PDEATHSIG, number);
    if (getppid() != parent)
        _exit(EXIT_FAILURE); /* it ended before that */
    (void)setpgid(0, 0);
}

static _Noreturn void become(const char *const *argv, pid_t parent, int out,
                             bool has_errors, int inherited)
{
    sigset_t none;
    int null = open("/dev/null", O_RDWR);

    bind_to_parent(parent, SIGKILL);
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    (void)signal(SIGPIPE, SIG_DFL);
    if (null != -1 && dup2(null, STDIN_FILENO) != -1 &&
        dup2(out != -1 ? out : null, STDOUT_FILENO) != -1 &&
        dup2(has_errors ? STDOUT_FILENO : null, STDERR_FILENO) != -1 &&
        (inherited == -1 || dup2(inherited, CHILD_INHERITED_FD) != -1))
        (void)execvp(argv[0], (char *const *)argv);
    _exit(CHILD_NOT_FOUND);
}

/* --------------------------------------------------------------- start */

static bool open_pipe(int fd[2])
{
    if (pipe(fd) != 0)
        return false;
    for (int i = 0; i < 2; i++)
        (void)fcntl(fd[i], F_SETFD, FD_CLOEXEC);
    (void)fcntl(fd[0], F_SETFL, O_NONBLOCK);
    return true;
}

static bool start(struct child *child, const char *const *argv, int inherited,
                  bool is_read, bool has_errors)
{
    int fd[2] = {-1, -1};
    pid_t parent = getpid(), pid;

    *child = CHILD_NONE;
    if (is_read && !open_pipe(fd))
        return false;
    pid = fork();
    if (pid == 0)
        become(argv, parent, fd[1], has_errors, inherited);
    if (fd[1] != -1)
        (void)close(fd[1]);
    if (pid == -1) {
        if (fd[0] != -1)
            (void)close(fd[0]);
        return false;
    }
    *child = (struct child){pid, fd[0], -1};
    return true;
}

bool child_start(struct child *child, const char *const *argv, int inherited,
                 bool is_read)
{
    return start(child, argv, inherited, is_read, is_read);
}

static void keep(pid_t pid, uint64_t for_ms)
{
    struct timespec time = {(time_t)(for_ms / 1000),
                            (long)(for_ms % 1000) * 1000000};
    sigset_t ends;

    (void)sigemptyset(&ends);
    (void)sigaddset(&ends, SIGTERM);
    (void)sigprocmask(SIG_SETMASK, &ends, NULL); /* SIGTERM is blocked */
    (void)kill(pid, SIGSTOP); /* by the process that lets it continue */
    (void)sigtimedwait(&ends, NULL, &time);
    (void)kill(pid, SIGCONT);
}

bool child_start_stopping(struct child *keeper, pid_t pid, uint64_t for_ms)
{
    pid_t parent = getpid(), id;
    sigset_t term, before;

    *keeper = CHILD_NONE;
    (void)sigemptyset(&term);
    (void)sigaddset(&term, SIGTERM);
    (void)pthread_sigmask(SIG_BLOCK, &term, &before);
    id = fork();
    if (id == 0) {
        bind_to_parent(parent, SIGTERM);
        for (int fd = 0; fd < FILES_MAX; fd++)
            (void)close(fd); /* others wait for the end of some */
        keep(pid, for_ms);
        _exit(EXIT_SUCCESS);
    }
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (id == -1)
        return false;
    keeper->pid = id;
    return true;
}

/* ----------------------------------------------------------------- end */

void child_close(struct child *child)
{
    if (child->out != -1)
        (void)close(child->out);
    child->out = -1;
}

bool child_reap(struct child *child, int *status)
{
    if (child->pid == 0 || waitpid(child->pid, status, WNOHANG) == 0)
        return false;
    child->pid = 0;
    return true;
}

void child_signal(const struct child *child, int number)
{
    if (child->pid != 0)
        (void)kill(child->pid, number);
}

/* A copy that cannot be written is not worth the end of what prints it. */
ssize_t child_take(const struct child *child, char *data, size_t size)
{
    ssize_t got = read(child->out, data, size), done = 0, put = 1;

    while (child->copy != -1 && done < got && put > 0) {
        put = write(child->copy, data + done, (size_t)(got - done));
        done += put;
    }
    return got;
}

static void look_again(void)
{
    (void)poll(NULL, 0, LOOK_AGAIN_MS);
}

/* Returns how many are left. What they print meanwhile is thrown away, so that
 * none waits for a reader. */
static size_t reap_all(struct child *const *children, size_t count)
{
    size_t left = 0;
    char waste[4096];
    int status;

    for (size_t i = 0; i < count; i++) {
        while (children[i]->out != -1 &&
               child_take(children[i], waste, sizeof(waste)) > 0)
            ;
        if (children[i]->pid != 0 && !child_reap(children[i], &status))
            left++;
    }
    return left;
}

void child_end_all(struct child *const *children, size_t count,
                   uint64_t patience_ms)
{
    uint64_t kill_at_ms = http_now_ms() + patience_ms;
    bool is_killed = false;

    for (size_t i = 0; i < count; i++)
        child_signal(children[i], SIGTERM);
    while (reap_all(children, count) > 0) {
        if (!is_killed && http_now_ms() >= kill_at_ms) {
            is_killed = true;
            for (size_t i = 0; i < count; i++)
                child_signal(children[i], SIGKILL);
        }
        look_again();
    }
    for (size_t i = 0; i < count; i++)
        child_close(children[i]);
}

/* ---------------------------------------------------------------- read */

/* Up to the end of its output. Returns whether it came in time. */
static bool read_output(int fd, char *text, size_t *size, uint64_t end_ms)
{
    for (;;) {
        uint64_t now_ms = http_now_ms();
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        ssize_t got;
        if (now_ms >= end_ms || poll(&ready, 1, (int)(end_ms - now_ms)) == 0)
            return false;
        got = read(fd, text + *size, OUTPUT_MAX_BYTES - *size);
        if (got == 0)
            return true;
        if (got == -1 && errno != EAGAIN && errno != EINTR)
            return false;
        *size += got > 0 ? (size_t)got : 0;
        if (*size == OUTPUT_MAX_BYTES)
            return false;
    }
}

char *child_read(const char *const *argv, uint64_t timeout_ms, int *status)
{
    uint64_t end_ms = http_now_ms() + timeout_ms;
    char *text = malloc(OUTPUT_MAX_BYTES + 1);
    size_t size = 0;
    struct child child;

    if (text == NULL || !start(&child, argv, -1, true, false)) {
        free(text);
        return NULL;
    }
    if (!read_output(child.out, text, &size, end_ms)) {
        child_signal(&child, SIGKILL);
        free(text);
        text = NULL;
    }
    (void)waitpid(child.pid, status, 0);
    child_close(&child);
    if (text != NULL)
        text[size] = '\0';
    return text;
}
