/*
 * Random faults under load, for as long as asked: processes read, write and
 * lock on a real Redis and a real MariaDB, while this one kills, stops, cuts,
 * empties and blocks what it can reach. Every value that is read is judged by
 * the history of the database (history.h). Now and then the servers are left
 * alone for a while: then no call may fail (account.h). At the end: a table,
 * and JSON on request.
 *
 * usage: soak SECONDS [SEED [JSON]]
 *
 * It starts a Redis and a MariaDB of its own. Its own choices follow the seed;
 * what the processes do at the same moment does not.
 */
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "soak/report.h"
#include "soak/worker.h"
#include "support/mysql_testing.h"
#include "support/own_mariadb.h"
#include "support/random.h"
#include "support/server.h"

enum {
    BEGIN_MS = 1500, /* at the beginning, without faults */
    FAULT_EVERY_MS = 250,
    TROUBLE_MS = 15000, /* then the servers are left alone: */
    /* Calls may still fail, because a source that could not connect to its
     * database waits for up to 5 s, and an open breaker for up to 1 s, */
    PAUSES_MS = 6000,
    SETTLE_MS = 1500, /* and because what follows takes a moment. */
    WATCH_MS = 2000,  /* Then none may fail. */
    /* Beyond its deadline: a virtual machine was seen to stop for 28 s. */
    LATE_MS = 30000,
    /* A pause that is this much longer says that this machine has stopped, or
     * is busy with something else. */
    STALL_MS = 250,
    STOP_MAX_MS = 700,
    TELL_EVERY_MS = 10000,
    SLACK_MS = 4000,
    /* Beyond SOAK_HEARD_MS: a process may be stopped when it is told. */
    SLACK_HEARD_MS = 500,
    /* A load begins this late after it was given a slot, and a process that
     * goes on without slots tells it this late. */
    SLOT_MS = 200,
    EVENT_MS = 200,
    /* How much more may be open, or in use, than early on: connections and
     * threads come and go. */
    SLACK_DESCRIPTORS = 24,
    SLACK_THREADS = 8,
    SLACK_KIB = 8192,
    SLACK_ALLOCATED_KIB = 512,
    MS_PER_S = 1000
};

/* A sanitizer keeps what was freed. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define IS_MEMORY_JUDGED false
#else
#define IS_MEMORY_JUDGED true
#endif

static struct server server = {.options = {NULL}};
static struct site site;
static struct soak_history *history;
static struct soak_place place;
static pid_t workers[SOAK_WORKERS];
static struct own_mariadb database;
static uint64_t seed;
/* While the servers are left alone the second one is used, so that the order of
 * all other faults does not depend on how long that was. */
static uint64_t random_states[2];
static bool is_calm;
static uint64_t generation; /* of the workers that are started */

static uint64_t draw(uint64_t below)
{
    return random_next(&random_states[is_calm]) % below;
}

static void sleep_ms(uint64_t ms)
{
    usleep((useconds_t)(ms * MS_PER_S));
}

/* --------------------------------------------------------------- workers */

static void start_worker(unsigned number)
{
    pid_t pid = fork();

    ck_assert_int_ge(pid, 0);
    if (pid == 0)
        soak_work(history, &place, number, seed + generation * 1000 + number);
    workers[number] = pid;
    generation++;
}

/* The first one lives all the time: what it holds is judged. While the servers
 * are left alone only one dies: a breaker of another that does not close any
 * longer would be forgotten with its process. */
static unsigned draw_mortal(void)
{
    unsigned number = 1 + (unsigned)draw(SOAK_WORKERS - 1);

    return is_calm ? 2 : number;
}

/* The entries of a directory in /proc of the first process. */
static unsigned long count_entries(const char *name)
{
    unsigned long count = 0;
    char path[64];
    DIR *dir;

    snprintf(path, sizeof(path), "/proc/%d/%s", (int)workers[0], name);
    dir = opendir(path);
    while (dir != NULL && readdir(dir) != NULL)
        count++;
    if (dir != NULL)
        closedir(dir);
    return count;
}

static struct soak_sample take_sample(void)
{
    struct soak_sample s = {.descriptors = count_entries("fd"),
                            .threads = count_entries("task"),
                            .allocated_kib = history->allocated / 1024};
    unsigned long pages = 0;
    char path[64];
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%d/statm", (int)workers[0]);
    file = fopen(path, "re");
    if (file != NULL && fscanf(file, "%*u %lu", &pages) == 1)
        s.kib = pages * (unsigned long)sysconf(_SC_PAGESIZE) / 1024;
    if (file != NULL)
        fclose(file);
    return s;
}

/* ---------------------------------------------------------------- faults */

static void kill_worker(void)
{
    unsigned number = draw_mortal();

    kill(workers[number], SIGKILL);
    waitpid(workers[number], NULL, 0);
    start_worker(number);
}

static void stop_worker(void)
{
    pid_t pid = workers[draw(SOAK_WORKERS)];

    kill(pid, SIGSTOP);
    sleep_ms(draw(STOP_MAX_MS));
    kill(pid, SIGCONT);
}

static void stop_redis(void)
{
    server_freeze(&server);
    sleep_ms(draw(STOP_MAX_MS));
    server_thaw(&server);
}

static void restart_redis_empty(void)
{
    char path[SERVER_PATH_BYTES];

    snprintf(path, sizeof(path), "%s/dump.rdb", server.dir);
    server_kill(&server);
    unlink(path);
    sleep_ms(draw(STOP_MAX_MS));
    server_start_again(&server);
}

/* Nothing is written between the snapshot and the end, so nothing is lost. */
static void restart_redis(void)
{
    server_do(&server, "CLIENT PAUSE 60000 WRITE");
    server_do(&server, "SAVE");
    server_kill(&server);
    sleep_ms(draw(STOP_MAX_MS));
    server_start_again(&server);
}

static void set_log(const char *value)
{
    char is_writing[8];

    server_do(&server, "CONFIG SET appendonly %s", value);
    do {
        sleep_ms(1);
        server_info(&server, "aof_rewrite_in_progress", is_writing,
                    sizeof(is_writing));
    } while (strcmp(is_writing, "0") != 0);
}

/* In the middle of its work: each write that it has confirmed is in the log,
 * because without an fsync it writes before it answers. */
static void kill_redis_with_log(void)
{
    server_do(&server, "CONFIG SET appendfsync no");
    set_log("yes");
    sleep_ms(draw(STOP_MAX_MS));
    server_kill(&server);
    server.options[0] = "--appendonly";
    server.options[1] = "yes";
    server_start_again(&server);
    set_log("no");
    server.options[0] = NULL;
}

static void cut_commands(void)
{
    server_int(&server, "CLIENT KILL TYPE normal");
}

static void cut_pushes(void)
{
    server_int(&server, "CLIENT KILL TYPE pubsub");
}

static void empty_redis(void)
{
    server_do(&server, "FLUSHALL");
}

static void forget_scripts(void)
{
    server_do(&server, "SCRIPT FLUSH");
}

static void fill_redis(void)
{
    server_do(&server, "CONFIG SET maxmemory 1");
    sleep_ms(draw(STOP_MAX_MS));
    server_do(&server, "CONFIG SET maxmemory 0");
}

/* Whichever keys it likes, leases and locks among them: but not the log of
 * groups. With that, a process that is started later could not know what was
 * invalidated. */
static void make_redis_evict(void)
{
    char used[24];

    server_info(&server, "used_memory", used, sizeof(used));
    server_do(&server, "CONFIG SET maxmemory-policy volatile-random");
    server_do(&server, "CONFIG SET maxmemory %s", used);
    sleep_ms(draw(STOP_MAX_MS));
    server_do(&server, "CONFIG SET maxmemory 0");
    server_do(&server, "CONFIG SET maxmemory-policy noeviction");
}

static void delete_a_key(void)
{
    struct soak_key *key = &history->key[draw(SOAK_SHORT_KEYS)];
    unsigned version = atomic_load(&key->committed);

    server_int(&server, "DEL soak:{%d}", (int)(key - history->key) + 1);
    soak_raise(&key->told, version);
}

/* KILL QUERY or CONNECTION of all that work on the table now. */
static void kill_queries(const char *what)
{
    unsigned long id = ask_sql(
        &site,
        "SELECT COALESCE(MIN(id), 0) FROM information_schema.processlist "
        "WHERE command IN ('Query', 'Execute') AND info LIKE '%%item%%' "
        "AND id <> CONNECTION_ID()");
    char sql[64];

    if (id == 0)
        return;
    snprintf(sql, sizeof(sql), "KILL %s %lu", what, id);
    /* it may have ended by itself */
    (void)mysql_query(site.admin, sql);
}

static void kill_a_query(void)
{
    kill_queries("QUERY");
}

static void kill_a_connection(void)
{
    kill_queries("CONNECTION");
}

static void block_the_table(void)
{
    run_sql(&site, "LOCK TABLES item WRITE");
    sleep_ms(draw(STOP_MAX_MS));
    run_sql(&site, "UNLOCK TABLES");
}

static void stop_database(void)
{
    own_mariadb_signal(&database, SIGSTOP);
    sleep_ms(draw(STOP_MAX_MS));
    own_mariadb_signal(&database, SIGCONT);
}

/* What it has confirmed is with the kernel at least. */
static void restart_database(void)
{
    own_mariadb_signal(&database, SIGKILL);
    sleep_ms(draw(STOP_MAX_MS));
    own_mariadb_start(&database);
    reopen_site(&site);
}

static const struct fault {
    const char *name;
    void (*make)(void);
    unsigned weight;
    bool is_felt;   /* calls may fail because of it */
    bool is_unseen; /* loads may be alive that Redis does not count: it forgets
                       them, or a process begins one later than SLOT_MS */
} faults[] = {
    {"kill a process", kill_worker, 3, false, false},
    {"stop a process", stop_worker, 4, true, true},
    {"stop Redis", stop_redis, 2, true, false},
    {"restart Redis, empty", restart_redis_empty, 1, true, true},
    {"restart Redis, with its data", restart_redis, 1, true, false},
    {"kill Redis, which has a log", kill_redis_with_log, 1, true, false},
    {"cut the connections", cut_commands, 2, true, false},
    {"cut the pushes", cut_pushes, 2, false, false},
    {"FLUSHALL", empty_redis, 2, false, true},
    {"SCRIPT FLUSH", forget_scripts, 2, false, false},
    {"Redis out of memory", fill_redis, 1, true, false},
    {"Redis evicts", make_redis_evict, 1, true, true},
    {"DEL of an entry", delete_a_key, 4, false, false},
    {"KILL QUERY", kill_a_query, 3, true, false},
    {"KILL CONNECTION", kill_a_connection, 2, true, false},
    {"LOCK TABLES", block_the_table, 1, true, false},
    {"stop MariaDB", stop_database, 1, true, false},
    {"restart MariaDB", restart_database, 1, true, false},
};

enum { FAULTS = sizeof(faults) / sizeof(*faults), NO_FAULT = FAULTS };

_Static_assert((int)NO_FAULT < (int)SOAK_FAULTS_MAX, "each fault is counted");

static struct soak_tally tallies[FAULTS + 1];
static unsigned faults_made, last_fault = NO_FAULT;

/* How often a fault is drawn, compared with others. */
static unsigned weight_of(const struct fault *fault)
{
    return is_calm && fault->is_felt ? 0 : fault->weight;
}

static unsigned draw_fault(void)
{
    unsigned all = 0, choice, i;

    for (i = 0; i < FAULTS; i++)
        all += weight_of(&faults[i]);
    choice = (unsigned)draw(all);
    for (i = 0; choice >= weight_of(&faults[i]); i++)
        choice -= weight_of(&faults[i]);
    return i;
}

static void make_fault(void)
{
    unsigned i = draw_fault();

    if (faults[i].is_felt)
        soak_trouble(&history->account, i);
    if (faults[i].is_unseen)
        soak_fleet_trouble(&history->fleet);
    faults[i].make();
    if (faults[i].is_unseen)
        soak_fleet_calm(&history->fleet, shed_now_ms());
    if (faults[i].is_felt)
        soak_calm(&history->account, shed_now_ms());
    tallies[i].made++;
    faults_made++;
    last_fault = i;
}

/* ---------------------------------------------------------------- verdict */

static uint64_t count_violations(void)
{
    uint64_t all = 0;

    for (unsigned i = 0; i < SOAK_VIOLATIONS; i++)
        all += atomic_load(&history->violations[i]);
    return all;
}

static bool is_flat(const struct soak_sample *early,
                    const struct soak_sample *late)
{
    if (early->kib == 0) /* a finding has ended the run before it was taken */
        return true;
    return late->descriptors <= early->descriptors + SLACK_DESCRIPTORS &&
           late->threads <= early->threads + SLACK_THREADS &&
           (!IS_MEMORY_JUDGED ||
            late->allocated_kib <=
                early->allocated_kib + SLACK_ALLOCATED_KIB) &&
           (!IS_MEMORY_JUDGED ||
            late->kib <= early->kib + early->kib / 10 + SLACK_KIB);
}

/* -------------------------------------------------------------------- run */

static void set_up(void)
{
    history = mmap(NULL, sizeof(*history), PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(history, MAP_FAILED);
    history->slack_ms = scaled_ms(SLACK_MS);
    history->heard_ms = SOAK_HEARD_MS + scaled_ms(SLACK_HEARD_MS);
    history->fleet.slot_ms = scaled_ms(SLOT_MS);
    history->fleet.event_ms = scaled_ms(EVENT_MS);
    history->fleet.stall_ms = scaled_ms(STALL_MS);
    history->account.settle_ms = PAUSES_MS + scaled_ms(SETTLE_MS);
    history->account.late_ms = scaled_ms(LATE_MS);
    atomic_store(&history->account.fault, NO_FAULT);
    for (size_t i = 0; i < FAULTS; i++)
        tallies[i].name = faults[i].name;
    tallies[NO_FAULT].name = "none yet";
    own_mariadb_install(&database);
    own_mariadb_start(&database);
    open_site(&site, database.uri);
    run_sql(&site, "CREATE TABLE item (id BIGINT PRIMARY KEY, "
                   "version INT, tag VARCHAR(8))");
    for (unsigned key = 0; key < SOAK_KEYS; key++)
        run_sql(&site, "INSERT INTO item VALUES (%u, 0, 'tag%u')", key + 1,
                soak_tag_of(key));
    server_start(&server);
    place = (struct soak_place){server.uri, server.socket, site.uri};
    for (unsigned i = 0; i < SOAK_WORKERS; i++)
        start_worker(i);
    soak_calm(&history->account, shed_now_ms());
    WAIT_FOR(soak_ended(&history->account, SOAK_READ, SHED_OK) > 0);
}

static uint64_t begun_ms, tell_ms;

static void tell_progress(void)
{
    soak_tell_progress(history, (shed_now_ms() - begun_ms) / MS_PER_S,
                       faults_made, tallies[last_fault].name);
    tell_ms = shed_now_ms() + TELL_EVERY_MS;
}

/* Make a fault, and wait for a while. Returns: whether this machine has stopped
 * meanwhile. */
static bool step(void)
{
    uint64_t pause_ms, paused_ms;

    make_fault();
    pause_ms = draw(FAULT_EVERY_MS);
    paused_ms = shed_now_ms();
    sleep_ms(pause_ms);
    if (shed_now_ms() >= tell_ms)
        tell_progress();
    return shed_now_ms() > paused_ms + pause_ms + scaled_ms(STALL_MS);
}

/* Leave the servers alone for long enough that a call that fails is a finding:
 * unless the whole machine stops, or is so busy that the database does not
 * answer, which is nobody's fault. */
static void keep_calm(void)
{
    struct soak_account *account = &history->account;
    uint64_t since_ms = shed_now_ms();
    uint64_t end_ms = since_ms + account->settle_ms + WATCH_MS;
    uint64_t before = atomic_load(&account->unexplained);
    bool has_stopped = false;

    is_calm = true;
    while (shed_now_ms() < end_ms)
        has_stopped |= step();
    is_calm = false;
    if (has_stopped || atomic_load(&history->fleet.stalled_ms) > since_ms)
        printf("this machine has stopped or was too busy for a while, so calls "
               "may fail\n");
    else
        atomic_fetch_add(&history->violations[SOAK_FAILED],
                         atomic_load(&account->unexplained) - before);
    atomic_store(&history->violations[SOAK_OVERDUE],
                 atomic_load(&account->late));
}

/* Make faults until the time is over, or something was found. */
static void endure(uint64_t length_ms, struct soak_sample *early)
{
    uint64_t end_ms, calm_ms;

    begun_ms = shed_now_ms();
    end_ms = begun_ms + length_ms;
    tell_ms = begun_ms + TELL_EVERY_MS;
    sleep_ms(BEGIN_MS);
    while (shed_now_ms() < end_ms && count_violations() == 0) {
        calm_ms = shed_now_ms() + TROUBLE_MS;
        while (shed_now_ms() < calm_ms && shed_now_ms() < end_ms &&
               count_violations() == 0)
            (void)step();
        keep_calm();
        if (early->kib == 0 && shed_now_ms() > begun_ms + length_ms / 3)
            *early = take_sample();
    }
    tell_progress();
}

static bool end_workers(void)
{
    bool is_well = true;

    atomic_store(&history->is_over, true);
    for (unsigned i = 0; i < SOAK_WORKERS; i++) {
        int status = 0;
        uint64_t until_ms = test_deadline_ms();
        while (waitpid(workers[i], &status, WNOHANG) == 0) {
            if (shed_now_ms() > until_ms)
                kill(workers[i], SIGABRT); /* one of its calls hangs */
            sleep_ms(10);
        }
        if (!WIFEXITED(status) || WEXITSTATUS(status) != EXIT_SUCCESS) {
            printf("process %u ended with the status %d\n", i, status);
            is_well = false;
        }
    }
    return is_well;
}

static uint64_t seconds;
static const char *json_path;

START_TEST(what_is_read_agrees_with_the_history)
{
    struct soak_report_data data = {
        .seed = seed, .faults = tallies, .fault_count = FAULTS + 1};
    bool is_well;

    set_up();
    data.history = history;
    endure(seconds * MS_PER_S, &data.early);
    data.late = take_sample();
    is_well = end_workers();
    soak_print(&data);
    if (json_path != NULL && !soak_write_json(&data, json_path)) {
        perror(json_path);
        is_well = false;
    }
    server_stop(&server);
    close_site(&site);
    own_mariadb_signal(&database, SIGKILL);
    own_mariadb_remove(&database);
    if (!is_flat(&data.early, &data.late))
        printf("memory, descriptors or threads have grown\n");
    if (!is_well || count_violations() > 0 || !is_flat(&data.early, &data.late))
        printf("FAILED. Again: tests/soak/run %llu %llu\n",
               (unsigned long long)seconds, (unsigned long long)seed);
    ck_assert(is_well);
    ck_assert_uint_eq(count_violations(), 0);
    ck_assert(is_flat(&data.early, &data.late));
}
END_TEST

int main(int argc, char **argv)
{
    TCase *tc = tcase_create("soak");

    seconds = argc > 1 ? strtoull(argv[1], NULL, 10) : 0;
    seed = argc > 2 ? strtoull(argv[2], NULL, 10) : shed_now_ms() % 1000000;
    json_path = argc > 3 ? argv[3] : NULL;
    if (seconds == 0 || argc > 4) {
        fprintf(stderr, "usage: %s SECONDS [SEED [JSON]]\n", argv[0]);
        return 2;
    }
    random_states[0] = (seed + 1) * 2654435761U;
    random_states[1] = random_states[0] + 1;
    printf("soak: %llu s, seed %llu\n", (unsigned long long)seconds,
           (unsigned long long)seed);
    fflush(stdout);
    /* the fixtures of other tests use Check's assertions, so this is a test of
     * Check, too; it runs in this process, without a time limit */
    setenv("CK_FORK", "no", 1);
    tcase_add_test(tc, what_is_read_agrees_with_the_history);
    return run_tests("soak", tc);
}
