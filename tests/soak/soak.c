/*
 * Random faults under load, for as long as asked: processes read, write and
 * lock on a real Redis and a real MariaDB, while this one kills, stops, cuts,
 * empties and blocks what it can reach. Every value that is read is judged by
 * the history of the database (history.h). At the end: a table, and JSON on
 * request.
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

#include "soak/worker.h"
#include "support/mysql_testing.h"
#include "support/own_mariadb.h"
#include "support/random.h"
#include "support/server.h"

enum {
    CALM_MS = 1500, /* at the beginning and at the end, without faults */
    FAULT_EVERY_MS = 250,
    STOP_MAX_MS = 700,
    TELL_EVERY_MS = 10000,
    SLACK_MS = 4000,
    /* How much more may be open, or in use, than early on: connections and
     * threads come and go. */
    SLACK_DESCRIPTORS = 24,
    SLACK_KIB = 8192,
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
static uint64_t seed, random_state;
static uint64_t generation; /* of the workers that are started */

static uint64_t draw(uint64_t below)
{
    return random_next(&random_state) % below;
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

/* The first one lives all the time: what it holds is judged. */
static unsigned draw_mortal(void)
{
    return 1 + (unsigned)draw(SOAK_WORKERS - 1);
}

struct sample {
    unsigned long kib, descriptors;
};

static struct sample take_sample(void)
{
    struct sample s = {0, 0};
    unsigned long pages = 0;
    char path[64];
    FILE *file;
    DIR *dir;

    snprintf(path, sizeof(path), "/proc/%d/statm", (int)workers[0]);
    file = fopen(path, "re");
    if (file != NULL && fscanf(file, "%*u %lu", &pages) == 1)
        s.kib = pages * (unsigned long)sysconf(_SC_PAGESIZE) / 1024;
    if (file != NULL)
        fclose(file);
    snprintf(path, sizeof(path), "/proc/%d/fd", (int)workers[0]);
    dir = opendir(path);
    while (dir != NULL && readdir(dir) != NULL)
        s.descriptors++;
    if (dir != NULL)
        closedir(dir);
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

/* Whichever keys it likes, leases and locks among them. */
static void make_redis_evict(void)
{
    char used[24];

    server_info(&server, "used_memory", used, sizeof(used));
    server_do(&server, "CONFIG SET maxmemory-policy allkeys-random");
    server_do(&server, "CONFIG SET maxmemory %s", used);
    sleep_ms(draw(STOP_MAX_MS));
    server_do(&server, "CONFIG SET maxmemory 0");
    server_do(&server, "CONFIG SET maxmemory-policy noeviction");
}

static void delete_a_key(void)
{
    struct soak_key *key = &history->key[draw(SOAK_KEYS)];
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

static struct fault {
    const char *name;
    void (*make)(void);
    unsigned weight, made;
} faults[] = {
    {"kill a process", kill_worker, 3, 0},
    {"stop a process", stop_worker, 4, 0},
    {"stop Redis", stop_redis, 2, 0},
    {"restart Redis, empty", restart_redis_empty, 1, 0},
    {"restart Redis, with its data", restart_redis, 1, 0},
    {"kill Redis, which has a log", kill_redis_with_log, 1, 0},
    {"cut the connections", cut_commands, 2, 0},
    {"cut the pushes", cut_pushes, 2, 0},
    {"FLUSHALL", empty_redis, 2, 0},
    {"SCRIPT FLUSH", forget_scripts, 2, 0},
    {"Redis out of memory", fill_redis, 1, 0},
    {"Redis evicts", make_redis_evict, 1, 0},
    {"DEL of an entry", delete_a_key, 4, 0},
    {"KILL QUERY", kill_a_query, 3, 0},
    {"KILL CONNECTION", kill_a_connection, 2, 0},
    {"LOCK TABLES", block_the_table, 1, 0},
    {"stop MariaDB", stop_database, 1, 0},
    {"restart MariaDB", restart_database, 1, 0},
};

enum { FAULTS = sizeof(faults) / sizeof(*faults) };

static void make_fault(void)
{
    unsigned all = 0, choice;
    size_t i;

    for (i = 0; i < FAULTS; i++)
        all += faults[i].weight;
    choice = (unsigned)draw(all);
    for (i = 0; choice >= faults[i].weight; i++)
        choice -= faults[i].weight;
    faults[i].make();
    faults[i].made++;
}

/* ---------------------------------------------------------------- verdict */

static uint64_t count_violations(void)
{
    uint64_t all = 0;

    for (unsigned i = 0; i < SOAK_VIOLATIONS; i++)
        all += atomic_load(&history->violations[i]);
    return all;
}

static bool is_flat(const struct sample *early, const struct sample *late)
{
    return late->descriptors <= early->descriptors + SLACK_DESCRIPTORS &&
           (!IS_MEMORY_JUDGED ||
            late->kib <= early->kib + early->kib / 10 + SLACK_KIB);
}

static void print_table(const struct sample *early, const struct sample *late)
{
    printf("\n%-44s %12s\n", "", "times");
    for (size_t i = 0; i < FAULTS; i++)
        printf("%-44s %12u\n", faults[i].name, faults[i].made);
    printf("%-44s %12llu\n%-44s %12llu\n%-44s %12llu\n", "reads",
           (unsigned long long)history->reads, "  of them given out stale",
           (unsigned long long)history->stale, "reads that failed",
           (unsigned long long)history->failed);
    printf("%-44s %12llu\n", "only_cached, and not there",
           (unsigned long long)history->missed);
    printf("%-44s %12llu\n%-44s %12llu\n%-44s %12llu\n%-44s %12llu\n", "writes",
           (unsigned long long)history->writes, "  of them put",
           (unsigned long long)history->puts, "  of them not told",
           (unsigned long long)history->untold, "locks",
           (unsigned long long)history->locks);
    for (unsigned i = 0; i < SOAK_VIOLATIONS; i++)
        printf("%-60s %llu\n", soak_violations[i],
               (unsigned long long)history->violations[i]);
    printf("%-44s %5lu, then %lu\n%-44s %5lu, then %lu\n", "memory, KiB",
           early->kib, late->kib, "descriptors", early->descriptors,
           late->descriptors);
}

static void write_json(const char *path, const struct sample *early,
                       const struct sample *late)
{
    FILE *file = fopen(path, "we");

    if (file == NULL) {
        perror(path);
        exit(EXIT_FAILURE);
    }
    fprintf(file, "{\n  \"seed\": %llu,\n  \"faults\": {",
            (unsigned long long)seed);
    for (size_t i = 0; i < FAULTS; i++)
        fprintf(file, "%s\n    \"%s\": %u", i > 0 ? "," : "", faults[i].name,
                faults[i].made);
    fprintf(file, "\n  },\n  \"violations\": {");
    for (unsigned i = 0; i < SOAK_VIOLATIONS; i++)
        fprintf(file, "%s\n    \"%s\": %llu", i > 0 ? "," : "",
                soak_violations[i], (unsigned long long)history->violations[i]);
    fprintf(
        file,
        "\n  },\n  \"reads\": %llu,\n  \"stale\": %llu,\n"
        "  \"failed\": %llu,\n  \"writes\": %llu,\n  \"locks\": %llu,\n"
        "  \"kib\": [%lu, %lu],\n  \"descriptors\": [%lu, %lu]\n}\n",
        (unsigned long long)history->reads, (unsigned long long)history->stale,
        (unsigned long long)history->failed,
        (unsigned long long)history->writes, (unsigned long long)history->locks,
        early->kib, late->kib, early->descriptors, late->descriptors);
    fclose(file);
}

/* -------------------------------------------------------------------- run */

static void set_up(void)
{
    history = mmap(NULL, sizeof(*history), PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(history, MAP_FAILED);
    history->slack_ms = scaled_ms(SLACK_MS);
    own_mariadb_install(&database);
    own_mariadb_start(&database);
    open_site(&site, database.uri);
    run_sql(&site, "CREATE TABLE item (id BIGINT PRIMARY KEY, version INT)");
    for (int i = 1; i <= SOAK_KEYS; i++)
        run_sql(&site, "INSERT INTO item VALUES (%d, 0)", i);
    server_start(&server);
    place = (struct soak_place){server.uri, server.socket, site.uri};
    for (unsigned i = 0; i < SOAK_WORKERS; i++)
        start_worker(i);
    WAIT_FOR(atomic_load(&history->reads) > 0);
}

static void tell(uint64_t begun_ms)
{
    printf("%6llu s  %llu reads, %llu writes, %llu found\n",
           (unsigned long long)((shed_now_ms() - begun_ms) / MS_PER_S),
           (unsigned long long)history->reads,
           (unsigned long long)history->writes,
           (unsigned long long)count_violations());
    fflush(stdout);
}

/* Make faults until the time is over, or something was found. */
static void endure(uint64_t length_ms, struct sample *early)
{
    uint64_t begun_ms = shed_now_ms(), tell_ms = begun_ms + TELL_EVERY_MS;

    sleep_ms(CALM_MS);
    while (shed_now_ms() < begun_ms + length_ms && count_violations() == 0) {
        make_fault();
        sleep_ms(draw(FAULT_EVERY_MS));
        if (early->kib == 0 && shed_now_ms() > begun_ms + length_ms / 3)
            *early = take_sample();
        if (shed_now_ms() >= tell_ms) {
            tell(begun_ms);
            tell_ms += TELL_EVERY_MS;
        }
    }
    sleep_ms(CALM_MS);
    tell(begun_ms);
}

static bool end_workers(void)
{
    bool is_well = true;

    atomic_store(&history->is_over, true);
    for (unsigned i = 0; i < SOAK_WORKERS; i++) {
        int status = 0;
        waitpid(workers[i], &status, 0);
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
    struct sample early = {0, 0}, late;
    bool is_well;

    set_up();
    endure(seconds * MS_PER_S, &early);
    late = take_sample();
    is_well = end_workers();
    print_table(&early, &late);
    if (json_path != NULL)
        write_json(json_path, &early, &late);
    server_stop(&server);
    close_site(&site);
    own_mariadb_signal(&database, SIGKILL);
    own_mariadb_remove(&database);
    if (!is_well || count_violations() > 0 || !is_flat(&early, &late))
        printf("FAILED. Again: tests/soak/run %llu %llu\n",
               (unsigned long long)seconds, (unsigned long long)seed);
    ck_assert(is_well);
    ck_assert_uint_eq(count_violations(), 0);
    ck_assert(is_flat(&early, &late));
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
    random_state = (seed + 1) * 2654435761U;
    printf("soak: %llu s, seed %llu\n", (unsigned long long)seconds,
           (unsigned long long)seed);
    fflush(stdout);
    /* the fixtures of other tests use Check's assertions, so this is a test of
     * Check, too; it runs in this process, without a time limit */
    setenv("CK_FORK", "no", 1);
    tcase_add_test(tc, what_is_read_agrees_with_the_history);
    return run_tests("soak", tc);
}
