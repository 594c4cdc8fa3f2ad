/*
 * What a hit costs: shed_get compared with a blocking GET of the same entry by
 * hiredis, with one thread and with many, alternating in one run, so that a
 * noisy machine disturbs both. hiredis gets a connection per thread.
 *
 * usage: bench_hit REDIS_SOCKET [ROUNDS [THREADS...]]
 *
 * SNOWSHED_LINKS=N sets the client's option `links`.
 */
#include <hiredis/hiredis.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <snowshed/snowshed.h>
#include <snowshed/source.h>

#include "base/clock.h"
#include "support/bare.h"

#define PAYLOAD_BYTES 1000
#define THREADS_MAX 1024
#define SLICE_MS 100
#define KEY "hot"
#define REDIS_KEY "bench:{hot}"

static struct shed_cache *cache;
static const char *socket_path;
static atomic_bool is_over;

struct worker {
    pthread_t thread;
    bool uses_hiredis;
    size_t gets;
};

static void die(const char *what)
{
    (void)fprintf(stderr, "bench_hit: %s\n", what);
    exit(EXIT_FAILURE);
}

static size_t run_hiredis(void)
{
    redisContext *c = redisConnectUnix(socket_path);
    size_t gets = 0;

    if (c == NULL || c->err != 0)
        die("hiredis cannot connect");
    for (; !atomic_load_explicit(&is_over, memory_order_relaxed); gets++) {
        redisReply *reply =
            redisCommand(c, "GET %b", REDIS_KEY, sizeof(REDIS_KEY) - 1);
        if (reply == NULL || reply->type != REDIS_REPLY_STRING)
            die("hiredis: no value");
        freeReplyObject(reply);
    }
    redisFree(c);
    return gets;
}

static size_t run_snowshed(void)
{
    struct shed_value *value;
    struct shed_error err;
    size_t gets = 0;

    for (; !atomic_load_explicit(&is_over, memory_order_relaxed); gets++) {
        if (shed_get(cache, shed_str(KEY), NULL, &value, &err) != SHED_OK)
            die(err.reason);
        if (value->size != PAYLOAD_BYTES)
            die("snowshed: not the value");
        shed_value_unref(value);
    }
    return gets;
}

static void *work(void *arg)
{
    struct worker *w = arg;

    w->gets = w->uses_hiredis ? run_hiredis() : run_snowshed();
    return NULL;
}

/* Gets per second with this many threads. */
static double measure(size_t threads, bool uses_hiredis, unsigned slice_ms)
{
    static struct worker worker[THREADS_MAX];
    uint64_t start_us = shed_now_us();
    struct timespec slice = {.tv_sec = 0, .tv_nsec = (long)slice_ms * 1000000};
    double gets = 0;

    atomic_store(&is_over, false);
    for (size_t i = 0; i < threads; i++) {
        worker[i] = (struct worker){.uses_hiredis = uses_hiredis};
        if (pthread_create(&worker[i].thread, NULL, work, &worker[i]) != 0)
            die("no thread");
    }
    (void)nanosleep(&slice, NULL);
    atomic_store(&is_over, true);
    for (size_t i = 0; i < threads; i++) {
        (void)pthread_join(worker[i].thread, NULL);
        gets += (double)worker[i].gets;
    }
    return gets * 1e6 / (double)(shed_now_us() - start_us);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *values, size_t count)
{
    qsort(values, count, sizeof(*values), compare);
    return values[count / 2];
}

static void compare_ways(size_t threads, size_t rounds)
{
    double *hiredis = calloc(3 * rounds, sizeof(*hiredis));
    double *snowshed = hiredis + rounds, *ratio = snowshed + rounds;

    if (hiredis == NULL)
        die("out of memory");
    for (size_t i = 0; i < rounds; i++) {
        hiredis[i] = measure(threads, true, SLICE_MS);
        snowshed[i] = measure(threads, false, SLICE_MS);
        ratio[i] = hiredis[i] / snowshed[i];
    }
    (void)printf("%4zu %14.0f %14.0f %20.2f\n", threads,
                 median(hiredis, rounds), median(snowshed, rounds),
                 median(ratio, rounds));
    (void)fflush(stdout);
    free(hiredis);
}

static void no_load(void *user, void *thread, struct shed_load *load)
{
    (void)user;
    (void)thread;
    shed_load_done(load);
}

static size_t parse_size(const char *text, size_t max)
{
    size_t size = strtoull(text, NULL, 10);

    if (size < 1 || size > max)
        die("usage: bench_hit REDIS_SOCKET [ROUNDS [THREADS...]]");
    return size;
}

static void open_cache(struct shed_client **client, struct shed_source **source)
{
    static const char payload[PAYLOAD_BYTES];
    struct shed_client_options options = bare_client();
    const char *links = getenv("SNOWSHED_LINKS");
    struct shed_error err;
    char uri[200];

    if (links != NULL)
        options.links = strtoull(links, NULL, 10);
    (void)snprintf(uri, sizeof(uri), "unix:%s", socket_path);
    if (shed_client_open(uri, &options, client, &err) != SHED_OK ||
        shed_source_open_batch(no_load, NULL, BARE_SOURCE, source, &err) !=
            SHED_OK ||
        shed_cache_open(*client, "bench", *source, BARE_CACHE, &cache, &err) !=
            SHED_OK ||
        shed_put(cache, shed_str(KEY), shed_bytes(payload, sizeof(payload)),
                 NULL, &err) != SHED_OK)
        die(err.reason);
}

int main(int argc, char **argv)
{
    static const size_t usual[] = {1, 2, 4, 8, 16, 64, 256};
    const size_t rounds_max = 100000;
    struct shed_client *client = NULL;
    struct shed_source *source = NULL;
    size_t rounds = argc > 2 ? parse_size(argv[2], rounds_max) : 21;

    if (argc < 2)
        die("usage: bench_hit REDIS_SOCKET [ROUNDS [THREADS...]]");
    socket_path = argv[1];
    open_cache(&client, &source);
    (void)printf("gets per second of a hit of %d bytes, medians of %zu turns\n"
                 "%4s %14s %14s %20s\n",
                 PAYLOAD_BYTES, rounds, "thr.", "hiredis", "snowshed",
                 "cost of snowshed / 1");
    for (int i = 3; i < argc; i++)
        compare_ways(parse_size(argv[i], THREADS_MAX), rounds);
    for (size_t i = 0; argc <= 3 && i < sizeof(usual) / sizeof(*usual); i++)
        compare_ways(usual[i], rounds);
    shed_cache_close(cache);
    shed_source_close(source);
    shed_client_close(client);
    return EXIT_SUCCESS;
}
