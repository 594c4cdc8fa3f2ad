/*
 * What a hit costs: shed_get compared with a blocking GET of the same entry by
 * hiredis, with one thread and with many, and shed_get_many of 100 keys with
 * MGET, alternating in one run, so that a noisy machine disturbs both. hiredis
 * gets a connection per thread.
 *
 * usage: bench_hit REDIS [ROUNDS [THREADS...]]; with THREADS without
 * shed_get_many
 *
 * REDIS is the path of a socket, or PORT, tls:PORT or cluster:PORT (a cluster
 * of one node, which hiredis calls like any server) of 127.0.0.1. hiredis 0.14
 * does not speak TLS: its place is taken by OpenSSL on hiredis's socket, with
 * hiredis's commands and replies, as hiredis 1.x does it.
 *
 * SNOWSHED_LINKS=N sets the client's option `links`, SNOWSHED_CA its tls_ca.
 */
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <snowshed/snowshed.h>

#include "bench.h"
#include "support/bare.h"

enum { SLICE_MS = 100, MANY = 100 };
#define KEY "hot"
#define REDIS_KEY "bench:{hot}"

static struct shed_cache *cache;
static const char *socket_path; /* NULL: a port */
static int port;
static bool is_cluster;
static SSL_CTX *context; /* NULL: no TLS */

/* A connection by hand for each thread, open before the clock runs: a handshake
 * takes as long as many hits. */
static struct hand {
    redisContext *c;
    SSL *ssl; /* NULL: no TLS */
} hands[BENCH_THREADS_MAX];

static void open_hand(struct hand *h)
{
    h->c = socket_path != NULL ? redisConnectUnix(socket_path)
                               : redisConnect("127.0.0.1", port);
    if (h->c == NULL || h->c->err != 0)
        bench_die("hiredis cannot connect");
    if (context == NULL)
        return;
    h->ssl = SSL_new(context);
    if (h->ssl == NULL || SSL_set_fd(h->ssl, h->c->fd) != 1 ||
        SSL_connect(h->ssl) != 1)
        bench_die("TLS: no connection");
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
        bench_die("TLS: cannot write");
    redisFreeCommand(command);
    while (reply == NULL) {
        size = SSL_read(h->ssl, bytes, sizeof(bytes));
        if (size <= 0 ||
            redisReaderFeed(h->c->reader, bytes, (size_t)size) != REDIS_OK ||
            redisReaderGetReply(h->c->reader, &reply) != REDIS_OK)
            bench_die("TLS: cannot read");
    }
    return reply;
}

static void get_by_hand(size_t number)
{
    const struct hand *h = &hands[number];
    redisReply *reply = h->ssl != NULL ? ask_by_tls(h)
                                       : redisCommand(h->c, "GET %b", REDIS_KEY,
                                                      sizeof(REDIS_KEY) - 1);

    if (reply == NULL || reply->type != REDIS_REPLY_STRING)
        bench_die("hiredis: no value");
    freeReplyObject(reply);
}

static void get(size_t number)
{
    (void)number;
    bench_get(cache, KEY);
}

/* ---------------------------------------------------------------- many keys */

static char keys[MANY][8], redis_keys[MANY][24];

static void put_many(void)
{
    for (int i = 0; i < MANY; i++) {
        (void)snprintf(keys[i], sizeof(keys[i]), "%d", i);
        (void)snprintf(redis_keys[i], sizeof(redis_keys[i]), "bench:{%d}", i);
        bench_put(cache, keys[i]);
    }
}

static void get_many_by_hand(size_t number)
{
    const char *words[1 + MANY] = {"MGET"};
    redisReply *reply;

    for (int i = 0; i < MANY; i++)
        words[1 + i] = redis_keys[i];
    reply = redisCommandArgv(hands[number].c, 1 + MANY, words, NULL);
    if (reply == NULL || reply->type != REDIS_REPLY_ARRAY ||
        reply->element[MANY - 1]->type != REDIS_REPLY_STRING)
        bench_die("hiredis: no values");
    freeReplyObject(reply);
}

static void get_many(size_t number)
{
    struct shed_item items[MANY];
    struct shed_error err;

    (void)number;
    for (int i = 0; i < MANY; i++)
        items[i] = (struct shed_item){.key = shed_str(keys[i])};
    if (shed_get_many(cache, items, MANY, NULL, &err) != SHED_OK)
        bench_die(err.reason);
    for (int i = 0; i < MANY; i++) {
        if (items[i].value == NULL ||
            items[i].value->size != BENCH_PAYLOAD_BYTES)
            bench_die("not the values");
        shed_value_unref(items[i].value);
    }
}

/* --------------------------------------------------------------- comparison */

struct contest {
    const char *what;
    void (*by_hand)(size_t number), (*by_snowshed)(size_t number);
};

static const struct contest single = {"GET", get_by_hand, get};
static const struct contest many = {"MGET of 100", get_many_by_hand, get_many};

static void print_ways(const struct contest *c, size_t threads, double bar,
                       double *rates[3], size_t rounds)
{
    const struct bench_figure cost = {.unit = "", .bar = bar},
                              rate = {.unit = "/s", .is_more_better = true};
    const char *many_threads = threads > 1 ? "threads" : "thread";
    double median_cost =
        bench_note(rates[2], rounds, cost, "%s, %zu %s: hiredis / snowshed",
                   c->what, threads, many_threads);

    (void)printf("%-12s %4zu %14.0f %14.0f %20.2f\n", c->what, threads,
                 bench_at(rates[0], rounds, 0.5),
                 bench_note(rates[1], rounds, rate, "%s, %zu %s: rate", c->what,
                            threads, many_threads),
                 median_cost);
    (void)fflush(stdout);
}

static void compare_ways(const struct contest *c, size_t threads, double bar,
                         size_t rounds)
{
    double *values = bench_allocate(3 * rounds, sizeof(*values));
    double *rates[] = {values, values + rounds, values + 2 * rounds};

    for (size_t i = 0; i < threads; i++)
        open_hand(&hands[i]);
    for (size_t i = 0; i < rounds; i++) {
        rates[0][i] = bench_run(threads, c->by_hand, SLICE_MS).per_s;
        rates[1][i] = bench_run(threads, c->by_snowshed, SLICE_MS).per_s;
        rates[2][i] = rates[0][i] / rates[1][i];
    }
    print_ways(c, threads, bar, rates, rounds);
    for (size_t i = 0; i < threads; i++)
        close_hand(&hands[i]);
    free(values);
}

static void open_cache(void)
{
    struct shed_client_options options = bare_client();
    const char *links = getenv("SNOWSHED_LINKS");
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
    cache = bench_open(uri, &options, BARE_SOURCE, BARE_CACHE, NULL, NULL);
    bench_put(cache, KEY);
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
        bench_die("no TLS");
}

int main(int argc, char **argv)
{
    static const struct {
        size_t threads;
        double bar;
    } usual[] = {{1, 1.05},  {2, 1.05},  {4, 1.05},  {8, 1.05},
                 {16, 1.05}, {64, 0.52}, {256, 0.43}};
    size_t rounds = bench_number(argc, argv, 2, 21, 100000);

    if (argc < 2)
        bench_die("usage: bench_hit REDIS [ROUNDS [THREADS...]]");
    choose_server(argv[1]);
    open_cache();
    (void)printf("gets per second of rows of %d bytes, medians of %zu turns\n"
                 "%-12s %4s %14s %14s %20s\n",
                 BENCH_PAYLOAD_BYTES, rounds, "", "thr.", "hiredis", "snowshed",
                 "cost of snowshed / 1");
    for (int i = 3; i < argc; i++)
        compare_ways(&single, bench_number(argc, argv, i, 1, BENCH_THREADS_MAX),
                     0, rounds);
    for (size_t i = 0; argc <= 3 && i < sizeof(usual) / sizeof(*usual); i++)
        compare_ways(&single, usual[i].threads, usual[i].bar, rounds);
    if (argc <= 3 && context == NULL && !is_cluster) {
        put_many();
        compare_ways(&many, 1, 1.10, rounds);
    }
    shed_cache_close(cache);
    return EXIT_SUCCESS;
}
