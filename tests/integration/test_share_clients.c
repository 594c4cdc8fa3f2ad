/*
 * LEASE and QUORUM share a lock with the standard clients of other languages:
 * our processes, redis-py's Lock and npm's redlock contend for one lock, on one
 * server and on five.
 *
 * usage: test_share_clients python | npm DIR DIR has or gets npm's packages
 *
 * In a directory each holder does what two must not do at the same time: it
 * creates the file "inside", or reports in "overlaps" that it exists; adds one
 * to the number in "counter", by reading and writing; adds its name to "log";
 * removes "inside". A release that finds the lock lost is reported in "lost":
 * all leases outlast the test. All continue until a file "stop" exists.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/random.h"
#include "support/child.h"
#include "support/lock_fixture.h"

enum {
    SERVERS = 5,
    EACH = 3,           /* processes of each kind */
    ENTRIES_MIN = 6,    /* of each process */
    CHANGES_MIN = 10,   /* from ours to another kind, and back */
    LEASE_MS = 1200000, /* of ours: longer than ctest lets this run */
    PAUSE_US = 50000,   /* of ours; the others poll about every 100 ms */
    PATH_BYTES = 128,
    CONTENDERS_MAX = 3 * EACH
};

enum kind { OURS, PYTHON, NPM };

static const char *const kind_names[] = {"ours", "python", "npm"};

struct contender {
    enum kind kind;
    char name[24];
    pid_t pid;
    unsigned entries;
};

static struct server servers[SERVERS];
static unsigned server_count;
static char dir[SERVER_PATH_BYTES]; /* removed with that of the first server */
static struct contender contenders[CONTENDERS_MAX];
static unsigned contender_count;
static bool has_npm;

/* ------------------------------------------------------------ the directory */

static const char *in_dir(const char *file, char path[PATH_BYTES])
{
    snprintf(path, PATH_BYTES, "%s/%s", dir, file);
    return path;
}

static void append(const char *file, const char *text)
{
    char path[PATH_BYTES];
    FILE *out = fopen(in_dir(file, path), "a");

    ck_assert_ptr_nonnull(out);
    fprintf(out, "%s\n", text);
    ck_assert_int_eq(fclose(out), 0);
}

static void write_counter(unsigned number)
{
    char path[PATH_BYTES];
    FILE *out = fopen(in_dir("counter", path), "w");

    ck_assert_ptr_nonnull(out);
    fprintf(out, "%u", number);
    ck_assert_int_eq(fclose(out), 0);
}

static unsigned read_counter(void)
{
    char path[PATH_BYTES];
    FILE *in = fopen(in_dir("counter", path), "r");
    unsigned number = 0;

    ck_assert_ptr_nonnull(in);
    ck_assert_int_eq(fscanf(in, "%u", &number), 1);
    fclose(in);
    return number;
}

static bool exists(const char *file)
{
    char path[PATH_BYTES];

    return access(in_dir(file, path), F_OK) == 0;
}

/* There must be no such file; its text is reported. */
static void expect_none(const char *file)
{
    char path[PATH_BYTES], text[256];
    FILE *in = fopen(in_dir(file, path), "r");

    if (in == NULL)
        return;
    text[fread(text, 1, sizeof(text) - 1, in)] = '\0';
    fclose(in);
    ck_abort_msg("%s:\n%s", file, text);
}

/* ----------------------------------------------------------- our contenders */

static void enter(const char *name)
{
    char path[PATH_BYTES];
    int fd = open(in_dir("inside", path), O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    unsigned number;

    if (fd < 0)
        append("overlaps", name);
    else
        close(fd);
    number = read_counter();
    usleep(1000);
    write_counter(number + 1);
    append("log", name);
    unlink(path);
}

static struct shed_lock *open_ours(void)
{
    struct shed_lock_options o = options_of(SHED_LOCK_LEASE);
    struct shed_client *clients[SERVERS];
    struct shed_lock *lock;

    o.exact_key = 1;
    o.lease_ms = LEASE_MS;
    for (unsigned i = 0; i < server_count; i++)
        clients[i] = open_client(&servers[i], SHED_WAIT_AUTO);
    EXPECT_OK(shed_lock_open_quorum(clients, server_count, shed_str(LOCK_NAME),
                                    &o, &lock, NULL));
    return lock;
}

/* A failure here fails the test through the exit status. */
static _Noreturn void contend(const char *name)
{
    struct shed_lock *lock = open_ours();
    struct shed_error err;

    while (!exists("stop")) {
        enum shed_code code = shed_lock_acquire(lock, PLENTY_MS, &err);
        if (code != SHED_OK) {
            fprintf(stderr, "%s: %s\n", name, err.reason);
            _exit(EXIT_FAILURE);
        }
        enter(name);
        /* an unconfirmed release is reported below */
        if (shed_lock_release(lock, &err) == SHED_ELOST)
            append("lost", err.reason);
        usleep((useconds_t)(shed_random_jitter() % PAUSE_US));
    }
    shed_lock_close(lock);
    _exit(EXIT_SUCCESS);
}

/* --------------------------------------------------------------- processes */

static _Noreturn void exec_foreign(const struct contender *c)
{
    const char *argv[SERVERS + 6] = {
        c->kind == PYTHON ? SHARE "/python" : "node",
        c->kind == PYTHON ? SHARE "/contend.py" : SHARE "/contend.js", c->name,
        dir, LOCK_NAME};
    size_t n = 5;

    for (unsigned i = 0; i < server_count; i++)
        argv[n++] = servers[i].socket;
    execvp(argv[0], (char *const *)(size_t)argv);
    fprintf(stderr, "%s: %s\n", argv[0], strerror(errno));
    _exit(EXIT_FAILURE);
}

static void start(enum kind kind)
{
    struct contender *c = &contenders[contender_count++];

    c->kind = kind;
    snprintf(c->name, sizeof(c->name), "%s%u", kind_names[kind],
             contender_count);
    c->pid = fork_child();
    if (c->pid > 0)
        return;
    if (kind == OURS)
        contend(c->name);
    exec_foreign(c);
}

/* Whether one has ended before it was told to. */
static bool has_one_ended(void)
{
    for (unsigned i = 0; i < contender_count; i++) {
        siginfo_t info = {0};
        ck_assert_int_eq(waitid(P_PID, (id_t)contenders[i].pid, &info,
                                WEXITED | WNOHANG | WNOWAIT),
                         0);
        if (info.si_pid != 0)
            return true;
    }
    return false;
}

/* Returns: the name of one that has failed, or NULL. */
static const char *join_all(void)
{
    const char *failed = NULL;

    append("stop", "");
    for (unsigned i = 0; i < contender_count; i++) {
        int status = -1;
        ck_assert_int_eq(waitpid(contenders[i].pid, &status, 0),
                         contenders[i].pid);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
            failed = contenders[i].name;
    }
    return failed;
}

/* ------------------------------------------------------------ what happened */

struct tally {
    unsigned entries;
    unsigned given, taken; /* from ours to another kind, and back */
};

static struct contender *find(const char *name)
{
    for (unsigned i = 0; i < contender_count; i++)
        if (strcmp(contenders[i].name, name) == 0)
            return &contenders[i];
    ck_abort_msg("who is '%s'?", name);
}

static struct tally read_log(void)
{
    struct tally tally = {0};
    char path[PATH_BYTES], name[24];
    FILE *in = fopen(in_dir("log", path), "r");
    enum kind last = OURS;

    for (unsigned i = 0; i < contender_count; i++)
        contenders[i].entries = 0;
    while (in != NULL && fscanf(in, "%23s", name) == 1) {
        struct contender *c = find(name);
        c->entries++;
        tally.entries++;
        tally.given += last == OURS && c->kind != OURS;
        tally.taken += last != OURS && c->kind == OURS;
        last = c->kind;
    }
    if (in != NULL)
        fclose(in);
    return tally;
}

/* Whether each was inside often enough, and the lock changed kinds often
 * enough. */
static bool is_enough(void)
{
    struct tally tally = read_log();

    for (unsigned i = 0; i < contender_count; i++)
        if (contenders[i].entries < ENTRIES_MIN)
            return false;
    return tally.given >= CHANGES_MIN && tally.taken >= CHANGES_MIN;
}

static void start_servers(unsigned count)
{
    for (server_count = 0; server_count < count; server_count++) {
        servers[server_count] =
            (struct server){.has_clock = true, .is_old = true};
        server_start(&servers[server_count]);
    }
    snprintf(dir, sizeof(dir), "%s/share", servers[0].dir);
    ck_assert_int_eq(mkdir(dir, 0700), 0);
    write_counter(0);
}

static void stop_servers(void)
{
    for (unsigned i = 0; i < server_count; i++)
        server_stop(&servers[i]);
}

/* Ends before ctest's limit, so that judge can say who never got the lock. */
static void wait_until_enough(void)
{
    enum {
        TIMES = 12
    }; /* each as long as anything that should take a moment */
    uint64_t begin_ms = shed_now_ms();
    uint64_t patience_ms = TIMES * (test_deadline_ms() - begin_ms);

    while (!is_enough()) {
        if (has_one_ended() || exists("overlaps") || exists("lost"))
            return; /* judge reports why */
        for (unsigned i = 0; i < contender_count; i++)
            ck_assert_msg(shed_now_ms() - begin_ms < patience_ms ||
                              contenders[i].entries >= ENTRIES_MIN,
                          "%s had it %u times in %llu ms", contenders[i].name,
                          contenders[i].entries,
                          (unsigned long long)patience_ms);
        usleep(10000);
    }
}

static void start_contenders(void)
{
    contender_count = 0;
    for (unsigned i = 0; i < EACH; i++) {
        start(OURS);
        start(PYTHON);
        if (has_npm)
            start(NPM);
    }
}

static void judge(const char *failed)
{
    struct tally tally = read_log();

    expect_none("overlaps");
    expect_none("lost");
    ck_assert_msg(failed == NULL, "%s has failed", failed);
    ck_assert_uint_eq(read_counter(), tally.entries);
    for (unsigned i = 0; i < server_count; i++)
        WAIT_FOR(server_int(&servers[i], "EXISTS %s", LOCK_NAME) == 0);
}

TEST_EACH(no_two_have_it_and_each_gets_it, 0, 2)
{
    start_servers(_i == 0 ? 1 : SERVERS);
    start_contenders();
    wait_until_enough();
    judge(join_all());
    stop_servers();
}

/* The packages are in a directory of the build. Returns 77, which means
 * "skipped" to ctest, if they cannot be installed. */
static int install_npm(const char *modules_dir)
{
    char command[1024], modules[512];
    int status;

    snprintf(command, sizeof(command), SHARE "/install_npm '%s'", modules_dir);
    status = system(command);
    snprintf(modules, sizeof(modules), "%s/node_modules", modules_dir);
    setenv("NODE_PATH", modules, 1);
    has_npm = true;
    return WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_FAILURE;
}

int main(int argc, char **argv)
{
    int status = EXIT_SUCCESS;

    if (argc == 3 && strcmp(argv[1], "npm") == 0)
        status = install_npm(argv[2]);
    else if (argc != 2 || strcmp(argv[1], "python") != 0)
        status = EXIT_FAILURE;
    if (status != EXIT_SUCCESS)
        return status;
    return run_tests("share with clients");
}
