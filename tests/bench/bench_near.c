/*
 * What the near cache gives:
 *
 *   hits   ns of a near hit of one hot row by the number of threads, beside a
 *          hash table of one mutex whose rows are counted references
 *   change how long after a change by a plain Redis client gets still give the
 *          old row, while a thread asks without a pause
 *
 * usage: bench_near SOCKET [ROUNDS]
 */
#include <hiredis/hiredis.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <snowshed/snowshed.h>
#include <snowshed/source.h>
#include <snowshed/stats.h>

#include "base/clock.h"
#include "base/map.h"
#include "base/value.h"
#include "support/bare.h"

enum { PAYLOAD_BYTES = 1000, SLICE_MS = 200, THREADS_MAX = 64, CHANGES = 5000 };
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

/* ------------------------------------------------------------------ the hits
 */

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

/* --------------------------------------------------------------- the changes
 */

static uint64_t changed_us; /* by wait_for_change */

/* The age of the old row when it was given out last, in us. */
static double change(redisContext *redis, const char *entry, size_t size)
{
    redisReply *reply;
    uint64_t last_us = 0, near = 0;
    struct shed_value *value;

    wait_until_near();
    reply = redisCommand(redis, "DEL " REDIS_KEY);
    changed_us = shed_now_us();
    if (reply == NULL || reply->type != REDIS_REPLY_INTEGER)
        die("DEL failed");
    freeReplyObject(reply);
    do {
        const struct shed_get_options cached = {.size = sizeof(cached),
                                                .only_cached = 1};
        enum shed_code code =
            shed_get(cache, shed_str(KEY), &cached, &value, NULL);
        shed_value_unref(value);
        near = code == SHED_OK;
        last_us = shed_now_us();
    } while (near);
    reply = redisCommand(redis, "SET " REDIS_KEY " %b PX 600000", entry, size);
    freeReplyObject(reply);
    return (double)(last_us - changed_us);
}

static void measure_changes(const char *socket)
{
    static double us[CHANGES];
    redisContext *redis = redisConnectUnix(socket);
    redisReply *entry;

    if (redis == NULL || redis->err != 0)
        die("cannot connect");
    entry = redisCommand(redis, "GET " REDIS_KEY);
    for (size_t i = 0; i < CHANGES; i++)
        us[i] = change(redis, entry->str, entry->len);
    (void)printf("\na change is seen after, in us: p50 %.0f, p99 %.0f, p99.9 "
                 "%.0f, max %.0f\n",
                 at(us, CHANGES, 0.5), at(us, CHANGES, 0.99),
                 at(us, CHANGES, 0.999), at(us, CHANGES, 1));
    freeReplyObject(entry);
    redisFree(redis);
}

static void no_load(void *user, void *thread, struct shed_load *load)
{
    (void)user;
    (void)thread;
    shed_load_done(load);
}

int main(int argc, char **argv)
{
    static const size_t threads[] = {1, 2, 4, 8};
    static const char payload[PAYLOAD_BYTES];
    struct shed_cache_options options = bare_cache();
    struct shed_client *client = NULL;
    struct shed_source *source = NULL;
    struct shed_error err;
    size_t rounds = argc > 2 ? strtoull(argv[2], NULL, 10) : 11;
    char uri[200];

    if (argc < 2 || rounds == 0)
        die("usage: bench_near SOCKET [ROUNDS]");
    options.near_bytes = 16 << 20;
    options.near_ms = 600000;
    (void)snprintf(uri, sizeof(uri), "unix:%s", argv[1]);
    if (shed_client_open(uri, BARE_CLIENT, &client, &err) != SHED_OK ||
        shed_source_open_batch(no_load, NULL, BARE_SOURCE, &source, &err) !=
            SHED_OK ||
        shed_cache_open(client, "bench", source, &options, &cache, &err) !=
            SHED_OK ||
        shed_put(cache, shed_str(KEY), shed_bytes(payload, sizeof(payload)),
                 NULL, &err) != SHED_OK)
        die(err.reason);
    fill_table(payload);
    wait_until_near();
    (void)printf("processor ns of a hit of %d bytes, medians of %zu turns\n"
                 "%7s %14s %14s\n",
                 PAYLOAD_BYTES, rounds, "threads", "near", "one mutex");
    for (size_t i = 0; i < sizeof(threads) / sizeof(*threads); i++)
        compare_ways(threads[i], rounds);
    measure_changes(argv[1]);
    shed_value_unref(table.value);
    shed_cache_close(cache);
    shed_source_close(source);
    shed_client_close(client);
    return EXIT_SUCCESS;
}
