/*
 * What an avalanche costs: many keys of which Redis has none, read in pages of
 * 100 by four processes of eight threads each. A page is read once. A query
 * takes 5 ms, and loads up to 100 keys.
 *
 *   commands  that Redis has executed for a key, those in scripts included
 *   queries   for a hundred keys
 *   memory    the most that one of the processes had
 *
 * usage: bench_avalanche SOCKET [KEYS]; the server is emptied
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include <snowshed/snowshed.h>

#include "base/clock.h"
#include "bench.h"
#include "support/answers.h"
#include "support/bare.h"

enum { PROCESSES = 4, THREADS = 8, PAGE = 100, KEYS = 1000000, QUERY_MS = 5 };

/* All processes have it. */
static struct shared {
    atomic_size_t next; /* page */
    atomic_size_t queries, loaded;
} * shared;

static struct shed_cache *cache;
static size_t pages;

static void load(void *user, void *thread, struct shed_load *l)
{
    static const char row[100];

    (void)user;
    (void)thread;
    bench_sleep_until(shed_now_us() + (uint64_t)QUERY_MS * 1000);
    atomic_fetch_add(&shared->queries, 1);
    atomic_fetch_add(&shared->loaded, l->count);
    for (size_t i = 0; i < l->count; i++)
        answer_row(l, i, shed_bytes(row, sizeof(row)));
    shed_load_done(l);
}

static void read_page(size_t page)
{
    struct shed_item items[PAGE];
    char keys[PAGE][16];
    struct shed_error err;

    for (size_t i = 0; i < PAGE; i++) {
        (void)snprintf(keys[i], sizeof(keys[i]), "%zu", page * PAGE + i);
        items[i] = (struct shed_item){.key = shed_str(keys[i])};
    }
    if (shed_get_many(cache, items, PAGE, NULL, &err) != SHED_OK)
        bench_die(err.reason);
    for (size_t i = 0; i < PAGE; i++) {
        if (items[i].code != SHED_OK)
            bench_die("a key has failed");
        shed_value_unref(items[i].value);
    }
}

static void *read_pages(void *unused)
{
    size_t page;

    while ((page = atomic_fetch_add(&shared->next, 1)) < pages)
        read_page(page);
    return unused;
}

static _Noreturn void run_process(const char *uri)
{
    struct shed_cache_options options = bare_cache();

    options.ttl_ms = 3600000;
    cache = bench_open(uri, BARE_CLIENT, BARE_SOURCE, &options, load, NULL);
    bench_on_threads(THREADS, read_pages, shared, 0);
    shed_cache_close(cache);
    _exit(EXIT_SUCCESS);
}

static void print(double commands, double seconds)
{
    double keys = (double)(pages * PAGE), rate = keys / seconds, mib, queries;
    struct rusage use;

    (void)getrusage(RUSAGE_CHILDREN, &use);
    mib = (double)use.ru_maxrss / 1024;
    commands /= keys;
    queries = (double)atomic_load(&shared->queries) / (double)pages;
    (void)bench_note(&commands, 1, (struct bench_figure){.unit = "", .bar = 4},
                     "avalanche: commands for a key");
    (void)bench_note(&queries, 1, (struct bench_figure){.unit = ""},
                     "avalanche: queries for %d keys", PAGE);
    (void)bench_note(
        &rate, 1, (struct bench_figure){.unit = "/s", .is_more_better = true},
        "avalanche: keys");
    (void)bench_note(&mib, 1, (struct bench_figure){.unit = "MiB"},
                     "avalanche: memory of a process");
    (void)printf("%.0f keys, %d processes, %d threads each, pages of %d\n"
                 "commands of Redis for a key  %10.2f\n"
                 "queries for %d keys         %10.2f\n"
                 "loads of a key               %10.3f\n"
                 "seconds                      %10.1f\n"
                 "keys per second              %10.0f\n"
                 "MiB of a process             %10.1f\n",
                 keys, PROCESSES, THREADS, PAGE, commands, PAGE, queries,
                 (double)atomic_load(&shared->loaded) / keys, seconds, rate,
                 mib);
}

int main(int argc, char **argv)
{
    struct bench_commands commands = {0};
    redisContext *redis;
    uint64_t begun_us;

    pages = bench_number(argc, argv, 2, KEYS, 100000000) / PAGE;
    if (argc < 2 || pages == 0)
        bench_die("usage: bench_avalanche SOCKET [KEYS]");
    redis = bench_connect(argv[1]);
    shared = bench_share(sizeof(*shared));
    bench_do(redis, "FLUSHALL");
    bench_do(redis, "CONFIG RESETSTAT");
    begun_us = shed_now_us();
    for (size_t i = 0; i < PROCESSES; i++)
        if (bench_fork() == 0)
            run_process(bench_uri(argv[1]));
    bench_wait_for_children();
    bench_count(redis, &commands);
    print(bench_calls(&commands, NULL),
          (double)(shed_now_us() - begun_us) / 1e6);
    redisFree(redis);
    return EXIT_SUCCESS;
}
