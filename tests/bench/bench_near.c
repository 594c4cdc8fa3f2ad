/*
 * What the near cache gives:
 *
 *   hits   ns of a near hit of one hot row by the number of threads, beside a
 *          hash table of one mutex whose rows are counted references
 *   change how long after a change by a plain Redis client gets still give the
 *          old row, in two processes that ask for it every 100 us, and in two
 *          that ask without a pause: on two cores, Redis and the threads that
 *          hear of the change then wait until the kernel takes a core away from
 *          the askers
 *   memory what a row of it takes, beside its key and its bytes
 *
 * usage: bench_near SOCKET [ROUNDS [CHANGES]]
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>

#include <snowshed/snowshed.h>

#include "base/clock.h"
#include "base/map.h"
#include "base/value.h"
#include "bench.h"
#include "support/bare.h"

enum { SLICE_MS = 200, ROWS = 20000 };
#define KEY "hot"
#define REDIS_KEY "bench:{hot}"

static struct shed_cache *cache;

/* --------------------------------------------------------- the plain table */

static struct {
    pthread_mutex_t mu;
    struct shed_map map;
    struct shed_map_node *chains[1024];
    struct shed_map_node node;
    struct shed_value *value;
} table = {.mu = PTHREAD_MUTEX_INITIALIZER};

static void fill_table(void)
{
    static const char payload[BENCH_PAYLOAD_BYTES];

    shed_map_init(&table.map, table.chains, 1024);
    table.value = shed_value_create(SHED_KIND_ROW, SHED_ORIGIN_REDIS, payload,
                                    sizeof(payload));
    table.node.key = shed_map_key(shed_str(REDIS_KEY));
    shed_map_insert(&table.map, &table.node);
}

static void get_plain(size_t number)
{
    struct shed_map_key key = shed_map_key(shed_str(REDIS_KEY));
    struct shed_value *value = NULL;

    (void)number;
    (void)pthread_mutex_lock(&table.mu);
    if (shed_map_find(&table.map, key) != NULL)
        value = shed_value_ref(table.value);
    (void)pthread_mutex_unlock(&table.mu);
    shed_value_unref(value);
}

static void get_near(size_t number)
{
    (void)number;
    bench_get(cache, KEY);
}

/* ----------------------------------------------------------------- the hits */

static void wait_until_near(void)
{
    uint64_t before = bench_near_hits(cache);

    while (bench_near_hits(cache) == before)
        bench_get(cache, KEY);
}

static void open_cache(const char *uri)
{
    struct shed_cache_options options = bare_cache();

    options.near_bytes = 64 << 20;
    options.near_ms = 600000;
    cache = bench_open(uri, BARE_CLIENT, BARE_SOURCE, &options, NULL, NULL);
}

static const size_t threads[] = {1, 2, 4, 8};
enum { COUNTS = sizeof(threads) / sizeof(*threads) };

static void print_hits(double *near[COUNTS], double *plain[COUNTS],
                       size_t rounds)
{
    double *ratio = bench_allocate(rounds, sizeof(*ratio));

    for (size_t i = 0; i < rounds; i++) /* before they are sorted */
        ratio[i] = near[COUNTS - 1][i] / near[0][i];
    (void)printf("processor ns of a hit of %d bytes, medians of %zu turns\n"
                 "%7s %14s %14s\n",
                 BENCH_PAYLOAD_BYTES, rounds, "threads", "near", "one mutex");
    for (size_t t = 0; t < COUNTS; t++) {
        const struct bench_figure figure = {.unit = "ns",
                                            .bar = t == 0 ? 60 : 0};
        (void)printf("%7zu %14.1f %14.1f\n", threads[t],
                     bench_note(near[t], rounds, figure,
                                "near hit, %zu thread%s", threads[t],
                                t > 0 ? "s" : ""),
                     bench_at(plain[t], rounds, 0.5));
    }
    (void)printf("8 threads / 1: %.2f\n",
                 bench_note(ratio, rounds,
                            (struct bench_figure){.unit = "", .bar = 1},
                            "near hit: 8 threads / 1"));
    (void)fflush(stdout);
    free(ratio);
}

static void measure_hits(size_t rounds)
{
    double *values = bench_allocate(2 * COUNTS * rounds, sizeof(*values));
    double *near[COUNTS], *plain[COUNTS];

    bench_put(cache, KEY);
    fill_table();
    wait_until_near();
    for (size_t t = 0; t < COUNTS; t++) {
        near[t] = values + 2 * t * rounds;
        plain[t] = near[t] + rounds;
    }
    for (size_t i = 0; i < rounds; i++)
        for (size_t t = 0; t < COUNTS; t++) {
            near[t][i] = bench_run(threads[t], get_near, SLICE_MS).cpu_ns;
            plain[t][i] = bench_run(threads[t], get_plain, SLICE_MS).cpu_ns;
        }
    print_hits(near, plain, rounds);
    shed_value_unref(table.value);
    free(values);
}

/* --------------------------------------------------------------- the memory */

static char keys[ROWS][8];

/* Until all are near. */
static void read_all(void)
{
    uint64_t before;

    do {
        before = bench_near_hits(cache);
        for (int i = 0; i < ROWS; i++)
            bench_get(cache, keys[i]);
    } while (bench_near_hits(cache) - before < ROWS);
}

static void measure_memory(void)
{
    size_t before, key_bytes = 0;
    double bytes;

    for (int i = 0; i < ROWS; i++) {
        key_bytes += (size_t)snprintf(keys[i], sizeof(keys[i]), "%d", i);
        bench_put(cache, keys[i]);
    }
    before = bench_used_bytes();
    read_all();
    bytes = (double)(bench_used_bytes() - before - key_bytes) / (double)ROWS -
            (double)BENCH_PAYLOAD_BYTES;
    (void)printf("\na near row takes %.0f bytes beside its key and its own\n",
                 bench_note(&bytes, 1, (struct bench_figure){.unit = "bytes"},
                            "memory of a near row, beside its key and bytes"));
    (void)fflush(stdout);
}

/* -------------------------------------------------------------- the changes */

/* A process with a near cache of its own, which asks for the row again and
 * again, as it shares it with the writer. */
struct reader {
    pid_t pid;
    /* atomic */
    atomic_uint near_in; /* the number of the change for which it is ready */
    atomic_uint gone_in; /* the number of the change that it has seen */
    _Atomic uint64_t last_us; /* when it was given the old row last */
};

enum { READERS = 2 };

static const struct timespec short_pause = {.tv_nsec = 100000};

static struct shed_value *get_cached(void)
{
    const struct shed_get_options cached = {.size = sizeof(cached),
                                            .only_cached = 1};
    struct shed_value *value = NULL;

    if (shed_get(cache, shed_str(KEY), &cached, &value, NULL) != SHED_OK)
        return NULL;
    return value;
}

/* For ever. */
static void read_changes(struct reader *r, bool is_busy)
{
    for (unsigned i = 1;; i++) {
        struct shed_value *value;
        uint64_t before = bench_near_hits(cache);
        while (bench_near_hits(cache) == before) {
            shed_value_unref(get_cached());
            (void)nanosleep(&short_pause, NULL);
        }
        atomic_store(&r->near_in, i);
        while ((value = get_cached()) != NULL) {
            shed_value_unref(value);
            atomic_store(&r->last_us, shed_now_us());
            if (!is_busy)
                (void)nanosleep(&short_pause, NULL);
        }
        atomic_store(&r->gone_in, i);
    }
}

static void start_reader(struct reader *r, const char *uri, bool is_busy)
{
    pid_t pid = bench_fork();

    if (pid > 0) {
        r->pid = pid;
        return;
    }
    open_cache(uri);
    read_changes(r, is_busy);
}

static void wait_for(atomic_uint *number, unsigned least)
{
    while (atomic_load(number) < least)
        (void)nanosleep(&short_pause, NULL);
}

/* How long each reader was given the old row after the change, in us. */
static void change(redisContext *redis, const redisReply *entry,
                   struct reader *readers, unsigned number, double *us)
{
    uint64_t changed_us;

    bench_do(redis, "SET " REDIS_KEY " %b PX 600000", entry->str, entry->len);
    for (int i = 0; i < READERS; i++)
        wait_for(&readers[i].near_in, number);
    bench_do(redis, "DEL " REDIS_KEY);
    changed_us = shed_now_us();
    for (int i = 0; i < READERS; i++) {
        uint64_t last_us;
        wait_for(&readers[i].gone_in, number);
        last_us = atomic_load(&readers[i].last_us);
        us[i] = last_us > changed_us ? (double)(last_us - changed_us) : 0;
    }
}

static void print_changes(double *us, size_t count, bool is_busy)
{
    double p99 = bench_at(us, count, 0.99);

    (void)printf("%-17s %7.0f %7.0f %7.0f %7.0f\n",
                 is_busy ? "without a pause" : "each 100 us",
                 bench_at(us, count, 0.5), p99, bench_at(us, count, 0.999),
                 bench_at(us, count, 1));
    (void)fflush(stdout);
    if (!is_busy)
        (void)bench_note(&p99, 1,
                         (struct bench_figure){.unit = "us", .bar = 2000},
                         "near: a change is seen, p99");
}

static void measure_changes(redisContext *redis, const redisReply *entry,
                            const char *uri, unsigned changes, bool is_busy)
{
    double *us = bench_allocate(changes * READERS, sizeof(*us));
    struct reader *readers = bench_share(READERS * sizeof(*readers));

    for (int i = 0; i < READERS; i++)
        start_reader(&readers[i], uri, is_busy);
    for (unsigned i = 0; i < changes; i++)
        change(redis, entry, readers, i + 1, &us[i * READERS]);
    for (int i = 0; i < READERS; i++) {
        (void)kill(readers[i].pid, SIGKILL);
        (void)waitpid(readers[i].pid, NULL, 0);
    }
    print_changes(us, changes * READERS, is_busy);
    free(us);
}

static void measure_all_changes(const char *socket, unsigned changes)
{
    const char *uri = bench_uri(socket);
    redisContext *redis = bench_connect(socket);
    redisReply *entry = bench_ask(redis, "GET " REDIS_KEY);

    (void)printf("\nthe old row is given after a change, in us\n"
                 "%-17s %7s %7s %7s %7s\n",
                 "asked for", "p50", "p99", "p99.9", "max");
    (void)fflush(stdout);
    measure_changes(redis, entry, uri, changes, false);
    measure_changes(redis, entry, uri, changes, true);
    freeReplyObject(entry);
    redisFree(redis);
}

int main(int argc, char **argv)
{
    size_t rounds = bench_number(argc, argv, 2, 11, 100000);
    size_t changes = bench_number(argc, argv, 3, 1000, 1000000);

    if (argc < 2)
        bench_die("usage: bench_near SOCKET [ROUNDS [CHANGES]]");
    open_cache(bench_uri(argv[1]));
    measure_hits(rounds);
    measure_memory();
    shed_cache_close(cache);
    measure_all_changes(argv[1], (unsigned)changes);
    return EXIT_SUCCESS;
}
