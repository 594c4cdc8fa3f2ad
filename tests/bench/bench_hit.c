/*
 * What a hit costs: shed_get compared with a blocking GET of the same entry by
 * hiredis, with one thread and with many, alternating in one run, so that a
 * noisy machine disturbs both. hiredis gets a connection per thread.
 *
 * usage: bench_hit REDIS [ROUNDS [THREADS...]]
 *
 * REDIS is the path of a socket, or PORT, tls:PORT or cluster:PORT (a cluster
 * of one node, which hiredis calls like any server) of 127.0.0.1. hiredis 0.14
 * does not speak TLS: its place is taken by OpenSSL on hiredis's socket, with
 * hiredis's commands and replies, as hiredis 1.x does it.
 *
 * SNOWSHED_LINKS=N sets the client's option `links`, SNOWSHED_CA its tls_ca.
 */
#include <hiredis/hiredis.h>
#include <openssl/ssl.h>
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
static const char *socket_path; /* NULL: a port */
static int port;
static bool is_cluster;
static SSL_CTX *context; /* NULL: no TLS */
static atomic_bool is_over;

struct worker {
    pthread_t thread;
    const struct hand *hand; /* NULL: it uses snowshed */
    size_t gets;
};

static void die(const char *what)
{
    (void)fprintf(stderr, "bench_hit: %s\n", what);
    exit(EXIT_FAILURE);
}

/* A connection by hand for each thread, open before the clock runs: a handshake
 * takes as long as many hits. */
static struct hand {
    redisContext *c;
    SSL *ssl; /* NULL: no TLS */
} hands[THREADS_MAX];

static void open_hand(struct hand *h)
{
    h->c = socket_path != NULL ? redisConnectUnix(socket_path)
                               : redisConnect("127.0.0.1", port);
    if (h->c == NULL || h->c->err != 0)
        die("hiredis cannot connect");
    if (context == NULL)
        return;
    h->ssl = SSL_new(context);
    if (h->ssl == NULL || SSL_set_fd(h->ssl, h->c->fd) != 1 ||
        SSL_connect(h->ssl) != 1)
        die("TLS: no connection");
}

static void close_hand(struct hand *h)
{
    SSL_free(h->ssl);
    redisFree(h->c);
    *h = (struct hand){NULL, NULL};
}

/* What redisCommand does, with TLS between. */
static redisReply *ask_by_tls(const struct hand *h)
{
    char *command, bytes[16 * 1024];
    int size = redisFormatCommand(&command, "GET %b", REDIS_KEY,
                                  sizeof(REDIS_KEY) - 1);
    void *reply = NULL;

    if (size < 0 || SSL_write(h->ssl, command, size) != size)
        die("TLS: cannot write");
    redisFreeCommand(command);
    while (reply == NULL) {
        size = SSL_read(h->ssl, bytes, sizeof(bytes));
        if (size <= 0 ||
            redisReaderFeed(h->c->reader, bytes, (size_t)size) != REDIS_OK ||
            redisReaderGetReply(h->c->reader, &reply) != REDIS_OK)
            die("TLS: cannot read");
    }
    return reply;
}

static redisReply *ask(const struct hand *h)
{
    return h->ssl != NULL
               ? ask_by_tls(h)
               : redisCommand(h->c, "GET %b", REDIS_KEY, sizeof(REDIS_KEY) - 1);
}

static size_t run_hiredis(const struct hand *h)
{
    size_t gets = 0;

    for (; !atomic_load_explicit(&is_over, memory_order_relaxed); gets++) {
        redisReply *reply = ask(h);
        if (reply == NULL || reply->type != REDIS_REPLY_STRING)
            die("hiredis: no value");
        freeReplyObject(reply);
    }
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

    w->gets = w->hand != NULL ? run_hiredis(w->hand) : run_snowshed();
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
        worker[i] = (struct worker){.hand = uses_hiredis ? &hands[i] : NULL};
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
    for (size_t i = 0; i < threads; i++)
        open_hand(&hands[i]);
    for (size_t i = 0; i < rounds; i++) {
        hiredis[i] = measure(threads, true, SLICE_MS);
        snowshed[i] = measure(threads, false, SLICE_MS);
        ratio[i] = hiredis[i] / snowshed[i];
    }
    (void)printf("%4zu %14.0f %14.0f %20.2f\n", threads,
                 median(hiredis, rounds), median(snowshed, rounds),
                 median(ratio, rounds));
    (void)fflush(stdout);
    for (size_t i = 0; i < threads; i++)
        close_hand(&hands[i]);
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
        die("usage: bench_hit REDIS [ROUNDS [THREADS...]]");
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
    if (socket_path != NULL)
        (void)snprintf(uri, sizeof(uri), "unix:%s", socket_path);
    else
        (void)snprintf(uri, sizeof(uri), "%s%s://127.0.0.1:%d",
                       context != NULL ? "rediss" : "redis",
                       is_cluster ? "+cluster" : "", port);
    if (context != NULL)
        options.tls_ca = getenv("SNOWSHED_CA");
    if (shed_client_open(uri, &options, client, &err) != SHED_OK ||
        shed_source_open_batch(no_load, NULL, BARE_SOURCE, source, &err) !=
            SHED_OK ||
        shed_cache_open(*client, "bench", *source, BARE_CACHE, &cache, &err) !=
            SHED_OK ||
        shed_put(cache, shed_str(KEY), shed_bytes(payload, sizeof(payload)),
                 NULL, &err) != SHED_OK)
        die(err.reason);
}

static void choose_server(const char *text)
{
    static const char tls[] = "tls:", cluster[] = "cluster:";
    bool is_tls = strncmp(text, tls, strlen(tls)) == 0;

    is_cluster = strncmp(text, cluster, strlen(cluster)) == 0;
    port = (int)strtol(is_tls       ? text + strlen(tls)
                       : is_cluster ? text + strlen(cluster)
                                    : text,
                       NULL, 10);
    if (port == 0)
        socket_path = text;
    if (!is_tls)
        return;
    context = SSL_CTX_new(TLS_client_method());
    if (context == NULL)
        die("no TLS");
}

int main(int argc, char **argv)
{
    static const size_t usual[] = {1, 2, 4, 8, 16, 64, 256};
    const size_t rounds_max = 100000;
    struct shed_client *client = NULL;
    struct shed_source *source = NULL;
    size_t rounds = argc > 2 ? parse_size(argv[2], rounds_max) : 21;

    if (argc < 2)
        die("usage: bench_hit REDIS [ROUNDS [THREADS...]]");
    choose_server(argv[1]);
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
