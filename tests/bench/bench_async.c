/*
 * What calls cost that no thread waits for:
 *
 *   memory  bytes of one of 100,000 calls that wait for one load, and for loads
 *           of keys of their own (there each has a flight, too), beside its key
 *   hits    per second, of rows of 1 kB, with 1,000 calls under way, collected
 *           from a queue; of one key, and of 10,000 in turn. Compare with
 *           redis-benchmark -P 64 -d 1000 -r 10000 -t get
 *           The CPU time, of both sides of the library, says more where the
 *           machine has other work
 *
 * usage: bench_async SOCKET [MS]
 */
#include <malloc.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <snowshed/async.h>
#include <snowshed/source.h>

#include "base/clock.h"
#include "support/bare.h"

enum { CALLS = 100000, WINDOW = 1000, KEYS = 10000, PAYLOAD_BYTES = 1000 };
#define KEY_BYTES 16
#define MS_PER_S 1000
#define US_PER_S 1e6

static struct shed_cache *cache;
static struct shed_queue *queue;
static size_t done_calls, failed_calls, hits;
static atomic_bool is_held;

static void die(const char *what)
{
    (void)fprintf(stderr, "bench_async: %s\n", what);
    exit(EXIT_FAILURE);
}

static void load(void *user, void *thread, struct shed_load *load)
{
    static const char payload[PAYLOAD_BYTES];
    struct shed_answer answer = SHED_ANSWER_INIT;

    answer.kind = SHED_ANSWER_ROW;
    answer.row = shed_bytes(payload, sizeof(payload));
    (void)user;
    (void)thread;
    while (atomic_load(&is_held))
        (void)poll(NULL, 0, 1);
    for (size_t i = 0; i < load->count; i++)
        shed_load_answer(load, i, &answer);
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
        die(err.reason);
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
    struct shed_client_options client_options = bare_client();
    struct shed_source_options source_options = bare_source();
    struct shed_cache_options o = bare_cache();
    struct shed_client *client = NULL;
    struct shed_source *source = NULL;
    struct shed_error err;

    o.ttl_ms = 3600000;
    o.timeout_ms = 3600000;
    o.async_limit = 2 * CALLS;
    source_options.load_timeout_ms = 600000;
    source_options.queue_limit = 1000000;
    if (shed_queue_open(&queue, &err) != SHED_OK ||
        shed_client_open(uri, &client_options, &client, &err) != SHED_OK ||
        shed_source_open_batch(load, NULL, &source_options, &source, &err) !=
            SHED_OK ||
        shed_cache_open(client, "bench_async", source, &o, &cache, &err) !=
            SHED_OK)
        die(err.reason);
    shed_source_close(source);
    shed_client_close(client);
}

static size_t used_bytes(void)
{
    struct mallinfo2 info = mallinfo2();

    return info.uordblks + info.hblkhd;
}

/* Of keys that are not in Redis yet, from first on. */
static void measure_memory(const char *what, unsigned first, unsigned keys)
{
    size_t before;
    uint64_t begun_us;

    atomic_store(&is_held, true);
    done_calls = 0;
    get(first); /* what the first call allocates once */
    (void)poll(NULL, 0, 200);
    before = used_bytes();
    for (unsigned i = 0; i < CALLS; i++)
        get(first + 1 + i % keys);
    (void)poll(NULL, 0, 2000);
    printf("memory %s: %.0f bytes per call beside its key\n", what,
           (double)(used_bytes() - before) / CALLS - KEY_BYTES);
    begun_us = shed_now_us();
    atomic_store(&is_held, false);
    collect(CALLS + 1);
    printf("memory %s: %zu ended, %zu failed, in %.0f ms\n", what, done_calls,
           failed_calls, (double)(shed_now_us() - begun_us) / MS_PER_S);
}

/* Of this process, in user and system mode. */
static double cpu_us(void)
{
    struct rusage use;

    if (getrusage(RUSAGE_SELF, &use) != 0)
        die("getrusage");
    return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) * US_PER_S +
           (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec);
}

static void measure_hits(const char *what, unsigned keys, uint64_t ms)
{
    uint64_t begun_ms;
    unsigned next = 0;
    double begun_cpu_us;

    done_calls = 0;
    for (unsigned i = 0; i < keys; i++)
        get(i);
    collect(keys);
    done_calls = hits = 0;
    begun_ms = shed_now_ms();
    begun_cpu_us = cpu_us();
    while (shed_now_ms() - begun_ms < ms) {
        while (next < done_calls + WINDOW)
            get(next++ % keys);
        collect(done_calls + 1);
    }
    printf("hits %s: %.0f per second, each %.2f us of CPU time\n", what,
           (double)done_calls * MS_PER_S / (double)(shed_now_ms() - begun_ms),
           (cpu_us() - begun_cpu_us) / (double)done_calls);
    collect(next);
    if (hits < done_calls)
        die("these were no hits: is there a Redis?");
}

int main(int argc, char **argv)
{
    uint64_t ms = argc > 2 ? strtoull(argv[2], NULL, 10) : 2000;
    char uri[256];

    if (argc < 2)
        die("usage: bench_async SOCKET [MS]");
    (void)snprintf(uri, sizeof(uri), "unix:%s", argv[1]);
    open_all(uri);
    measure_hits("of one key", 1, ms);
    measure_hits("of many keys", KEYS, ms);
    measure_memory("of one load", KEYS, 1);
    measure_memory("of many loads", 2 * KEYS, CALLS);
    shed_cache_close(cache);
    shed_queue_close(queue);
    return EXIT_SUCCESS;
}
