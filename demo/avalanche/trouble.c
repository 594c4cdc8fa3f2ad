/*
 * The scenarios in which a server fails while the fleet reads: it is stopped,
 * made slow, or killed. Where it is Redis, a thread of the first process
 * changes prices meanwhile, and invalidates each once. After that no reader in
 * this process may get an older price, and in the others none after Redis has
 * been told.
 */
#include <err.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/redis.h"
#include "runner.h"

#define SECOND_US 1000000
#define SLEEP_US 10000
#define DELIVERY_US 15000000 /* at most */
#define WRITE_US 20000       /* between two changes of the writer */
#define SLOW_FACTOR 10
#define RESTART_MS 500 /* until the killed server starts again */
#define RECONNECTS 200 /* after that */
/* What the writer sets is above all prices of sql/items.sql, and of an earlier
 * writer: it makes fewer than this in a second. */
#define PRICE_BASE 10000000
#define PRICES_PER_S 100

/* ------------------------------------------------------------- the writer */

/* Change a price, and invalidate it once. What Redis could not be told counts
 * in this process at once, as one reads one's own writes, and in the others
 * when it has been delivered. */
static void write_price(struct runner *c, void *thread, struct database *db,
                        uint64_t price)
{
    struct record *r = c->record;
    uint64_t id = 1 + price % (PRICES - 1);
    char why[160];
    bool is_told;

    if (!database_set_price(db, id, price))
        return;
    is_told = c->strategy->invalidate(thread, id, why, sizeof(why));
    atomic_store(&r->own_price[id], price);
    if (is_told)
        atomic_store(&r->price[id], price);
}

static void follow_delivery(struct runner *c, void *thread)
{
    const struct strategy *s = c->strategy;
    struct record *r = c->record;

    if (s->has_told_all == NULL)
        return;
    atomic_store(&r->is_untold, !s->has_told_all(thread));
    if (atomic_load(&r->is_untold))
        return;
    for (size_t id = 0; id < PRICES; id++) {
        uint64_t price = atomic_load(&r->own_price[id]);
        if (atomic_exchange(&r->price[id], price) != price)
            atomic_fetch_add(&r->told_late, 1);
    }
}

static uint64_t first_price(void)
{
    return PRICE_BASE + demo_now_us() / SECOND_US * PRICES_PER_S;
}

/* A thread of a process that reads, too. */
static void write_prices(void *context, void *process)
{
    struct runner *c = context;
    char why[160] = "";
    struct database *db = database_open(why, sizeof(why));
    void *thread =
        db != NULL ? c->strategy->enter(process, why, sizeof(why)) : NULL;

    if (thread == NULL)
        record_error(c->record, why);
    for (uint64_t price = first_price();
         thread != NULL && !atomic_load(&c->record->is_over); price++) {
        write_price(c, thread, db, price);
        demo_nap(WRITE_US);
        follow_delivery(c, thread);
    }
    if (thread != NULL)
        c->strategy->leave(thread);
    database_close(db);
}

/* ----------------------------------------------------------- the troubles */

/* A shell that lets a stopped server go on when this process has ended, however
 * it ends: then its input does. */
static FILE *guard_server(uint64_t server)
{
    char command[80];
    FILE *guard;

    (void)snprintf(command, sizeof(command),
                   "trap '' INT TERM; read line; kill -CONT %llu",
                   (unsigned long long)server);
    guard = popen(command, "w");
    if (guard == NULL)
        err(EXIT_FAILURE, "a shell");
    return guard;
}

/* In short sleeps, which tell how late this machine ends one. */
static void pass_second(const struct runner *c)
{
    for (unsigned i = 0; i < SECOND_US / SLEEP_US; i++)
        record_sleep(c->record, SLEEP_US);
}

static void pass_seconds(const struct runner *c, const char *what, uint64_t n)
{
    for (uint64_t s = 0; s < n; s++) {
        runner_progress(c, what, s, n);
        pass_second(c);
    }
}

/* Stop a server for as long as the options say: it keeps its connections, and
 * answers nobody. */
static void stop_server(struct runner *c, uint64_t server, const char *stopped,
                        const char *back)
{
    FILE *guard = guard_server(server);

    if (kill((pid_t)server, SIGSTOP) != 0)
        runner_die("the server's process", "cannot be stopped");
    runner_mark(c, stopped);
    pass_seconds(c, "stopped, second", c->options->down_seconds);
    (void)pclose(guard);
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
        redisCommand(c->node[0], "DEBUG CRASH-AND-RECOVER %d", RESTART_MS);

    if (reply != NULL)
        runner_die("Redis", reply->type == REDIS_REPLY_ERROR
                                ? reply->str
                                : "it cannot be restarted");
    runner_mark(c, "Redis is killed");
    redisFree(c->node[0]);
    c->node[0] = NULL;
    for (unsigned i = 0; c->node[0] == NULL; i++) {
        demo_nap(SECOND_US / 20);
        c->node[0] = demo_redis_open(c->options->redis_uri,
                                     DEMO_REDIS_PATIENT_MS, why, sizeof(why));
        if (c->node[0] == NULL && i == RECONNECTS)
            runner_die("Redis", why);
    }
    runner_mark(c, "Redis is back, empty");
    pass_seconds(c, "second", c->options->down_seconds);
}

/* -------------------------------------------------------------- the frame */

/* When a client connects again is up to its pauses between tries. */
static void await_delivery(struct runner *c)
{
    for (unsigned i = 0; i < DELIVERY_US / SLEEP_US; i++) {
        if (!atomic_load(&c->record->is_untold))
            return;
        record_sleep(c->record, SLEEP_US);
    }
}

/* A row that was invalidated is not there to be given out, so nobody writes
 * where the database is the one that fails. */
void trouble_run(struct runner *c)
{
    static const struct {
        void (*make)(struct runner *c);
        bool has_writer;
    } troubles[SCENARIOS] = {[REDIS_DOWN] = {stop_redis, true},
                             [DB_DOWN] = {stop_database, false},
                             [SLOW_DB] = {slow_database, false},
                             [RESTART] = {restart_redis, true}};

    if (troubles[c->scenario].has_writer) {
        c->fleet.aside = write_prices;
        c->fleet.aside_context = c;
    }
    runner_begin(c, pick_zipf, THINK_US / 4);
    pass_second(c);
    troubles[c->scenario].make(c);
    await_delivery(c);
    pass_second(c);
    runner_end(c);
}
