/*
 * The scenarios in which a server fails while the fleet reads: it is stopped,
 * made slow, or killed. Where it is Redis, a writer changes prices meanwhile,
 * and invalidates them, again and again until it succeeds; no reader may get an
 * older price after that.
 */
#include <err.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/redis.h"
#include "runner.h"

#define SECOND_US 1000000
#define WRITE_US 20000 /* between two changes of the writer */
#define SLOW_FACTOR 10
#define RESTART_MS 500 /* until the killed server starts again */
#define RECONNECTS 200 /* after that */
/* What the writer sets is above all prices of sql/items.sql, and of an earlier
 * writer: it makes fewer than this in a second. */
#define PRICE_BASE 10000000
#define PRICES_PER_S 100

/* ------------------------------------------------------------- the writer */

static bool write_price(struct runner *c, void *thread, struct database *db,
                        uint64_t price)
{
    struct record *r = c->record;
    uint64_t id = 1 + price % (PRICES - 1);
    char why[160];

    if (!database_set_price(db, id, price))
        return false;
    while (!c->strategy->invalidate(thread, id, why, sizeof(why))) {
        if (atomic_load(&r->is_over))
            return false;
        runner_nap(WRITE_US);
    }
    atomic_store(&r->price[id], price);
    return true;
}

static uint64_t first_price(void)
{
    return PRICE_BASE + demo_now_us() / SECOND_US * PRICES_PER_S;
}

/* A process of its own, which dies with the runner. */
static _Noreturn void write_prices(struct runner *c, pid_t parent)
{
    const struct strategy *s = c->strategy;
    char why[160];
    struct database *db = database_open(why, sizeof(why));
    void *process = &c->fleet.settings, *thread;

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)signal(SIGINT, SIG_DFL);
    (void)signal(SIGTERM, SIG_DFL);
    if (getppid() != parent)
        _exit(EXIT_FAILURE);
    if (s->open != NULL)
        process = s->open(&c->fleet.settings, why, sizeof(why));
    thread = process != NULL ? s->enter(process, why, sizeof(why)) : NULL;
    if (thread == NULL || db == NULL) {
        record_error(c->record, why);
        _exit(EXIT_FAILURE);
    }
    for (uint64_t price = first_price(); !atomic_load(&c->record->is_over);
         price++) {
        (void)write_price(c, thread, db, price);
        runner_nap(WRITE_US);
    }
    _exit(EXIT_SUCCESS);
}

static pid_t start_writer(struct runner *c)
{
    pid_t parent = getpid(), pid;

    (void)fflush(NULL);
    pid = fork();
    if (pid == 0)
        write_prices(c, parent);
    if (pid < 0)
        err(EXIT_FAILURE, "fork");
    return pid;
}

/* ----------------------------------------------------------- the troubles */

/* A process that lets a stopped server go on when this one has ended, however
 * it ends: then the pipe is closed. */
static pid_t guard_server(pid_t server, int *end)
{
    int ends[2];
    char byte;
    pid_t pid;

    if (pipe(ends) != 0)
        err(EXIT_FAILURE, "a pipe");
    (void)fflush(NULL);
    pid = fork();
    if (pid < 0)
        err(EXIT_FAILURE, "fork");
    *end = ends[1];
    if (pid > 0) {
        (void)close(ends[0]);
        return pid;
    }
    (void)close(ends[1]);
    (void)signal(SIGINT, SIG_IGN);
    (void)signal(SIGTERM, SIG_IGN);
    (void)read(ends[0], &byte, sizeof(byte));
    (void)kill(server, SIGCONT);
    _exit(EXIT_SUCCESS);
}

static void pass_seconds(const struct runner *c, const char *what, uint64_t n)
{
    for (uint64_t s = 0; s < n; s++) {
        runner_progress(c, what, s, n);
        runner_nap(SECOND_US);
    }
}

/* Stop a server for as long as the options say: it keeps its connections, and
 * answers nobody. */
static void stop_server(struct runner *c, uint64_t server, const char *stopped,
                        const char *back)
{
    int end;
    pid_t guard = guard_server((pid_t)server, &end);

    if (kill((pid_t)server, SIGSTOP) != 0)
        runner_die("the server's process", "cannot be stopped");
    runner_mark(c, stopped);
    pass_seconds(c, "stopped, second", c->options->down_seconds);
    (void)close(end);
    (void)waitpid(guard, NULL, 0);
    runner_mark(c, back);
}

static void stop_redis(struct runner *c)
{
    stop_server(c, c->options->redis_pid, "Redis stops", "Redis is back");
}

static void stop_database(struct runner *c)
{
    stop_server(c, c->options->db_pid, "the database stops",
                "the database is back");
}

static void slow_database(struct runner *c)
{
    runner_set_capacity(c, c->options->db_capacity, c->load_ms * SLOW_FACTOR);
    runner_mark(c, "queries take ten times as long");
    pass_seconds(c, "slow, second", c->options->down_seconds);
    runner_set_capacity(c, c->options->db_capacity, c->load_ms);
    runner_mark(c, "queries are as fast as before");
}

/* The server ends at once, without an answer, and starts again empty. */
static void restart_redis(struct runner *c)
{
    char why[160];
    redisReply *reply =
        redisCommand(c->redis, "DEBUG CRASH-AND-RECOVER %d", RESTART_MS);

    if (reply != NULL)
        runner_die("Redis", reply->type == REDIS_REPLY_ERROR
                                ? reply->str
                                : "it cannot be restarted");
    runner_mark(c, "Redis is killed");
    redisFree(c->redis);
    c->redis = NULL;
    for (unsigned i = 0; c->redis == NULL; i++) {
        runner_nap(SECOND_US / 20);
        c->redis = demo_redis_open(c->options->redis_uri, why, sizeof(why));
        if (c->redis == NULL && i == RECONNECTS)
            runner_die("Redis", why);
    }
    runner_mark(c, "Redis is back, empty");
    pass_seconds(c, "second", c->options->down_seconds);
}

/* -------------------------------------------------------------- the frame */

/* A row that was invalidated is not there to be given out, so nobody writes
 * where the database is the one that fails. */
static void have_trouble(struct runner *c, bool has_writer,
                         void (*trouble)(struct runner *))
{
    pid_t writer = 0;

    runner_begin(c, pick_zipf, THINK_US / 4);
    if (has_writer)
        writer = start_writer(c);
    runner_nap(SECOND_US);
    trouble(c);
    runner_nap(SECOND_US);
    runner_end(c);
    if (writer > 0)
        (void)waitpid(writer, NULL, 0);
}

void trouble_redis_down(struct runner *c)
{
    have_trouble(c, true, stop_redis);
}

void trouble_db_down(struct runner *c)
{
    have_trouble(c, false, stop_database);
}

void trouble_slow_db(struct runner *c)
{
    have_trouble(c, false, slow_database);
}

void trouble_restart(struct runner *c)
{
    have_trouble(c, true, restart_redis);
}
