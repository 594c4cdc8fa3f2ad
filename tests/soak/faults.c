#include "soak/faults.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "soak/failovers.h"

enum { STOP_MAX_MS = 700 };

/* Of those that do not live all the time. While the servers are left alone only
 * one dies: a breaker of another that does not close any longer would be
 * forgotten with its process. */
static unsigned draw_mortal(struct soak_stage *stage)
{
    unsigned number =
        (unsigned)soak_stage_draw(stage, SOAK_WORKERS - SOAK_LASTING);

    return SOAK_LASTING + (stage->is_calm ? 0 : number);
}

static void kill_worker(struct soak_stage *stage)
{
    unsigned number = draw_mortal(stage);

    kill(stage->workers[number], SIGKILL);
    waitpid(stage->workers[number], NULL, 0);
    soak_stage_start_worker(stage, number);
}

static void stop_worker(struct soak_stage *stage)
{
    pid_t pid = stage->workers[soak_stage_draw(stage, SOAK_WORKERS)];

    kill(pid, SIGSTOP);
    soak_sleep_ms(soak_stage_draw(stage, STOP_MAX_MS));
    kill(pid, SIGCONT);
}

/* One that has data, and is no replica. */
static struct server *draw_server(struct soak_stage *stage)
{
    return &stage->place.server[soak_stage_draw_primary(stage)];
}

/* Too shortly for it to be replaced. */
static void stop_redis(struct soak_stage *stage)
{
    struct server *redis = draw_server(stage);

    server_freeze(redis);
    soak_sleep_ms(soak_stage_draw(stage, STOP_MAX_MS));
    server_thaw(redis);
}

static void restart_redis_empty(struct soak_stage *stage)
{
    char path[SERVER_PATH_BYTES];

    snprintf(path, sizeof(path), "%s/dump.rdb", stage->single.dir);
    server_kill(&stage->single);
    unlink(path);
    soak_sleep_ms(soak_stage_draw(stage, STOP_MAX_MS));
    server_start_again(&stage->single);
}

/* Nothing is written between the snapshot and the end, so nothing is lost. */
static void restart_redis(struct soak_stage *stage)
{
    server_do(&stage->single, "CLIENT PAUSE 60000 WRITE");
    server_do(&stage->single, "SAVE");
    server_kill(&stage->single);
    soak_sleep_ms(soak_stage_draw(stage, STOP_MAX_MS));
    server_start_again(&stage->single);
}

static void set_log(struct soak_stage *stage, const char *value)
{
    char is_writing[8];

    server_do(&stage->single, "CONFIG SET appendonly %s", value);
    do {
        soak_sleep_ms(1);
        server_info(&stage->single, "aof_rewrite_in_progress", is_writing,
                    sizeof(is_writing));
    } while (strcmp(is_writing, "0") != 0);
}

/* In the middle of its work: each write that it has confirmed is in the log,
 * because without an fsync it writes before it answers. */
static void kill_redis_with_log(struct soak_stage *stage)
{
    server_do(&stage->single, "CONFIG SET appendfsync no");
    set_log(stage, "yes");
    soak_sleep_ms(soak_stage_draw(stage, STOP_MAX_MS));
    server_kill(&stage->single);
    stage->single.options[0] = "--appendonly";
    stage->single.options[1] = "yes";
    server_start_again(&stage->single);
    set_log(stage, "no");
    stage->single.options[0] = NULL;
}

static void cut_commands(struct soak_stage *stage)
{
    server_int(draw_server(stage), "CLIENT KILL TYPE normal");
}

static void cut_pushes(struct soak_stage *stage)
{
    server_int(draw_server(stage), "CLIENT KILL TYPE pubsub");
}

static void empty_redis(struct soak_stage *stage)
{
    server_do(draw_server(stage), "FLUSHALL");
}

static void forget_scripts(struct soak_stage *stage)
{
    server_do(draw_server(stage), "SCRIPT FLUSH");
}

static void fill_redis(struct soak_stage *stage)
{
    const struct server *redis = draw_server(stage);

    server_do(redis, "CONFIG SET maxmemory 1");
    soak_sleep_ms(soak_stage_draw(stage, STOP_MAX_MS));
    server_do(redis, "CONFIG SET maxmemory 0");
}

/* Whichever keys it likes, leases and locks among them: but not the log of
 * tags. With that, a process that is started later could not know what was
 * invalidated. */
static void make_redis_evict(struct soak_stage *stage)
{
    const struct server *redis = draw_server(stage);
    char used[24];

    server_info(redis, "used_memory", used, sizeof(used));
    server_do(redis, "CONFIG SET maxmemory-policy volatile-random");
    server_do(redis, "CONFIG SET maxmemory %s", used);
    soak_sleep_ms(soak_stage_draw(stage, STOP_MAX_MS));
    server_do(redis, "CONFIG SET maxmemory 0");
    server_do(redis, "CONFIG SET maxmemory-policy noeviction");
}

static void delete_a_key(struct soak_stage *stage)
{
    unsigned key = (unsigned)soak_stage_draw(stage, SOAK_SHORT_KEYS);
    struct soak_key *k = &stage->history->key[key];
    unsigned version = atomic_load(&k->committed);

    if (soak_delete(&stage->place, key))
        soak_raise(&k->told, version);
}

/* KILL QUERY or CONNECTION of all that work on the table now. */
static void kill_queries(struct soak_stage *stage, const char *what)
{
    unsigned long id = ask_sql(
        &stage->site,
        "SELECT COALESCE(MIN(id), 0) FROM information_schema.processlist "
        "WHERE command IN ('Query', 'Execute') AND info LIKE '%%item%%' "
        "AND id <> CONNECTION_ID()");
    char sql[64];

    if (id == 0)
        return;
    snprintf(sql, sizeof(sql), "KILL %s %lu", what, id);
    /* it may have ended by itself */
    (void)mysql_query(stage->site.admin, sql);
}

static void kill_a_query(struct soak_stage *stage)
{
    kill_queries(stage, "QUERY");
}

static void kill_a_connection(struct soak_stage *stage)
{
    kill_queries(stage, "CONNECTION");
}

static void block_the_table(struct soak_stage *stage)
{
    run_sql(&stage->site, "LOCK TABLES item WRITE");
    soak_sleep_ms(soak_stage_draw(stage, STOP_MAX_MS));
    run_sql(&stage->site, "UNLOCK TABLES");
}

static void stop_database(struct soak_stage *stage)
{
    own_database_signal(&stage->database, SIGSTOP);
    soak_sleep_ms(soak_stage_draw(stage, STOP_MAX_MS));
    own_database_signal(&stage->database, SIGCONT);
}

/* What it has confirmed is with the kernel at least. */
static void restart_database(struct soak_stage *stage)
{
    own_database_signal(&stage->database, SIGKILL);
    soak_sleep_ms(soak_stage_draw(stage, STOP_MAX_MS));
    own_database_start(&stage->database);
    reopen_site(&stage->site);
}

enum {
    EVERYWHERE = SOAK_SINGLE | SOAK_SENTINEL | SOAK_CLUSTER,
    REPLICATED = SOAK_SENTINEL | SOAK_CLUSTER
};

static const struct fault {
    const char *name;
    void (*make)(struct soak_stage *stage);
    unsigned topologies; /* on which it is made */
    unsigned weight;
    bool is_felt;   /* calls may fail because of it */
    bool is_unseen; /* loads may be alive that Redis does not count: it forgets
                       them, or a process begins one later than SLOT_MS */
} faults[] = {
    {"kill a process", kill_worker, EVERYWHERE, 3, false, false},
    {"stop a process", stop_worker, EVERYWHERE, 4, true, true},
    {"stop Redis", stop_redis, EVERYWHERE, 2, true, false},
    {"restart Redis, empty", restart_redis_empty, SOAK_SINGLE, 1, true, true},
    {"restart Redis, with its data", restart_redis, SOAK_SINGLE, 1, true,
     false},
    {"kill Redis, which has a log", kill_redis_with_log, SOAK_SINGLE, 1, true,
     false},
    {"kill a primary", soak_kill_primary, REPLICATED, 3, true, true},
    {"stop a primary", soak_stop_primary, REPLICATED, 2, true, true},
    {"SENTINEL FAILOVER", soak_fail_over, SOAK_SENTINEL, 3, true, true},
    {"CLUSTER FAILOVER", soak_fail_over, SOAK_CLUSTER, 3, true, true},
    {"CLUSTER FAILOVER FORCE", soak_force, SOAK_CLUSTER, 2, true, true},
    {"CLUSTER FAILOVER TAKEOVER", soak_take_over, SOAK_CLUSTER, 2, true, true},
    {"move a slot", soak_move_slot, SOAK_CLUSTER, 5, true, true},
    {"cut the connections", cut_commands, EVERYWHERE, 2, true, false},
    {"cut the pushes", cut_pushes, EVERYWHERE, 2, false, false},
    {"FLUSHALL", empty_redis, EVERYWHERE, 2, false, true},
    {"SCRIPT FLUSH", forget_scripts, EVERYWHERE, 2, false, false},
    {"Redis out of memory", fill_redis, EVERYWHERE, 1, true, false},
    {"Redis evicts", make_redis_evict, EVERYWHERE, 1, true, true},
    {"DEL of an entry", delete_a_key, EVERYWHERE, 4, false, false},
    {"KILL QUERY", kill_a_query, EVERYWHERE, 3, true, false},
    {"KILL CONNECTION", kill_a_connection, EVERYWHERE, 2, true, false},
    {"LOCK TABLES", block_the_table, EVERYWHERE, 1, true, false},
    {"stop MariaDB", stop_database, EVERYWHERE, 1, true, false},
    {"restart MariaDB", restart_database, EVERYWHERE, 1, true, false},
};

enum { FAULTS = sizeof(faults) / sizeof(*faults) };

_Static_assert((int)FAULTS < (int)SOAK_FAULTS_MAX, "each fault is counted");

const unsigned soak_fault_count = FAULTS;

static bool is_on(const struct soak_stage *stage, unsigned fault)
{
    return (faults[fault].topologies & stage->topology) != 0;
}

const char *soak_fault_name(const struct soak_stage *stage, unsigned fault)
{
    if (fault == FAULTS)
        return "none yet";
    return is_on(stage, fault) ? faults[fault].name : NULL;
}

/* How often a fault is drawn, compared with others. */
static unsigned weight_of(const struct soak_stage *stage, unsigned fault)
{
    bool is_left_out = stage->is_calm && faults[fault].is_felt;

    return is_left_out || !is_on(stage, fault) ? 0 : faults[fault].weight;
}

static unsigned draw_fault(struct soak_stage *stage)
{
    unsigned all = 0, choice, i;

    for (i = 0; i < FAULTS; i++)
        all += weight_of(stage, i);
    choice = (unsigned)soak_stage_draw(stage, all);
    for (i = 0; choice >= weight_of(stage, i); i++)
        choice -= weight_of(stage, i);
    return i;
}

unsigned soak_make_fault(struct soak_stage *stage)
{
    struct soak_history *history = stage->history;
    unsigned i = draw_fault(stage), trouble = 0;

    if (faults[i].is_felt) {
        soak_trouble(&history->account, i);
        trouble = soak_trouble_begin(&history->troubles, shed_now_ms());
    }
    if (faults[i].is_unseen)
        soak_fleet_trouble(&history->fleet);
    faults[i].make(stage);
    if (faults[i].is_unseen)
        soak_fleet_calm(&history->fleet, shed_now_ms());
    if (faults[i].is_felt) {
        soak_calm(&history->account, shed_now_ms());
        soak_trouble_end(&history->troubles, trouble, shed_now_ms());
    }
    return i;
}
