/*
 * The scenarios. The runner (this process) expires, flushes and kills; the
 * fleet reads. The runner's own commands and queries are subtracted from the
 * servers' counts.
 */
#include "runner.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/redis.h"

#define LONG_TTL_MS 600000 /* only the runner makes keys expire */
#define GAP_US 20000       /* between a hot key's return and the next kill */
#define SETTLE_US 200000
#define PATIENCE_US                                                            \
    30000000 /* how long to wait for what should have come long ago */
#define CRASH_LOAD_FACTOR 6 /* loads can be killed in the middle */
#define KEY_BYTES 64
#define EXPIRE_TRIES 200 /* looks for a load between two expiries */

#define TIMEOUT_MS 30000 /* of a call with snowshed */
/* Where a server fails, rows expire fast enough to be missed, calls have a
 * deadline that a user would bear, and there are fewer rows than the database
 * can load meanwhile. */
#define TROUBLE_TTL_MS 1000
#define TROUBLE_TIMEOUT_MS 1000
#define TROUBLE_KEYS 200
#define COMMAND_MS 1000 /* what Redis has for a reply; less where it stops */
#define TROUBLE_COMMAND_MS 200
/* With snowshed-refresh a row is loaded again at half of its time, and given
 * out for a minute after it. */
#define STALE_MS 60000
/* How long the hot row lives; without a refresh, each of its ends is waited
 * for. */
#define REFRESHED_TTL_MS 200
#define EXPIRING_TTL_MS 60

const char *const scenario_names[SCENARIOS] = {
    "breakdown",  "avalanche", "penetration", "cold",   "crash",
    "redis-down", "db-down",   "slow-db",     "restart"};

void runner_die(const char *what, const char *why)
{
    (void)fprintf(stderr, "avalanche: %s: %s\n", what, why);
    exit(EXIT_FAILURE); /* the children die with us */
}

void runner_progress(const struct runner *c, const char *what, uint64_t n,
                     uint64_t of)
{
    if (!isatty(STDERR_FILENO))
        return;
    (void)fprintf(stderr, "\r\033[K%s, %s: %s %llu of %llu",
                  scenario_names[c->scenario], c->strategy->name, what,
                  (unsigned long long)n, (unsigned long long)of);
}

/* ------------------------------------------------------------------- Redis */

/* A reply of a node, once it is seen to be good. Returns NULL if the node says
 * that another one has the key. */
static redisReply *check(struct runner *c, size_t node, redisReply *reply)
{
    if (reply == NULL)
        runner_die("Redis", c->node[node]->errstr);
    if (reply->type == REDIS_REPLY_ERROR &&
        strncmp(reply->str, "MOVED", 5) == 0 && node + 1 < c->nodes) {
        freeReplyObject(reply);
        return NULL;
    }
    c->own_commands++;
    if (reply->type == REDIS_REPLY_ERROR)
        runner_die("Redis", reply->str);
    return reply;
}

/* At the node that has the key, or the first. */
static redisReply *command(struct runner *c, const char *format, ...)
{
    redisReply *reply = NULL;

    for (size_t i = 0; reply == NULL; i++) {
        va_list args;
        va_start(args, format);
        reply = check(c, i, redisvCommand(c->node[i], format, args));
        va_end(args);
    }
    return reply;
}

static void empty_redis(struct runner *c)
{
    for (size_t i = 0; i < c->nodes; i++)
        freeReplyObject(check(c, i, redisCommand(c->node[i], "FLUSHDB")));
}

/* Connect to the nodes, each a URI between commas. */
static bool open_nodes(struct runner *c, const char *uris, char *why,
                       size_t size)
{
    char *copy = strdup(uris), *rest = copy, *uri;

    while (copy != NULL && c->nodes < NODES_MAX &&
           (uri = strtok_r(rest, ",", &rest)) != NULL) {
        c->node[c->nodes] =
            demo_redis_open(uri, DEMO_REDIS_PATIENT_MS, why, size);
        if (c->node[c->nodes] == NULL)
            break;
        c->nodes++;
    }
    free(copy);
    return why[0] == '\0' && c->nodes > 0;
}

static void key_of(const struct runner *c, uint64_t id, char key[KEY_BYTES])
{
    (void)snprintf(key, KEY_BYTES, "%s%llu%s", c->strategy->key_begin,
                   (unsigned long long)id, c->strategy->key_end);
}

static bool has_row(struct runner *c, uint64_t id)
{
    char key[KEY_BYTES];
    redisReply *reply;
    bool has;

    key_of(c, id, key);
    reply = command(c, "GET %s", key);
    has = reply->type == REDIS_REPLY_STRING &&
          c->strategy->row_offset(reply->str, reply->len) > 0;
    freeReplyObject(reply);
    return has;
}

static uint64_t redis_counter(struct runner *c, const char *name)
{
    uint64_t n = 0;

    for (size_t i = 0; i < c->nodes; i++) {
        redisReply *reply = check(c, i, redisCommand(c->node[i], "INFO stats"));
        const char *at = strstr(reply->str, name);
        n += at != NULL ? strtoull(strchr(at, ':') + 1, NULL, 10) : 0;
        freeReplyObject(reply);
    }
    return n;
}

/* ---------------------------------------------------------------- the frame */

void runner_begin(struct runner *c, fleet_pick *pick, uint64_t think_us)
{
    c->fleet.pick = pick;
    c->fleet.think_us = think_us;
    atomic_store(&c->record->is_over, false);
    fleet_start(&c->fleet);
}

void runner_end(struct runner *c)
{
    atomic_store(&c->record->is_over, true);
    if (fleet_wait(&c->fleet) > 0)
        record_error(c->record, "a backend process had to be killed");
}

void runner_set_capacity(struct runner *c, uint64_t slots, uint64_t load_ms)
{
    char why[160];

    if (!database_set_capacity(c->db, slots, load_ms, why, sizeof(why)))
        runner_die("cannot begin", why);
}

/* Fill the cache with all items, through the strategy. */
static void fill(struct runner *c)
{
    uint64_t keys = c->picks.keys;

    atomic_store(&c->record->next_in_deck, 0);
    runner_set_capacity(c, 0, 0);
    runner_begin(c, pick_deck, 0);
    while (atomic_load(&c->record->next_in_deck) < keys &&
           atomic_load(&c->record->errors) == 0)
        demo_nap(1000);
    if (fleet_wait(&c->fleet) > 0 || atomic_load(&c->record->errors) > 0)
        runner_die("filling the cache", c->record->first_error);
}

void runner_count_from_here(struct runner *c)
{
    record_reset(c->record);
    c->queries = database_queries(c->db);
    c->own_commands = 0;
    c->commands = redis_counter(c, "total_commands_processed");
    c->expired = redis_counter(c, "expired_keys");
}

/* Mark that something has just been done. */
void runner_mark(struct runner *c, const char *text)
{
    c->mark_text = text;
    if (c->marks < MARKS)
        c->mark_s[c->marks++] =
            (double)(demo_now_us() - c->record->start_us) / 1e6;
}

/* --------------------------------------------------------------- scenarios */

/* Wait until the hot row is cached and nobody queries. Returns false if that
 * does not happen, or if a call has ended with an error. */
static bool await_hot_row(struct runner *c)
{
    uint64_t deadline_us = demo_now_us() + PATIENCE_US;

    while (!has_row(c, HOT_ID) || atomic_load(&c->record->under_way) > 0) {
        if (atomic_load(&c->record->errors) > 0 || demo_now_us() > deadline_us)
            return false;
        demo_nap(1000);
    }
    return true;
}

/* Begin to read the hot key, and to count once all processes have it. */
static void begin_hot(struct runner *c)
{
    runner_begin(c, pick_hot, THINK_US);
    if (!await_hot_row(c))
        return;
    demo_nap(SETTLE_US);
    runner_count_from_here(c);
}

/* Begin to read the hot key, and to count when it has just been stored, so that
 * its next end is as far away as it can be. */
static void begin_expiring(struct runner *c)
{
    uint64_t deadline_us = demo_now_us() + PATIENCE_US;

    begin_hot(c);
    while (has_row(c, HOT_ID) && demo_now_us() < deadline_us)
        demo_nap(500);
    if (await_hot_row(c))
        runner_count_from_here(c);
}

/* How often the hot key has ended, or has been refreshed, since the counting
 * began. With plain strategies nothing else in Redis expires; with snowshed a
 * row that has ended is replaced, so rows that are loaded are what can be seen
 * meanwhile. */
static uint64_t ends_so_far(struct runner *c)
{
    if (c->strategy == &strategy_snowshed || c->strategy == &strategy_refresh)
        return atomic_load(&c->record->load_starts);
    return redis_counter(c, "expired_keys") - c->expired;
}

/* Let the hot key expire by its own time to live; with refresh it is loaded
 * before that, and what is counted is these refreshes. */
static void run_breakdown(struct runner *c)
{
    bool is_refreshed = c->strategy == &strategy_refresh;
    uint64_t last_us = demo_now_us();

    if (is_refreshed)
        begin_hot(c);
    else
        begin_expiring(c);
    while (c->events < c->options->expiries &&
           demo_now_us() - last_us < PATIENCE_US &&
           atomic_load(&c->record->errors) == 0) {
        uint64_t ends = ends_so_far(c);
        if (ends > c->events) {
            last_us = demo_now_us();
            runner_mark(c, is_refreshed
                               ? "the hot key is loaded before it expires"
                               : "the hot key expires");
        }
        c->events = ends;
        runner_progress(c, is_refreshed ? "refresh" : "expiry", ends,
                        c->options->expiries);
        demo_nap(2000);
    }
    if (is_refreshed)
        demo_nap(SETTLE_US);
    else
        (void)await_hot_row(c);
    c->events = ends_so_far(c);
    runner_end(c);
    /* a row that was stored has ended since, but for the last one, in place of
     * that from which on they are counted */
    if (c->strategy == &strategy_snowshed)
        c->events = atomic_load(&c->record->stored);
}

/* Make all items expire in the same millisecond. */
static void expire_all(struct runner *c)
{
    redisReply *reply = command(c, "TIME");
    long long at_ms = strtoll(reply->element[0]->str, NULL, 10) * 1000 +
                      strtoll(reply->element[1]->str, NULL, 10) / 1000 + 500;
    char key[KEY_BYTES];

    freeReplyObject(reply);
    for (uint64_t i = 1; i <= c->options->keys; i++) {
        key_of(c, i, key);
        freeReplyObject(command(c, "PEXPIREAT %s %lld", key, at_ms));
    }
    demo_nap(600000);
}

static void run_avalanche(struct runner *c)
{
    uint64_t keys = c->options->keys;

    c->keys = keys;
    runner_mark(c, "all items have expired");
    runner_begin(c, pick_page, 0);
    while (atomic_load(&c->record->next_in_deck) < keys &&
           atomic_load(&c->record->errors) == 0) {
        runner_progress(c, "item", atomic_load(&c->record->next_in_deck), keys);
        demo_nap(10000);
    }
    if (fleet_wait(&c->fleet) > 0)
        record_error(c->record, "a backend process had to be killed");
}

/* Let the fleet read for as long as the options say, and end. */
static void pass_seconds(struct runner *c)
{
    for (uint64_t s = 0; s < c->options->seconds; s++) {
        runner_progress(c, "second", s, c->options->seconds);
        demo_nap(1000000);
    }
    runner_end(c);
}

static void run_penetration(struct runner *c)
{
    runner_begin(c, pick_absent, THINK_US / 4);
    pass_seconds(c);
    c->keys = picks_asked(&c->picks);
}

static void run_cold(struct runner *c)
{
    runner_begin(c, pick_zipf, THINK_US / 4);
    demo_nap(1000000);
    empty_redis(c);
    runner_mark(c, "Redis is emptied");
    pass_seconds(c);
}

/* Stop the process if it is loading, so that it still is when it is killed. A
 * load while the row exists does not count: with plain locks, a process that
 * missed the row before it was stored can get the lock afterwards, and nobody
 * waits for that load. */
static bool stop_loader(struct runner *c, pid_t pid)
{
    int status;

    if (kill(pid, SIGSTOP) != 0 || waitpid(pid, &status, WUNTRACED) != pid)
        runner_die("a backend process", "cannot be stopped");
    if (atomic_load(&c->record->loading_pid) == (int32_t)pid &&
        !has_row(c, HOT_ID))
        return true;
    (void)kill(pid, SIGCONT);
    return false;
}

/* Find a process in the middle of a load, and keep it there; 0 on an error.
 * Without protection there are many, and it does not matter whether this one is
 * still loading. */
static pid_t catch_loader(struct runner *c, const char *key, uint64_t load_us)
{
    struct record *r = c->record;
    pid_t pid = 0;

    do {
        /* several times if necessary: a SET that was under way restores the
         * key */
        for (uint64_t tries = 0;
             (pid = (pid_t)atomic_load(&r->loading_pid)) == 0; tries++) {
            if (atomic_load(&r->errors) > 0)
                return 0;
            if (tries % EXPIRE_TRIES == 0)
                freeReplyObject(command(c, "PEXPIRE %s 1", key));
            demo_nap(500);
        }
        demo_nap(load_us / 2);
        /* where all is slow the nap was longer than the load */
    } while (c->strategy != &strategy_none && !stop_loader(c, pid));
    return pid;
}

/* Kill the loading process in the middle of its load. Returns when the next
 * load began, in ms after the kill; negative if none did. Without protection
 * all load at once, and there is no next load to wait for. */
static double kill_loader(struct runner *c)
{
    struct record *r = c->record;
    uint64_t load_us = c->load_ms * 1000, killed_us;
    char key[KEY_BYTES];
    bool was_loading;
    int32_t dead;
    pid_t pid;

    key_of(c, HOT_ID, key);
    if (!await_hot_row(c))
        return -1;
    demo_nap(GAP_US); /* let who waited for it have it */
    pid = catch_loader(c, key, load_us);
    if (pid == 0)
        return -1;
    killed_us = demo_now_us();
    was_loading = atomic_load(&r->loading_pid) == (int32_t)pid;
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, NULL, 0);
    runner_mark(c, "the loading process is killed");
    /* A killed process does not report its end. By now a successor may have
     * begun, so only what the dead one counts for is taken away. */
    dead = (int32_t)pid;
    if (was_loading)
        atomic_fetch_sub(&r->under_way, 1);
    (void)atomic_compare_exchange_strong(&r->loading_pid, &dead, 0);
    while (atomic_load(&r->last_load_start_us) <= killed_us &&
           demo_now_us() - killed_us < PATIENCE_US &&
           c->strategy != &strategy_none)
        demo_nap(500);
    fleet_replace(&c->fleet, pid);
    if (atomic_load(&r->last_load_start_us) <= killed_us)
        return -1;
    return (double)(atomic_load(&r->last_load_start_us) - killed_us) / 1000;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void run_crash(struct runner *c)
{
    /* a lock that has to expire takes its ten seconds: once is enough */
    uint64_t kills =
        c->strategy == &strategy_snowshed ? c->options->crashes : 1;
    double *ms = calloc(kills, sizeof(*ms));

    if (ms == NULL)
        runner_die("memory", "is out");
    begin_hot(c);
    for (uint64_t i = 0; i < kills; i++) {
        runner_progress(c, "kill", i, kills);
        ms[i] = kill_loader(c);
        if (ms[i] < 0 && c->strategy != &strategy_none)
            record_error(c->record, "no load followed the kill");
        c->events++;
    }
    /* those that wait for the last load are counted, too; without protection
     * nobody waits, and the dead process had many queries under way */
    if (c->strategy != &strategy_none && await_hot_row(c))
        demo_nap(SETTLE_US);
    runner_end(c);
    qsort(ms, kills, sizeof(*ms), compare);
    c->recovery_p50_ms = ms[kills / 2];
    c->recovery_max_ms = ms[kills - 1];
    free(ms);
}

/* ---------------------------------------------------------------- the run */

static void set_up(struct runner *c, uint64_t keys)
{
    const struct options *o = c->options;
    char why[160] = "";

    c->db =
        open_nodes(c, o->redis_nodes != NULL ? o->redis_nodes : o->redis_uri,
                   why, sizeof(why))
            ? database_open(why, sizeof(why))
            : NULL;
    if (c->db == NULL)
        runner_die("cannot begin", why);
    c->record = record_create();
    record_reset(c->record);
    c->fleet = (struct fleet){.strategy = c->strategy,
                              .settings = {.redis_uri = o->redis_uri,
                                           .record = c->record,
                                           .ttl_ms = LONG_TTL_MS,
                                           .negative_ttl_ms = LONG_TTL_MS,
                                           .lease_ms = 10000,
                                           .max_loads = o->max_loads,
                                           .timeout_ms = TIMEOUT_MS,
                                           .command_timeout_ms = COMMAND_MS},
                              .processes = o->processes,
                              .threads = o->threads,
                              .seed = o->seed,
                              .context = &c->picks};
    c->picks =
        (struct picks){.record = c->record, .keys = keys, .page = o->page};
    if (!picks_init(&c->picks, o->seed, o->zipf))
        runner_die("memory", "is out");
    empty_redis(c);
}

/* How long rows live. */
static void set_policy(struct runner *c)
{
    struct settings *s = &c->fleet.settings;
    enum scenario scenario = c->scenario;

    if (scenario >= REDIS_DOWN)
        s->ttl_ms = s->negative_ttl_ms = TROUBLE_TTL_MS;
    else if (c->strategy == &strategy_refresh)
        s->ttl_ms = REFRESHED_TTL_MS;
    else if (scenario == BREAKDOWN)
        s->ttl_ms = EXPIRING_TTL_MS;
    s->stale_ms = STALE_MS;
}

/* Not before the cache is full: that takes as long as it takes. */
static void set_deadlines(struct settings *s, enum scenario scenario)
{
    s->timeout_ms = TROUBLE_TIMEOUT_MS;
    if (scenario == REDIS_DOWN || scenario == RESTART)
        s->command_timeout_ms = TROUBLE_COMMAND_MS;
}

bool scenario_run(const struct options *options, enum scenario scenario,
                  const struct strategy *strategy, FILE *out)
{
    static void (*const run[REDIS_DOWN])(struct runner *) = {
        run_breakdown, run_avalanche, run_penetration, run_cold, run_crash};
    static struct runner c; /* as long as the program: nothing is freed */
    bool is_avalanche = scenario == AVALANCHE;
    bool is_crash = scenario == CRASH;

    c.options = options;
    c.strategy = strategy;
    c.scenario = scenario;
    c.load_ms = options->load_ms * (is_crash ? CRASH_LOAD_FACTOR : 1);
    set_up(&c, scenario >= REDIS_DOWN && options->keys > TROUBLE_KEYS
                   ? TROUBLE_KEYS
                   : options->keys);
    set_policy(&c);
    if (is_avalanche || scenario == COLD || scenario >= REDIS_DOWN)
        fill(&c);
    if (is_avalanche)
        expire_all(&c);
    if (scenario >= REDIS_DOWN)
        set_deadlines(&c.fleet.settings, scenario);
    c.fleet.has_hot_key = is_crash || scenario == BREAKDOWN;
    runner_set_capacity(&c, options->db_capacity, c.load_ms);
    runner_count_from_here(&c);
    if (scenario >= REDIS_DOWN)
        trouble_run(&c);
    else
        run[scenario](&c);
    c.end_us = demo_now_us();
    /* a server has not counted the question itself */
    c.commands += c.own_commands;
    c.commands = redis_counter(&c, "total_commands_processed") - c.commands;
    c.queries = database_queries(c.db) - c.queries;
    return outcome_write(out, &c);
}
