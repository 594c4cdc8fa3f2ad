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
 *
 * usage: bench_near SOCKET [ROUNDS]
 */
#include <hiredis/hiredis.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <snowshed/snowshed.h>
#include <snowshed/source.h>
#include <snowshed/stats.h>

#include "base/clock.h"
#include "base/map.h"
#include "base/value.h"
#include "support/bare.h"

enum { PAYLOAD_BYTES = 1000, SLICE_MS = 200, THREADS_MAX = 64, CHANGES = 1000 };
#define KEY "hot"
#define REDIS_KEY "bench:{hot}"

static struct shed_cache *cache;
static atomic_bool is_over;

static void die(const char *what)
{
    (void)fprintf(stderr, "bench_near: %s\n", what);
    exit(EXIT_FAILURE);
}

/* --------------------------------------------------------- the plain table */

static struct {
    pthread_mutex_t mu;
    struct shed_map map;
    struct shed_map_node *chains[1024];
    struct shed_map_node node;
    struct shed_value *value;
} table = {.mu = PTHREAD_MUTEX_INITIALIZER};

static void fill_table(const char *payload)
{
    shed_map_init(&table.map, table.chains, 1024);
    table.value = shed_value_create(SHED_KIND_ROW, SHED_ORIGIN_REDIS, payload,
                                    PAYLOAD_BYTES);
    table.node.key = shed_map_key(REDIS_KEY, sizeof(REDIS_KEY) - 1);
    shed_map_insert(&table.map, &table.node);
}

static struct shed_value *get_plain(void)
{
    struct shed_map_key key = shed_map_key(REDIS_KEY, sizeof(REDIS_KEY) - 1);
    struct shed_value *value = NULL;

    (void)pthread_mutex_lock(&table.mu);
    if (shed_map_find(&table.map, key) != NULL)
        value = shed_value_ref(table.value);
    (void)pthread_mutex_unlock(&table.mu);
    return value;
}

static struct shed_value *get_near(void)
{
    struct shed_value *value;
    struct shed_error err;

    if (shed_get(cache, shed_str(KEY), NULL, &value, &err) != SHED_OK)
        die(err.reason);
    return value;
}

/* ----------------------------------------------------------------- the hits */

struct worker {
    pthread_t thread;
    struct shed_value *(*get)(void);
    size_t gets;
    uint64_t cpu_ns;
};

static void *work(void *arg)
{
    struct worker *w = arg;
    size_t gets = 0;
    struct timespec cpu;

    for (; !atomic_load_explicit(&is_over, memory_order_relaxed); gets++) {
        struct shed_value *value = w->get();
        if (value->size != PAYLOAD_BYTES)
            die("not the value");
        shed_value_unref(value);
    }
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu);
    w->cpu_ns = (uint64_t)cpu.tv_sec * 1000000000 + (uint64_t)cpu.tv_nsec;
    w->gets = gets;
    return NULL;
}

/* The processor time of a get, in ns, with this many threads. */
static double measure(size_t threads, struct shed_value *(*get)(void))
{
    static struct worker worker[THREADS_MAX];
    struct timespec slice = {.tv_nsec = SLICE_MS * 1000000};
    double gets = 0, ns = 0;

    atomic_store(&is_over, false);
    for (size_t i = 0; i < threads; i++) {
        worker[i] = (struct worker){.get = get};
        if (pthread_create(&worker[i].thread, NULL, work, &worker[i]) != 0)
            die("no thread");
    }
    (void)nanosleep(&slice, NULL);
    atomic_store(&is_over, true);
    for (size_t i = 0; i < threads; i++) {
        (void)pthread_join(worker[i].thread, NULL);
        gets += (double)worker[i].gets;
        ns += (double)worker[i].cpu_ns;
    }
    return ns / gets;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double at(double *values, size_t count, double part)
{
    qsort(values, count, sizeof(*values), compare);
    return values[(size_t)((double)(count - 1) * part)];
}

static void compare_ways(size_t threads, size_t rounds)
{
    double *near = calloc(2 * rounds, sizeof(*near)), *plain = near + rounds;

    if (near == NULL)
        die("out of memory");
    for (size_t i = 0; i < rounds; i++) {
        near[i] = measure(threads, get_near);
        plain[i] = measure(threads, get_plain);
    }
    (void)printf("%7zu %14.1f %14.1f\n", threads, at(near, rounds, 0.5),
                 at(plain, rounds, 0.5));
    (void)fflush(stdout);
    free(near);
}

static uint64_t near_hits(void)
{
    struct shed_stats stats;

    if (shed_stats_read(cache, &stats, sizeof(stats), NULL) != SHED_OK)
        die("no statistics");
    return stats.near_hits;
}

static void wait_until_near(void)
{
    uint64_t before = near_hits();

    while (near_hits() == before)
        shed_value_unref(get_near());
}

static void no_load(void *user, void *thread, struct shed_load *load)
{
    (void)user;
    (void)thread;
    shed_load_done(load);
}

static struct shed_client *client;
static struct shed_source *source;

static void open_cache(const char *uri)
{
    struct shed_cache_options options = bare_cache();
    struct shed_error err;

    options.near_bytes = 16 << 20;
    options.near_ms = 600000;
    if (shed_client_open(uri, BARE_CLIENT, &client, &err) != SHED_OK ||
        shed_source_open_batch(no_load, NULL, BARE_SOURCE, &source, &err) !=
            SHED_OK ||
        shed_cache_open(client, "bench", source, &options, &cache, &err) !=
            SHED_OK)
        die(err.reason);
}

static void close_cache(void)
{
    shed_cache_close(cache);
    shed_source_close(source);
    shed_client_close(client);
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
        uint64_t before = near_hits();
        while (near_hits() == before) {
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
    pid_t pid = fork();

    if (pid < 0)
        die("cannot fork");
    if (pid > 0) {
        r->pid = pid;
        return;
    }
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
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
    redisReply *reply = redisCommand(redis, "SET " REDIS_KEY " %b PX 600000",
                                     entry->str, entry->len);
    uint64_t changed_us;

    freeReplyObject(reply);
    for (int i = 0; i < READERS; i++)
        wait_for(&readers[i].near_in, number);
    reply = redisCommand(redis, "DEL " REDIS_KEY);
    changed_us = shed_now_us();
    if (reply == NULL || reply->type != REDIS_REPLY_INTEGER)
        die("DEL failed");
    freeReplyObject(reply);
    for (int i = 0; i < READERS; i++) {
        uint64_t last_us;
        wait_for(&readers[i].gone_in, number);
        last_us = atomic_load(&readers[i].last_us);
        us[i] = last_us > changed_us ? (double)(last_us - changed_us) : 0;
    }
}

static void measure_changes(redisContext *redis, const redisReply *entry,
                            const char *uri, bool is_busy)
{
    static double us[CHANGES * READERS];
    struct reader *readers =
        mmap(NULL, READERS * sizeof(*readers), PROT_READ | PROT_WRITE,
             MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (readers == MAP_FAILED)
        die("out of memory");
    for (int i = 0; i < READERS; i++)
        start_reader(&readers[i], uri, is_busy);
    for (unsigned i = 0; i < CHANGES; i++)
        change(redis, entry, readers, i + 1, &us[i * READERS]);
    for (int i = 0; i < READERS; i++) {
        (void)kill(readers[i].pid, SIGKILL);
        (void)waitpid(readers[i].pid, NULL, 0);
    }
    (void)printf(
        "%-17s %7.0f %7.0f %7.0f %7.0f\n",
        is_busy ? "without a pause" : "each 100 us",
        at(us, CHANGES * READERS, 0.5), at(us, CHANGES * READERS, 0.99),
        at(us, CHANGES * READERS, 0.999), at(us, CHANGES * READERS, 1));
    (void)fflush(stdout);
    (void)munmap(readers, READERS * sizeof(*readers));
}

static void measure_all_changes(const char *socket, const char *uri)
{
    redisContext *redis = redisConnectUnix(socket);
    redisReply *entry;

    if (redis == NULL || redis->err != 0)
        die("cannot connect");
    (void)printf("\nthe old row is given after a change, in us\n"
                 "%-17s %7s %7s %7s %7s\n",
                 "asked for", "p50", "p99", "p99.9", "max");
    (void)fflush(stdout);
    entry = redisCommand(redis, "GET " REDIS_KEY);
    measure_changes(redis, entry, uri, false);
    measure_changes(redis, entry, uri, true);
    freeReplyObject(entry);
    redisFree(redis);
}

static void measure_hits(const char *uri, size_t rounds)
{
    static const size_t threads[] = {1, 2, 4, 8};
    static const char payload[PAYLOAD_BYTES];
    struct shed_error err;

    open_cache(uri);
    if (shed_put(cache, shed_str(KEY), shed_bytes(payload, sizeof(payload)),
                 NULL, &err) != SHED_OK)
        die(err.reason);
    fill_table(payload);
    wait_until_near();
    (void)printf("processor ns of a hit of %d bytes, medians of %zu turns\n"
                 "%7s %14s %14s\n",
                 PAYLOAD_BYTES, rounds, "threads", "near", "one mutex");
    for (size_t i = 0; i < sizeof(threads) / sizeof(*threads); i++)
        compare_ways(threads[i], rounds);
    shed_value_unref(table.value);
    close_cache();
}

int main(int argc, char **argv)
{
    size_t rounds = argc > 2 ? strtoull(argv[2], NULL, 10) : 11;
    char uri[200];

    if (argc < 2 || rounds == 0)
        die("usage: bench_near SOCKET [ROUNDS]");
    (void)snprintf(uri, sizeof(uri), "unix:%s", argv[1]);
    measure_hits(uri, rounds);
    measure_all_changes(argv[1], uri);
    return EXIT_SUCCESS;
}
