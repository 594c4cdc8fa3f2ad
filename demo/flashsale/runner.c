/*
 * The runner of a sale: it puts the item on sale, starts the processes, kills
 * some of them, and asks the database at the end. It never trusts what a
 * process says about the number sold.
 */
#include "runner.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/fleet.h"
#include "common/redis.h"

#define LOOK_US 500         /* between two looks at the sale */
#define KILL_SPREAD_US 4000 /* a kill hits any part of a transaction */
#define PATIENCE_US                                                            \
    (90 * 1000000ULL) /* if no buyer gets an answer for this long */
#define PROGRESS_US 100000

struct runner {
    const struct options *options;
    redisContext *redis;
    struct statements *db;
    /* the sale under way */
    struct sale *sale;
    struct fleet fleet;
    struct outcome *out;
    uint64_t random;
    uint64_t *kill_at; /* after this many successful buyers; ascending */
    uint64_t next_kill;
    uint64_t shown_us;
};

static void die(const char *why)
{
    (void)fprintf(stderr, "flashsale: %s\n", why);
    exit(EXIT_FAILURE); /* the children die with us */
}

struct runner *runner_create(const struct options *options)
{
    struct runner *c = calloc(1, sizeof(*c));
    char why[160] = "";

    if (c == NULL)
        die("out of memory");
    c->options = options;
    c->kill_at = calloc(options->kills + 1, sizeof(*c->kill_at));
    if (c->kill_at == NULL)
        die("out of memory");
    c->redis = demo_redis_open(options->redis_uri, why, sizeof(why));
    c->db = c->redis != NULL ? orders_open(why, sizeof(why)) : NULL;
    if (c->db == NULL)
        die(why);
    if (orders_clear(c->db) != STATEMENT_OK)
        die(statements_why(c->db));
    return c;
}

void runner_destroy(struct runner *c)
{
    statements_close(c->db);
    redisFree(c->redis);
    free(c->kill_at);
    free(c);
}

/* --------------------------------------------------------------- beginning */

/* Remove what an earlier run of the program, with another database, may have
 * left. */
static void forget_item(struct runner *c, unsigned long long item)
{
    redisReply *reply = redisCommand(
        c->redis, "DEL " SALE_PLAIN_KEY " " SALE_ENTRY_KEY " " SALE_SETNX_NAME,
        item, item, item);

    if (reply == NULL)
        die(c->redis->errstr);
    if (reply->type == REDIS_REPLY_ERROR)
        die(reply->str);
    freeReplyObject(reply);
}

static uint64_t strategy_number(const struct strategy *strategy)
{
    return strategy == &flashsale_none     ? 1
           : strategy == &flashsale_expire ? 2
                                           : 3;
}

static uint64_t most_sold(const struct options *o)
{
    return o->pieces < o->buyers ? o->pieces : o->buyers;
}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

/* Kills are due when certain numbers of buyers have bought, so they come while
 * pieces are left, whatever the speed of the host. */
static void plan_kills(struct runner *c)
{
    uint64_t kills = c->options->kills;

    for (uint64_t i = 0; i < kills; i++)
        c->kill_at[i] = fleet_random(&c->random) % most_sold(c->options);
    qsort(c->kill_at, kills, sizeof(*c->kill_at), compare);
    c->next_kill = 0;
}

static size_t pick(void *context, uint64_t *random, uint64_t *ids)
{
    struct runner *c = context;

    (void)random;
    return sale_claim(c->sale, ids) ? 1 : 0;
}

static void set_up(struct runner *c, const struct strategy *strategy,
                   uint64_t item)
{
    const struct options *o = c->options;
    struct sale_plan plan = {.mysql_uri = o->mysql_uri,
                             .item = item,
                             .pieces = o->pieces,
                             .buyers = o->buyers,
                             .twice_pct = o->twice_pct,
                             .threads = o->processes * o->threads,
                             .seed = o->seed + item};

    c->random = o->seed + item;
    plan_kills(c);
    forget_item(c, item);
    if (orders_put_on_sale(c->db, item, strategy_number(strategy), o->pieces) !=
        STATEMENT_OK)
        die(statements_why(c->db));
    c->sale = sale_create(&plan);
    c->fleet = (struct fleet){
        .strategy = strategy,
        .settings = {.redis_uri = o->redis_uri, .record = &c->sale->record},
        .processes = o->processes,
        .threads = o->threads,
        .pick = pick,
        .context = c};
}

/* ------------------------------------------------------------------- sale */

/* Kill a process. One that has ended by itself does not count. */
static void kill_one(struct runner *c)
{
    pid_t pid = c->fleet.pids[fleet_random(&c->random) % c->options->processes];
    bool was_inside;
    int status = 0;

    (void)usleep((useconds_t)(fleet_random(&c->random) % KILL_SPREAD_US));
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, &status, 0);
    was_inside = sale_bury(c->sale, pid);
    c->out->kills += WIFSIGNALED(status);
    c->out->kills_inside += was_inside;
    fleet_replace(&c->fleet, pid);
}

static void show(struct runner *c, uint64_t served)
{
    uint64_t now_us = demo_now_us();

    if (!isatty(STDERR_FILENO) || now_us - c->shown_us < PROGRESS_US)
        return;
    c->shown_us = now_us;
    (void)fprintf(stderr,
                  "\r\033[Ksale %llu, %s: %llu of %llu requests answered, "
                  "%llu have one",
                  (unsigned long long)c->sale->plan.item, c->out->strategy,
                  (unsigned long long)served,
                  (unsigned long long)c->sale->requests,
                  (unsigned long long)atomic_load(&c->sale->buyers_told));
}

static void run(struct runner *c)
{
    struct record *record = &c->sale->record;
    uint64_t served = 0, moved_us = demo_now_us(), now;

    fleet_start(&c->fleet);
    while (served < c->sale->requests && atomic_load(&record->errors) == 0) {
        if (c->next_kill < c->options->kills &&
            atomic_load(&c->sale->buyers_told) >= c->kill_at[c->next_kill]) {
            c->next_kill++;
            kill_one(c);
        }
        (void)usleep(LOOK_US);
        now = sale_count_served(c->sale);
        if (now != served)
            moved_us = demo_now_us();
        else if (demo_now_us() - moved_us > PATIENCE_US)
            record_error(record, "the sale makes no progress");
        served = now;
        show(c, served);
    }
    atomic_store(&record->is_over, true);
    if (fleet_wait(&c->fleet) > 0)
        record_error(record, "a process had to be killed");
}

/* ------------------------------------------------------------------ the end */

static void take_proof(struct runner *c)
{
    struct outcome *o = c->out;
    double pieces = (double)c->options->pieces;
    double due = (double)most_sold(c->options);
    struct proof proof;

    if (orders_prove(c->db, c->sale, &proof) != STATEMENT_OK)
        die(statements_why(c->db));
    o->orders = (double)proof.orders;
    o->oversold = o->orders > pieces ? o->orders - pieces : 0;
    o->stock = (double)proof.stock;
    o->bought_twice = (double)(proof.orders - proof.buyers);
    o->misled = (double)proof.misled;
    o->tokens_backwards = (double)proof.backwards;
    o->is_exact = o->orders == due && o->stock == pieces - due &&
                  proof.buyers == proof.orders && proof.misled == 0 &&
                  proof.backwards == 0 && o->errors == 0;
}

static double count(const _Atomic uint64_t *counter)
{
    return (double)atomic_load(counter);
}

static void take_down(struct runner *c)
{
    struct sale *s = c->sale;
    struct outcome *o = c->out;
    uint64_t last_us = atomic_load(&s->last_order_us);

    o->most_at_once = count(&s->at_once.max_us);
    if (last_us > s->record.start_us)
        o->seconds = (double)(last_us - s->record.start_us) / 1e6;
    o->stock_queries = count(&s->loads);
    o->turned_away = count(&s->answers[ANSWER_TURNED_AWAY]);
    o->sold_out = count(&s->answers[ANSWER_SOLD_OUT]);
    o->refused = count(&s->refused);
    o->lost = count(&s->lost);
    o->errors = count(&s->record.errors);
    memcpy(o->first_error, s->record.first_error, sizeof(o->first_error));
    take_proof(c);
    if (o->seconds > 0)
        o->orders_per_second = o->orders / o->seconds;
    sale_destroy(s);
    c->sale = NULL;
}

void run_sale(struct runner *c, const struct strategy *strategy, uint64_t item,
              struct outcome *out)
{
    *out = (struct outcome){.strategy = strategy->name, .item = item};
    c->out = out;
    set_up(c, strategy, item);
    run(c);
    take_down(c);
}
