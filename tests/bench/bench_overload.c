/*
 * What a database still answers under four times the load that it can bear. The
 * calls are for single keys, each with a deadline, through a cache whose source
 * has a bound on loads that is too high: once fixed, once adaptive. Then by
 * several processes, each with a bound that the database could bear, whose sum
 * is too high: once without a budget for all of them, once with fleet_loads.
 * Each query computes; the server has a part of the machine (tests/bench/run
 * gives it one core). The capacity is measured in each turn, so that a noisy
 * machine disturbs all measurements.
 *
 * usage: bench_overload REDIS_URI MYSQL_URI [TURNS [SECONDS]]
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <snowshed/mysql.h>
#include <snowshed/snowshed.h>
#include <snowshed/source.h>
#include <snowshed/stats.h>

#include "base/clock.h"
#include "bench.h"
#include "support/bare.h"

enum {
    IDS = 100000,          /* tests/bench/overload.sql */
    OVERLOAD = 4,          /* times the capacity */
    DEADLINE_QUERIES = 50, /* of a call: the time of this many queries */
    BOUND = 256,           /* max_loads, far too high */
    QUEUE = 16,            /* keys: a wait that leaves time for the load */
    CAPACITY_LOADS = 4,    /* at a time, to measure what the server can do */
    PROCESSES = 16,
    PROCESS_BOUND = 16, /* max_loads of each: their sum is BOUND */
    FLEET_LOADS = 4,    /* of all */
    THREADS_MAX = 2048,
    TURNS_MAX = 99,
    SETTLE_MS = 3000
};

#define QUERY                                                                  \
    "SELECT id, (SELECT SUM(CRC32(MD5(CONCAT(w.text, o.id)))) FROM "           \
    "overload_work w) FROM overload_row o WHERE id IN (?)"

static const char *redis_uri, *mysql_uri;
static atomic_uint next_id;

/* One run of callers. */
struct run {
    /* set before it begins */
    bool is_adaptive;
    uint64_t max_loads, fleet_loads, queue_limit, timeout_ms;
    size_t threads;
    uint64_t period_us; /* between two calls of a thread; 0: none */
    struct shed_cache *cache;
    /* atomic */
    atomic_bool counts, is_over;
    atomic_uint answered, refused, late, failed;
    uint64_t limit; /* of its loads, at the end */
};

struct caller {
    pthread_t thread;
    struct run *run;
    uint64_t first_us; /* its first call */
};

static void call(struct run *run)
{
    char key[16];
    struct shed_get_options options = SHED_GET_OPTIONS_INIT;
    struct shed_value *value = NULL;
    struct shed_error err = {SHED_OK, ""};
    unsigned id = atomic_fetch_add(&next_id, 1) % IDS + 1;
    enum shed_code code;

    options.timeout_ms = run->timeout_ms;
    (void)snprintf(key, sizeof(key), "%u", id);
    code = shed_get(run->cache, shed_str(key), &options, &value, &err);
    shed_value_unref(value);
    if (!atomic_load(&run->counts))
        return;
    if (code == SHED_OK)
        atomic_fetch_add(&run->answered, 1);
    else if (code == SHED_EBUSY)
        atomic_fetch_add(&run->refused, 1);
    else if (code == SHED_ETIMEDOUT)
        atomic_fetch_add(&run->late, 1);
    else
        atomic_fetch_add(&run->failed, 1);
}

static void *call_again(void *arg)
{
    struct caller *c = arg;
    uint64_t at_us = c->first_us;

    while (!atomic_load(&c->run->is_over)) {
        bench_sleep_until(at_us);
        call(c->run);
        at_us += c->run->period_us;
        if (at_us < shed_now_us()) /* it is too late for the calls in between */
            at_us = shed_now_us();
    }
    return NULL;
}

static struct shed_source *open_source(const struct run *run)
{
    struct shed_source_options loads = bare_source();
    struct shed_mysql_options options = SHED_MYSQL_OPTIONS_INIT;
    struct shed_source *source;
    struct shed_error err;

    loads.max_loads = run->max_loads;
    loads.fleet_loads = run->fleet_loads;
    loads.max_batch = 1;
    loads.queue_limit = run->queue_limit;
    loads.load_timeout_ms = (uint64_t)2 * run->timeout_ms;
    loads.adaptive_loads = run->is_adaptive;
    options.source = &loads;
    if (shed_mysql_source_open(mysql_uri, QUERY, &options, &source, &err) !=
        SHED_OK)
        bench_die(err.reason);
    return source;
}

static uint64_t loads_limit(struct shed_cache *cache)
{
    static char text[65536];
    const char *at;

    (void)shed_stats_prometheus(&cache, 1, NULL, 0, text, sizeof(text));
    at = strstr(text, "\nsnowshed_source_loads_limit{");
    at = at != NULL ? strchr(at, '}') : NULL;
    return at != NULL ? strtoull(at + 1, NULL, 10) : 0;
}

static void run_callers(struct run *run, uint64_t seconds)
{
    static struct caller callers[THREADS_MAX];
    uint64_t start_us = shed_now_us();

    for (size_t i = 0; i < run->threads; i++) {
        callers[i] = (struct caller){.run = run,
                                     .first_us = start_us + run->period_us * i /
                                                                run->threads};
        if (pthread_create(&callers[i].thread, NULL, call_again, &callers[i]) !=
            0)
            bench_die("no thread");
    }
    bench_sleep_until(start_us + (uint64_t)SETTLE_MS * 1000);
    atomic_store(&run->counts, true);
    bench_sleep_until(start_us + (uint64_t)SETTLE_MS * 1000 +
                      seconds * 1000000);
    atomic_store(&run->counts, false);
    atomic_store(&run->is_over, true);
    for (size_t i = 0; i < run->threads; i++)
        (void)pthread_join(callers[i].thread, NULL);
}

/* Open a cache, and let the callers run. */
static void run_in_process(struct run *run, uint64_t seconds)
{
    struct shed_cache_options options = bare_cache();
    struct shed_client *client;
    struct shed_source *source = open_source(run);
    struct shed_error err;

    options.ttl_ms = 1; /* each call is a load */
    options.failure_ttl_ms = 0;
    if (shed_client_open(redis_uri, BARE_CLIENT, &client, &err) != SHED_OK ||
        shed_cache_open(client, "overload", source, &options, &run->cache,
                        &err) != SHED_OK)
        bench_die(err.reason);
    run_callers(run, seconds);
    run->limit = loads_limit(run->cache);
    shed_cache_close(run->cache);
    shed_source_close(source);
    shed_client_close(client);
}

/* Returns: answers in time, per second, of all runs. */
static double report(const char *name, const struct run *runs, size_t count,
                     uint64_t seconds)
{
    double answered = 0, refused = 0, late = 0, failed = 0;

    for (size_t i = 0; i < count; i++) {
        answered += atomic_load(&runs[i].answered);
        refused += atomic_load(&runs[i].refused);
        late += atomic_load(&runs[i].late);
        failed += atomic_load(&runs[i].failed);
    }
    (void)printf("  %-9s %6.0f answered/s  %6.0f refused/s  %6.0f late/s  "
                 "limit %" PRIu64 "\n",
                 name, answered / (double)seconds, refused / (double)seconds,
                 late / (double)seconds, runs[0].limit);
    if (failed > 0)
        (void)printf("            %.0f failed\n", failed);
    (void)fflush(stdout);
    return answered / (double)seconds;
}

static double measure(const char *name, struct run *run, uint64_t seconds)
{
    run_in_process(run, seconds);
    return report(name, run, 1, seconds);
}

static double measure_capacity(uint64_t seconds)
{
    struct run run = {.max_loads = CAPACITY_LOADS,
                      .queue_limit = QUEUE,
                      .timeout_ms = 60000,
                      .threads = CAPACITY_LOADS};

    return measure("capacity", &run, seconds);
}

/* A part of the callers of all. */
static struct run overload(double per_s, double part)
{
    double calls = per_s * (double)OVERLOAD * part;
    double deadline_ms = (double)DEADLINE_QUERIES * 1000 / per_s;
    struct run run = {.max_loads = BOUND,
                      .queue_limit = QUEUE,
                      .timeout_ms = (uint64_t)deadline_ms,
                      /* enough to begin each call on time, however long calls
                       * take */
                      .threads =
                          (size_t)(calls * deadline_ms / 1000 * 1.2) + 1};

    if (run.threads > THREADS_MAX)
        run.threads = THREADS_MAX;
    run.period_us = (uint64_t)((double)run.threads / calls * 1e6);
    return run;
}

static double measure_overload(const char *name, bool is_adaptive, double per_s,
                               uint64_t seconds)
{
    struct run run = overload(per_s, 1);

    run.is_adaptive = is_adaptive;
    return measure(name, &run, seconds);
}

/* The same load by several processes. */
static double measure_processes(const char *name, uint64_t fleet_loads,
                                double per_s, uint64_t seconds)
{
    struct run *runs = bench_share(sizeof(*runs) * PROCESSES);

    for (unsigned i = 0; i < PROCESSES; i++) {
        runs[i] = overload(per_s, 1 / (double)PROCESSES);
        runs[i].max_loads = PROCESS_BOUND;
        runs[i].queue_limit = QUEUE / PROCESSES;
        runs[i].fleet_loads = fleet_loads;
        if (bench_fork() == 0) {
            atomic_store(&next_id, IDS / PROCESSES * i);
            run_in_process(&runs[i], seconds);
            _exit(EXIT_SUCCESS);
        }
    }
    bench_wait_for_children();
    return report(name, runs, PROCESSES, seconds);
}

/* What the lines that follow mean. */
static void explain(uint64_t seconds)
{
    (void)printf("A database is asked for %d times as many rows as it can "
                 "load.\n",
                 OVERLOAD);
    (void)printf("Each line is measured for %" PRIu64 " s:\n", seconds);
    (void)printf("  capacity   %d callers, each with one call at a time: what "
                 "it can load\n",
                 CAPACITY_LOADS);
    (void)printf("  fixed      overload by one process, max_loads %d\n", BOUND);
    (void)printf("  adaptive   the same with adaptive_loads\n");
    (void)printf(
        "  processes  overload by %d processes, max_loads %d in each\n",
        PROCESSES, PROCESS_BOUND);
    (void)printf("  fleet      the same with fleet_loads %d\n", FLEET_LOADS);
    (void)printf("answered: within the deadline, the time of %d queries\n"
                 "refused: at once (SHED_EBUSY)\n"
                 "late: not within the deadline\n"
                 "limit: loads at a time that a process could make, at the "
                 "end\n"
                 "goodput: what was answered, in the last lines\n\n",
                 DEADLINE_QUERIES);
}

static void conclude(const char *name, double *parts, size_t turns)
{
    const struct bench_figure figure = {.unit = "", .is_more_better = true};

    (void)printf("%-9s goodput / capacity: %.2f (the turns: %.2f to %.2f)\n",
                 name,
                 bench_note(parts, turns, figure,
                            "overload, %s: goodput / capacity", name),
                 bench_at(parts, turns, 0), bench_at(parts, turns, 1));
}

int main(int argc, char **argv)
{
    double fixed[TURNS_MAX], adaptive[TURNS_MAX];
    double processes[TURNS_MAX], fleet[TURNS_MAX];
    size_t turns = bench_number(argc, argv, 3, 5, TURNS_MAX);
    uint64_t seconds = bench_number(argc, argv, 4, 10, 3600);

    if (argc < 3)
        bench_die(
            "usage: bench_overload REDIS_URI MYSQL_URI [TURNS [SECONDS]]");
    redis_uri = argv[1];
    mysql_uri = argv[2];
    explain(seconds);
    for (size_t i = 0; i < turns; i++) {
        double before, after;
        (void)printf("turn %zu of %zu\n", i + 1, turns);
        before = measure_capacity(seconds);
        fixed[i] = measure_overload("fixed", false, before, seconds);
        adaptive[i] = measure_overload("adaptive", true, before, seconds);
        processes[i] = measure_processes("processes", 0, before, seconds);
        fleet[i] = measure_processes("fleet", FLEET_LOADS, before, seconds);
        after = measure_capacity(seconds);
        fixed[i] /= (before + after) / 2;
        adaptive[i] /= (before + after) / 2;
        processes[i] /= (before + after) / 2;
        fleet[i] /= (before + after) / 2;
    }
    conclude("fixed", fixed, turns);
    conclude("adaptive", adaptive, turns);
    conclude("processes", processes, turns);
    conclude("fleet", fleet, turns);
    return EXIT_SUCCESS;
}
