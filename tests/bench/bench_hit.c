/*
 * What a hit costs: shed_get compared with a blocking GET of the same entry by
 * hiredis, with one thread and with many, and shed_get_many of 100 keys with
 * MGET, alternating in one run, so that a noisy machine disturbs both. hiredis
 * gets a connection per thread.
 *
 * usage: bench_hit SOCKET [ROUNDS [THREADS...]]; with THREADS without
 * shed_get_many
 *
 * SNOWSHED_LINKS=N sets the client's option `links`.
 */
#include <stdio.h>
#include <stdlib.h>

#include <snowshed/snowshed.h>

#include "bench.h"
#include "support/bare.h"

enum { SLICE_MS = 100, MANY = 100 };
#define KEY "hot"
#define REDIS_KEY "bench:{hot}"

static struct shed_cache *cache;

/* A connection by hand for each thread, open before the clock runs. */
static redisContext *hands[BENCH_THREADS_MAX];

static void get_by_hand(size_t number)
{
    redisReply *reply =
        redisCommand(hands[number], "GET %b", REDIS_KEY, sizeof(REDIS_KEY) - 1);

    if (reply == NULL || reply->type != REDIS_REPLY_STRING)
        bench_die("hiredis: no value");
    freeReplyObject(reply);
}

static void take(struct shed_value *value)
{
    if (value == NULL || value->size != BENCH_PAYLOAD_BYTES)
        bench_die("snowshed: not the value");
    shed_value_unref(value);
}

static void get(size_t number)
{
    struct shed_value *value;
    struct shed_error err;

    (void)number;
    if (shed_get(cache, shed_str(KEY), NULL, &value, &err) != SHED_OK)
        bench_die(err.reason);
    take(value);
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
    reply = redisCommandArgv(hands[number], 1 + MANY, words, NULL);
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
    for (int i = 0; i < MANY; i++)
        take(items[i].value);
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

static void compare_ways(const char *socket, const struct contest *c,
                         size_t threads, double bar, size_t rounds)
{
    double *values = bench_allocate(3 * rounds, sizeof(*values));
    double *rates[] = {values, values + rounds, values + 2 * rounds};

    for (size_t i = 0; i < threads; i++)
        hands[i] = bench_connect(socket);
    for (size_t i = 0; i < rounds; i++) {
        rates[0][i] = bench_run(threads, c->by_hand, SLICE_MS).per_s;
        rates[1][i] = bench_run(threads, c->by_snowshed, SLICE_MS).per_s;
        rates[2][i] = rates[0][i] / rates[1][i];
    }
    print_ways(c, threads, bar, rates, rounds);
    for (size_t i = 0; i < threads; i++)
        redisFree(hands[i]);
    free(values);
}

static void open_cache(const char *socket)
{
    struct shed_client_options options = bare_client();
    const char *links = getenv("SNOWSHED_LINKS");
    char uri[200];

    if (links != NULL)
        options.links = strtoull(links, NULL, 10);
    (void)snprintf(uri, sizeof(uri), "unix:%s", socket);
    cache = bench_open(uri, &options, BARE_SOURCE, BARE_CACHE, NULL, NULL);
    bench_put(cache, KEY);
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
        bench_die("usage: bench_hit SOCKET [ROUNDS [THREADS...]]");
    open_cache(argv[1]);
    (void)printf("gets per second of rows of %d bytes, medians of %zu turns\n"
                 "%-12s %4s %14s %14s %20s\n",
                 BENCH_PAYLOAD_BYTES, rounds, "", "thr.", "hiredis", "snowshed",
                 "cost of snowshed / 1");
    for (int i = 3; i < argc; i++)
        compare_ways(argv[1], &single,
                     bench_number(argc, argv, i, 1, BENCH_THREADS_MAX), 0,
                     rounds);
    for (size_t i = 0; argc <= 3 && i < sizeof(usual) / sizeof(*usual); i++)
        compare_ways(argv[1], &single, usual[i].threads, usual[i].bar, rounds);
    if (argc <= 3) {
        put_many();
        compare_ways(argv[1], &many, 1, 1.10, rounds);
    }
    shed_cache_close(cache);
    return EXIT_SUCCESS;
}
