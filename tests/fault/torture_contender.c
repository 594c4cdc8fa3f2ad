/*
 * The contender. Its invariant: everything that it does to the file and the
 * database while it believes that it is inside is recorded as such, and nothing
 * else is.
 *
 * A failure that none of our faults explains ends it with a status that fails
 * the cell.
 */
#include "fault/torture_contender.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include <snowshed/mysql.h>

#include "base/clock.h"
#include "mysql/compat.h"
#include "mysql/config.h"
#include "redis/pipe.h"
#include "support/bare.h"
#include "support/testing.h"

enum {
    WAIT_MS = 200,
    WORK_US = 20000,
    NAP_US = 1000,
    ATTEMPTS = 50 /* of a transaction that must be repeated */
};

/* The process's own; global, because the wrapped functions need it. */
static const struct torture_setup *setup;
static struct shed_lock *lock;
static MYSQL *mysql;

static _Noreturn void give_up(const char *what, const char *why)
{
    fprintf(stderr, "contender %u: %s: %s\n", setup->number, what, why);
    _exit(EXIT_FAILURE);
}

/* ----------------------------------------------------------- wrapped calls */

WRAPPED(clock_gettime);
WRAPPED(shed_pipe_call);

/* A host whose wall clock is wrong. */
int __wrap_clock_gettime(clockid_t clock, struct timespec *now)
{
    int status = __real_clock_gettime(clock, now);

    if (clock == CLOCK_REALTIME && setup != NULL)
        now->tv_sec += setup->skew_s;
    return status;
}

static bool is_command(const struct shed_args *args, const char *name)
{
    return args->size[0] == strlen(name) &&
           memcmp(args->at[0], name, args->size[0]) == 0;
}

/* The first contender that reaches this point takes the hook. */
static bool take_hook(enum torture_hook hook)
{
    int expected = (int)hook;

    if (!atomic_compare_exchange_strong(&setup->shared->hook, &expected,
                                        HOOK_NONE))
        return false;
    atomic_store(&setup->shared->hooked, setup->number);
    return true;
}

static void wait_for_an_entry(void)
{
    unsigned before = atomic_load(&setup->shared->entries_before);
    uint64_t end_ms =
        test_deadline_ms(); /* any sooner, and it would win itself */

    while (atomic_load(&setup->shared->entries) == before &&
           shed_now_ms() < end_ms)
        usleep(NAP_US);
}

void __wrap_shed_pipe_call(struct shed_pipe *pipe, struct shed_call *call,
                           const struct shed_args *args, shed_pipe_fn *fn,
                           void *arg)
{
    if (is_command(args, "EXPIRE") || is_command(args, "PEXPIRE")) {
        if (take_hook(HOOK_DIE_BEFORE_EXPIRE))
            raise(SIGKILL);
        if (take_hook(HOOK_STOP_BEFORE_EXPIRE))
            raise(SIGSTOP);
    } else if (is_command(args, "GETSET") && take_hook(HOOK_LATE_GETSET)) {
        wait_for_an_entry();
    } else if (is_command(args, "GET")) {
        usleep(setup->get_delay_us);
    }
    __real_shed_pipe_call(pipe, call, args, fn, arg);
}

/* --------------------------------------------------------------- records */

uint64_t torture_now_us(void)
{
    return shed_now_us();
}

void torture_record(const char *file, const struct torture_record *r)
{
    char line[80];
    int size = snprintf(line, sizeof(line), "%llu %u %c %llu\n",
                        (unsigned long long)r->at_us, r->contender,
                        (char)r->kind, (unsigned long long)r->number);
    int fd = open(file, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);

    /* one write per line, so that lines of several processes do not mix */
    if (fd < 0 || write(fd, line, (size_t)size) != size)
        _exit(EXIT_FAILURE);
    close(fd);
}

static void note(enum torture_kind kind, uint64_t number)
{
    const struct torture_record r = {shed_now_us(), setup->number, kind,
                                     number};

    torture_record(setup->file, &r);
}

/* How the reason of a loss begins if no renewal succeeded. */
#define ENDED "the lease has ended"

static void on_lost(void *user, struct shed_lock *lost,
                    const struct shed_error *reason)
{
    (void)user;
    (void)lost;
    (void)snprintf(setup->shared->loss[setup->number],
                   sizeof(setup->shared->loss[0]), "%s", reason->reason);
    note(TORTURE_LOST, strncmp(reason->reason, ENDED, sizeof(ENDED) - 1) == 0);
}

/* ---------------------------------------------------------------- servers */

/* Retried, because the server drops a client that stops during the login. */
static void connect_mysql(const struct shed_mysql_uri *uri)
{
    enum { LOGINS = 5 };

    for (unsigned i = 0; i < LOGINS; i++) {
        if (mysql != NULL)
            mysql_close(mysql);
        mysql = mysql_init(NULL);
        if (mysql_real_connect(mysql, uri->host, uri->user, uri->password,
                               setup->database, uri->port, uri->socket,
                               0) != NULL)
            return;
    }
    give_up("MySQL", mysql_error(mysql));
}

static void connect_all(void)
{
    struct shed_client *clients[TORTURE_SERVERS_MAX];
    struct shed_client_options o = bare_client();
    struct shed_lock_options lo = setup->options;
    struct shed_mysql_uri uri;
    struct shed_error err;

    o.command_timeout_ms = 300;
    for (size_t i = 0; i < setup->servers; i++)
        if (shed_client_open(setup->uris[i], &o, &clients[i], &err) != SHED_OK)
            give_up("a client", err.reason);
    /* with on_lost it hears of the end of a lease, and does not release after
     * that */
    lo.on_lost = lo.watchdog_ms != 0 ? on_lost : NULL;
    if (shed_lock_open_quorum(clients, setup->servers,
                              shed_str(TORTURE_LOCK_NAME), &lo, &lock,
                              &err) != SHED_OK)
        give_up("the lock", err.reason);
    if (shed_mysql_uri_parse(setup->mysql_uri, &uri, &err) != SHED_OK)
        give_up("the MySQL URI", err.reason);
    connect_mysql(&uri);
    shed_mysql_uri_fini(&uri);
}

/* ----------------------------------------------------------------- writing */

static void say(const char *sql)
{
    if (mysql_query(mysql, sql) != 0)
        give_up(sql, mysql_error(mysql));
}

/* The protected write: who entered when, into the row that all of them write,
 * and a line of its history. */
static enum shed_code write_in_transaction(const struct shed_fence *fence,
                                           uint64_t entered_us,
                                           uint64_t *newest)
{
    char sql[160];
    struct shed_error err;
    enum shed_code code = SHED_OK;

    say("BEGIN");
    if (fence->number != 0)
        code = shed_mysql_fence(mysql, shed_str(TORTURE_LOCK_NAME), fence,
                                newest, &err);
    if (code == SHED_OK) {
        (void)snprintf(sql, sizeof(sql),
                       "UPDATE torture_row SET contender = %u, entered_us = "
                       "%llu",
                       setup->number, (unsigned long long)entered_us);
        say(sql);
        (void)snprintf(sql, sizeof(sql),
                       "INSERT INTO torture_log (contender, entered_us) "
                       "VALUES (%u, %llu)",
                       setup->number, (unsigned long long)entered_us);
        say(sql);
    } else if (code != SHED_ELOST && code != SHED_ETIMEDOUT) {
        give_up("the guard", err.reason);
    }
    say(code == SHED_OK ? "COMMIT" : "ROLLBACK");
    return code;
}

/* Returns: the newest number if the write was refused, else 0. */
static uint64_t write_guarded(const struct shed_fence *fence,
                              uint64_t entered_us)
{
    uint64_t newest = 0;
    enum shed_code code = SHED_ETIMEDOUT;

    for (unsigned i = 0; i < ATTEMPTS && code == SHED_ETIMEDOUT; i++)
        code = write_in_transaction(fence, entered_us, &newest);
    note(code == SHED_OK ? TORTURE_WRITE : TORTURE_REFUSED, fence->number);
    return code == SHED_OK ? 0 : newest;
}

/* ---------------------------------------------------------------- the life */

/* Without a watchdog, a slow database can also make a lease end. */
static void note_stay(uint64_t entered_us)
{
    enum { US_PER_MS = 1000 };

    if (setup->options.watchdog_ms == 0)
        pulse_note(&setup->shared->pulses[setup->number],
                   (shed_now_us() - entered_us) / US_PER_MS);
}

/* Stay inside while the fault happens to this victim, and write once more
 * afterwards. */
static void stay(const struct shed_fence *fence, uint64_t entered_us)
{
    struct torture_shared *s = setup->shared;

    while (atomic_load(&s->shall_stay) && !atomic_load(&s->is_over))
        usleep(NAP_US);
    (void)write_guarded(fence, entered_us);
}

static bool is_victim(void)
{
    unsigned nobody = TORTURE_NOBODY;

    return atomic_load(&setup->shared->shall_stay) &&
           atomic_compare_exchange_strong(&setup->shared->victim, &nobody,
                                          setup->number);
}

static void ignore(enum shed_code code)
{
    (void)code;
}

static void visit(void)
{
    struct torture_shared *s = setup->shared;
    struct shed_fence fence = {0};
    uint64_t entered_us, newest;
    unsigned me = setup->number;

    ignore(shed_lock_fence(lock, &fence,
                           NULL)); /* the first three algorithms have none */
    entered_us = shed_now_us();
    note(TORTURE_ENTER, fence.number);
    atomic_fetch_add(&s->entries, 1);
    atomic_store(&s->inside, me);
    newest = write_guarded(&fence, entered_us);
    atomic_fetch_add(&s->writes, 1);
    if (is_victim()) {
        stay(&fence, entered_us);
    } else {
        usleep(WORK_US);
        note_stay(entered_us);
    }
    (void)atomic_compare_exchange_strong(&s->inside, &me, TORTURE_NOBODY);
    note(TORTURE_EXIT, fence.number);
    ignore(shed_lock_release(lock, NULL)); /* it may be lost */
    /* refused although it holds the lock: Redis has lost its numbers */
    if (newest > fence.number)
        ignore(shed_lock_advance(lock, newest, NULL));
}

static _Noreturn void live(void)
{
    pulse_start(&setup->shared->pulses[setup->number]);
    connect_all();
    while (!atomic_load(&setup->shared->is_over))
        if (shed_lock_acquire(lock, WAIT_MS, NULL) == SHED_OK)
            visit();
    _exit(EXIT_SUCCESS);
}

pid_t torture_contender_start(const struct torture_setup *p)
{
    pid_t pid = fork();

    if (pid != 0)
        return pid;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* however the test ends */
    setup = p;
    live();
}
