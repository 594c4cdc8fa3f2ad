/*
 * What a hit costs: shed_get beside a blocking GET of hiredis of the same
 * entry, from one thread and from many, in turn in one run, so that a noisy
 * machine is noisy for both. hiredis gets a connection per thread.
 *
 * usage: bench_hit REDIS_SOCKET [THREADS [ROUNDS]]
 */
#include <hiredis/hiredis.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <snowshed/snowshed.h>

#include "base/clock.h"

#define PAYLOAD_BYTES 1000
#define THREADS_MAX 1024
#define SLICE_MS 400
#define SINGLE_SLICE_MS 200
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
        if (shed_get(cache, shed_str(KEY), 0, &value, &err) != SHED_OK)
            die(err.reason);
        if (shed_value_size(value) != PAYLOAD_BYTES)
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

/* Gets per second of so many threads. */
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

static void compare_ways(size_t threads, unsigned slice_ms, size_t rounds)
{
    double *hiredis = calloc(3 * rounds, sizeof(*hiredis));
    double *snowshed = hiredis + rounds, *ratio = snowshed + rounds;

    if (hiredis == NULL)
        die("memory is out");
    for (size_t i = 0; i < rounds; i++) {
        hiredis[i] = measure(threads, true, slice_ms);
        snowshed[i] = measure(threads, false, slice_ms);
        ratio[i] = hiredis[i] / snowshed[i];
    }
    (void)printf("%4zu %14.0f %14.0f %20.2f\n", threads,
                 median(hiredis, rounds), median(snowshed, rounds),
                 median(ratio, rounds));
    free(hiredis);
}

static void no_load(void *user, void *thread, struct shed_load *load)
{
    (void)user;
    (void)thread;
    shed_load_done(load);
}

int main(int argc, char **argv)
{
    static const char payload[PAYLOAD_BYTES];
    size_t threads = argc > 2 ? strtoull(argv[2], NULL, 10) : 64;
    size_t rounds = argc > 3 ? strtoull(argv[3], NULL, 10) : 11;
    struct shed_client *client = NULL;
    struct shed_source *source = NULL;
    struct shed_error err;
    char uri[200];

    if (argc < 2 || threads < 1 || threads > THREADS_MAX || rounds < 1)
        die("usage: bench_hit REDIS_SOCKET [THREADS [ROUNDS]]");
    socket_path = argv[1];
    (void)snprintf(uri, sizeof(uri), "unix:%s", socket_path);
    if (shed_client_open(uri, NULL, &client, &err) != SHED_OK ||
        shed_source_open(no_load, NULL, NULL, &source, &err) != SHED_OK ||
        shed_cache_open(client, "bench", source, NULL, &cache, &err) !=
            SHED_OK ||
        shed_put(cache, shed_str(KEY), shed_bytes(payload, sizeof(payload)), 0,
                 &err) != SHED_OK)
        die(err.reason);
    (void)printf("gets per second of a hit of %d bytes, medians of %zu turns\n"
                 "%4s %14s %14s %20s\n",
                 PAYLOAD_BYTES, rounds, "thr.", "hiredis", "snowshed",
                 "cost of snowshed / 1");
    compare_ways(1, SINGLE_SLICE_MS, rounds);
    compare_ways(threads, SLICE_MS, rounds);
    shed_cache_close(cache);
    shed_source_close(source);
    shed_client_close(client);
    return EXIT_SUCCESS;
}
