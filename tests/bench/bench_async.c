/*
 * What calls cost that no thread waits for:
 *
 *   memory  bytes of one of 100,000 calls that wait for one load, and for loads
 *           of keys of their own (there each has a flight, too), beside its key
 *   hits    per second, of rows of 1 kB, with 1,000 calls under way, collected
 *           from a queue; of one key, and of 10,000, beside redis-benchmark,
 *           which has 64 GETs under way on each of 50 connections. They
 *           alternate. The processor time, of which two cores have so much as
 *           all sides may use, says more where the machine has other work
 *
 * usage: bench_async SOCKET [TURNS]
 */
#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <snowshed/async.h>

#include "base/clock.h"
#include "bench.h"
#include "support/answers.h"
#include "support/bare.h"

enum { CALLS = 100000, WINDOW = 1000, KEYS = 10000 };
enum { TURN_MS = 500, BENCHMARK_GETS = 200000, TURNS_MAX = 101 };
#define KEY_BYTES 16
#define MS_PER_S 1000
#define US_PER_S 1e6

static struct shed_cache *cache;
static struct shed_queue *queue;
static size_t done_calls, failed_calls, hits;
static atomic_bool is_held;
static redisContext *redis;

static void load(void *user, void *thread, struct shed_load *load)
{
    static const char payload[BENCH_PAYLOAD_BYTES];

    (void)user;
    (void)thread;
    while (atomic_load(&is_held))
        (void)poll(NULL, 0, 1);
    for (size_t i = 0; i < load->count; i++)
        answer_row(load, i, shed_bytes(payload, sizeof(payload)));
    shed_load_done(load);
}

static void on_done(void *user, enum shed_code code, struct shed_value *value,
                    const struct shed_error *reason)
{
    (void)user;
    (void)reason;
    done_calls++;
    failed_calls += code != SHED_OK;
    hits += code == SHED_OK && value->origin == SHED_ORIGIN_REDIS;
    shed_value_unref(value);
}

static void get(unsigned number)
{
    const struct shed_then then = {on_done, NULL, queue};
    const unsigned ten = 10;
    char key[KEY_BYTES];
    struct shed_error err;

    memset(key, '0', sizeof(key));
    for (size_t i = KEY_BYTES; number > 0; number /= ten)
        key[--i] = (char)('0' + number % ten);
    if (shed_get_async(cache, shed_bytes(key, KEY_BYTES), NULL, &then, NULL,
                       NULL, &err) != SHED_OK)
        bench_die(err.reason);
}

static void collect(size_t wanted)
{
    struct pollfd fd = {shed_queue_fd(queue), POLLIN, 0};

    while (done_calls < wanted) {
        (void)poll(&fd, 1, -1);
        (void)shed_queue_collect(queue, WINDOW);
    }
}

static void open_all(const char *uri)
{
    struct shed_source_options source_options = bare_source();
    struct shed_cache_options o = bare_cache();
    struct shed_error err;

    o.ttl_ms = 3600000;
    o.timeout_ms = 3600000;
    o.async_limit = 2 * CALLS;
    source_options.load_timeout_ms = 600000;
    source_options.queue_limit = 1000000;
    if (shed_queue_open(&queue, &err) != SHED_OK)
        bench_die(err.reason);
    cache = bench_open(uri, BARE_CLIENT, &source_options, &o, load, NULL);
}

/* Of keys that are not in Redis yet, from first on. */
static void measure_memory(const char *what, unsigned first, unsigned keys,
                           double bar)
{
    size_t before;
    uint64_t begun_us;
    double bytes;

    atomic_store(&is_held, true);
    done_calls = 0;
    get(first); /* what the first call allocates once */
    (void)poll(NULL, 0, 200);
    before = bench_used_bytes();
    for (unsigned i = 0; i < CALLS; i++)
        get(first + 1 + i % keys);
    (void)poll(NULL, 0, 2000);
    bytes = (double)(bench_used_bytes() - before) / (double)CALLS - KEY_BYTES;
    printf("memory %s: %.0f bytes per call beside its key\n", what,
           bench_note(&bytes, 1,
                      (struct bench_figure){
                          .unit = "bytes", .bar = bar, .is_exact = true},
                      "async: bytes of a call, %s", what));
    begun_us = shed_now_us();
    atomic_store(&is_held, false);
    collect(CALLS + 1);
    printf("memory %s: %zu ended, %zu failed, in %.0f ms\n", what, done_calls,
           failed_calls, (double)(shed_now_us() - begun_us) / MS_PER_S);
}

/* ------------------------------------------------------------------ the hits
 */

/* What a GET has cost in one turn. */
struct turn {
    double rate;     /* per second */
    double own_us;   /* of processor time, beside Redis */
    double redis_us; /* in Redis */
};

/* Of this process or of its children, in user and system mode. */
static double cpu_us(int who)
{
    struct rusage use;

    if (getrusage(who, &use) != 0)
        bench_die("getrusage");
    return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) * US_PER_S +
           (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec);
}

static double redis_cpu_us(void)
{
    static const char *const fields[] = {"used_cpu_sys:", "used_cpu_user:"};
    redisReply *reply = bench_ask(redis, "INFO cpu");
    double us = 0;

    for (size_t i = 0; i < sizeof(fields) / sizeof(*fields); i++)
        us += strtod(strstr(reply->str, fields[i]) + strlen(fields[i]), NULL) *
              US_PER_S;
    freeReplyObject(reply);
    return us;
}

/* Have redis-benchmark set or get that many keys. */
static struct turn benchmark(const char *socket, const char *command,
                             unsigned keys)
{
    double begun_us = cpu_us(RUSAGE_CHILDREN), begun_redis_us = redis_cpu_us();
    struct turn turn = {.rate = 0};
    char text[512];
    FILE *pipe;

    (void)snprintf(text, sizeof(text),
                   "redis-benchmark -s %s -P 64 -d %d -r %u -n %d -t %s --csv",
                   socket, BENCH_PAYLOAD_BYTES, keys, BENCHMARK_GETS, command);
    pipe = popen(text, "r");
    while (pipe != NULL && fgets(text, sizeof(text), pipe) != NULL)
        (void)sscanf(text, "\"%*[GSET]\",\"%lf\"", &turn.rate);
    if (pipe == NULL || pclose(pipe) != 0 || turn.rate <= 0)
        bench_die("redis-benchmark has failed");
    turn.own_us = (cpu_us(RUSAGE_CHILDREN) - begun_us) / (double)BENCHMARK_GETS;
    turn.redis_us = (redis_cpu_us() - begun_redis_us) / (double)BENCHMARK_GETS;
    return turn;
}

static struct turn hit(unsigned keys)
{
    uint64_t begun_us = shed_now_us();
    double begun_own_us = cpu_us(RUSAGE_SELF), begun_redis_us = redis_cpu_us();
    unsigned next = 0;
    struct turn turn;

    done_calls = hits = 0;
    while (shed_now_us() - begun_us < (uint64_t)TURN_MS * MS_PER_S) {
        while (next < done_calls + WINDOW)
            get(next++ % keys);
        collect(done_calls + 1);
    }
    collect(next);
    if (hits < next)
        bench_die("these were no hits: is there a Redis?");
    turn.rate = next * US_PER_S / (double)(shed_now_us() - begun_us);
    turn.own_us = (cpu_us(RUSAGE_SELF) - begun_own_us) / next;
    turn.redis_us = (redis_cpu_us() - begun_redis_us) / next;
    return turn;
}

static void print_turns(const char *what, struct turn *turns, unsigned count)
{
    double of[3][TURNS_MAX];

    for (unsigned i = 0; i < count; i++) {
        of[0][i] = turns[i].rate;
        of[1][i] = turns[i].own_us;
        of[2][i] = turns[i].redis_us;
    }
    printf("  %-16s%10.0f%12.2f%12.2f\n", what, bench_at(of[0], count, 0.5),
           bench_at(of[1], count, 0.5), bench_at(of[2], count, 0.5));
}

static void print_ratio(const char *keys, const char *what, double bar,
                        double *ratio, unsigned count)
{
    const struct bench_figure figure = {
        .unit = "", .bar = bar, .is_more_better = true};

    printf("  asynchronous / redis-benchmark, %s: %.2f (turn by turn %.2f to "
           "%.2f)\n",
           what,
           bench_note(ratio, count, figure,
                      "async hits %s / redis-benchmark, %s", keys, what),
           bench_at(ratio, count, 0), bench_at(ratio, count, 1));
}

static void measure_hits(const char *what, const char *socket, unsigned keys,
                         double bar, unsigned count)
{
    struct turn ours[TURNS_MAX], theirs[TURNS_MAX];
    double rate[TURNS_MAX], us[TURNS_MAX];

    done_calls = 0;
    for (unsigned i = 0; i < keys; i++)
        get(i);
    collect(keys);
    (void)benchmark(socket, "set", keys);
    for (unsigned i = 0; i < count; i++) {
        ours[i] = hit(keys);
        theirs[i] = benchmark(socket, "get", keys);
        rate[i] = ours[i].rate / theirs[i].rate;
        us[i] = (theirs[i].own_us + theirs[i].redis_us) /
                (ours[i].own_us + ours[i].redis_us);
    }
    printf("hits %-17s per second  us of processor  in Redis\n", what);
    print_turns("asynchronous", ours, count);
    print_turns("redis-benchmark", theirs, count);
    print_ratio(what, "per second", bar, rate, count);
    print_ratio(what, "by processor time", 0, us, count);
}

int main(int argc, char **argv)
{
    unsigned turns = (unsigned)bench_number(argc, argv, 2, 11, TURNS_MAX);

    if (argc < 2)
        bench_die("usage: bench_async SOCKET [TURNS]");
    open_all(bench_uri(argv[1]));
    redis = bench_connect(argv[1]);
    measure_hits("of one key", argv[1], 1, 0, turns);
    measure_hits("of many keys", argv[1], KEYS, 0.8, turns);
    measure_memory("of one load", KEYS, 1, 400);
    measure_memory("of many loads", 2 * KEYS, CALLS, 0);
    shed_cache_close(cache);
    shed_queue_close(queue);
    redisFree(redis);
    return EXIT_SUCCESS;
}
