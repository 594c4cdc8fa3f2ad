/*
 * Four processes, each with 50 callers of one key, when its row expires: how
 * many loads and commands of Redis an expiry costs, those in scripts and of the
 * sessions included, and how long callers wait after the load. The callers come
 * within 30 ms, and the load takes 50 ms.
 *
 *   blocking  each caller is a thread
 *   async     those of a process are calls that one thread begins and collects
 *             from a queue
 *
 * usage: bench_stampede SOCKET blocking|async [EXPIRIES]
 */
#define _GNU_SOURCE /* ppoll */
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <snowshed/async.h>

#include "base/clock.h"
#include "bench.h"
#include "support/answers.h"
#include "support/bare.h"

enum {
    PROCESSES = 4,
    CALLERS = 50, /* of each */
    ALL = PROCESSES * CALLERS,
    WARM_UP = 3, /* rounds that are not counted */
    TTL_MS = 200,
    EXPIRED_MS = 50, /* more than Redis takes to store it */
    LOAD_US = 50000,
    COME_WITHIN_US = 30000 /* after the row has expired */
};

/* All processes have it. */
static struct shared {
    pthread_barrier_t barrier; /* all callers and main */
    atomic_bool is_over;
    _Atomic uint64_t begin_us, load_end_us;
    atomic_uint loads;
    uint64_t done_us[ALL];
} * shared;

struct caller {
    size_t i; /* of all */
    uint64_t come_us;
};

static struct shed_cache *cache;
static struct shed_queue *queue;
static struct caller callers[CALLERS];
static size_t ended;

/* -------------------------------------------------------------- a process */

static void load(void *user, void *thread, struct shed_load *l)
{
    (void)user;
    (void)thread;
    atomic_fetch_add(&shared->loads, 1);
    bench_sleep_until(shed_now_us() + LOAD_US);
    atomic_store(&shared->load_end_us, shed_now_us());
    answer_row(l, 0, shed_str("row"));
    shed_load_done(l);
}

static void open_all(const char *socket)
{
    struct shed_cache_options options = bare_cache();
    struct shed_error err;

    options.ttl_ms = TTL_MS;
    options.ttl_jitter_pct = 0;
    cache = bench_open(bench_uri(socket), BARE_CLIENT, BARE_SOURCE, &options,
                       load, NULL);
    if (shed_queue_open(&queue, &err) != SHED_OK)
        bench_die(err.reason);
}

static void note(struct caller *c, enum shed_code code,
                 struct shed_value *value)
{
    if (code != SHED_OK)
        bench_die("a call has failed");
    shed_value_unref(value);
    shared->done_us[c->i] = shed_now_us();
    ended++; /* of asynchronous calls */
}

static void on_done(void *user, enum shed_code code, struct shed_value *value,
                    const struct shed_error *reason)
{
    (void)reason;
    note(user, code, value);
}

static void begin(struct caller *c)
{
    const struct shed_then then = {on_done, c, queue};

    if (shed_get_async(cache, shed_str("hot"), NULL, &then, NULL, NULL, NULL) !=
        SHED_OK)
        bench_die("a call was refused");
}

static int come_earlier(const void *a, const void *b)
{
    const struct caller *x = a, *y = b;

    return (x->come_us > y->come_us) - (x->come_us < y->come_us);
}

static void draw(struct caller *c, unsigned *seed)
{
    c->come_us = (uint64_t)rand_r(seed) % COME_WITHIN_US;
}

/* One thread begins each call when it is due, and collects what has ended. */
static void run_async(unsigned seed)
{
    struct pollfd fd = {shed_queue_fd(queue), POLLIN, 0};

    for (;;) {
        size_t begun = 0;
        for (size_t i = 0; i < CALLERS; i++)
            draw(&callers[i], &seed);
        qsort(callers, CALLERS, sizeof(*callers), come_earlier);
        ended = 0;
        (void)pthread_barrier_wait(&shared->barrier);
        if (atomic_load(&shared->is_over))
            return;
        while (ended < CALLERS) {
            uint64_t now_us = shed_now_us(),
                     begin_us = atomic_load(&shared->begin_us);
            struct timespec wait = {.tv_nsec = 0};
            while (begun < CALLERS &&
                   begin_us + callers[begun].come_us <= now_us)
                begin(&callers[begun++]);
            if (begun < CALLERS)
                wait.tv_nsec =
                    (long)(begin_us + callers[begun].come_us - now_us) * 1000;
            (void)ppoll(&fd, 1, begun < CALLERS ? &wait : NULL, NULL);
            (void)shed_queue_collect(queue, CALLERS);
        }
        (void)pthread_barrier_wait(&shared->barrier);
    }
}

static void *run_blocking(void *arg)
{
    struct caller *c = arg;
    unsigned seed = (unsigned)c->i;

    for (;;) {
        struct shed_value *value = NULL;
        draw(c, &seed);
        (void)pthread_barrier_wait(&shared->barrier);
        if (atomic_load(&shared->is_over))
            return NULL;
        bench_sleep_until(atomic_load(&shared->begin_us) + c->come_us);
        if (shed_get(cache, shed_str("hot"), NULL, &value, NULL) != SHED_OK)
            bench_die("a call has failed");
        shed_value_unref(value);
        shared->done_us[c->i] = shed_now_us();
        (void)pthread_barrier_wait(&shared->barrier);
    }
}

static void run_process(size_t number, const char *socket, bool is_async)
{
    open_all(socket);
    for (size_t i = 0; i < CALLERS; i++)
        callers[i].i = number * CALLERS + i;
    if (is_async)
        run_async((unsigned)number);
    else
        bench_on_threads(CALLERS, run_blocking, callers, sizeof(*callers));
    shed_cache_close(cache);
    shed_queue_close(queue);
}

/* ------------------------------------------------------------------- figures
 */

/* Of those who were there when the load ended. */
static size_t note_waits(double *waits)
{
    uint64_t end_us = atomic_load(&shared->load_end_us);
    size_t count = 0;

    if (end_us < atomic_load(&shared->begin_us))
        return 0; /* the machine stood still, and the row had not expired */

    for (size_t i = 0; i < ALL; i++)
        if (shared->done_us[i] > end_us)
            waits[count++] = (double)(shared->done_us[i] - end_us) / 1e3;
    return count;
}

static void print_waits(const char *kind, bool is_async, double *ms,
                        size_t count)
{
    static const struct {
        const char *name;
        double at, bar[2];
    } parts[] = {{"p50", 0.5, {1.1, 0.8}},
                 {"p99", 0.99, {2.8, 2}},
                 {"max", 1, {5.2, 3}}};

    (void)printf("wait after the load, ms\n");
    for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++) {
        const struct bench_figure figure = {.unit = "ms",
                                            .bar = parts[i].bar[is_async]};
        double wait_ms = bench_at(ms, count, parts[i].at);
        (void)printf("  %-20s %8.2f\n", parts[i].name,
                     bench_note(&wait_ms, 1, figure, "stampede, %s: wait, %s",
                                kind, parts[i].name));
    }
}

static void print(const struct bench_commands *commands, const char *kind,
                  size_t rounds)
{
    double loads = (double)atomic_load(&shared->loads) / (double)rounds,
           all = bench_calls(commands, NULL) / (double)rounds;

    (void)bench_note(&all, 1, (struct bench_figure){.unit = "", .bar = 16},
                     "stampede, %s: commands per expiry", kind);
    (void)bench_note(&loads, 1, (struct bench_figure){.unit = "", .bar = 1},
                     "stampede, %s: loads per expiry", kind);
    (void)printf("%d processes, %d %s callers each, %zu expiries\n"
                 "loads per expiry       %8.3f\n"
                 "commands per expiry    %8.1f\n",
                 PROCESSES, CALLERS, kind, rounds, loads, all);
    for (size_t i = 0; commands->of[i].name[0] != '\0'; i++)
        (void)printf("  %-20s %8.2f\n", commands->of[i].name,
                     (double)commands->of[i].calls / (double)rounds);
}

/* ------------------------------------------------------------------- rounds */

static void share(size_t waiting)
{
    pthread_barrierattr_t attr;

    shared = bench_share(sizeof(*shared));
    (void)pthread_barrierattr_init(&attr);
    (void)pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    (void)pthread_barrier_init(&shared->barrier, &attr, (unsigned)waiting);
}

/* The row of the last round has expired when the first caller comes. */
static void run_round(redisContext *redis)
{
    uint64_t stored_us = atomic_load(&shared->load_end_us),
             begin_us = atomic_load(&shared->begin_us);

    if (stored_us < begin_us) /* by a round before: the row was there */
        stored_us = begin_us;
    bench_sleep_until(stored_us + (uint64_t)(TTL_MS + EXPIRED_MS) * 1000);
    bench_do(redis, "CONFIG RESETSTAT");
    atomic_store(&shared->begin_us, shed_now_us() + 2000);
    (void)pthread_barrier_wait(&shared->barrier);
    (void)pthread_barrier_wait(&shared->barrier);
}

int main(int argc, char **argv)
{
    bool is_async = argc > 2 && strcmp(argv[2], "async") == 0;
    size_t rounds = bench_number(argc, argv, 3, 100, 100000), count = 0;
    struct bench_commands commands = {0};
    double *waits = bench_allocate(rounds * ALL, sizeof(*waits));
    redisContext *redis;

    if (argc < 3 || (!is_async && strcmp(argv[2], "blocking") != 0))
        bench_die("usage: bench_stampede SOCKET blocking|async [EXPIRIES]");
    redis = bench_connect(argv[1]);
    share((is_async ? (size_t)PROCESSES : (size_t)ALL) + 1);
    for (size_t i = 0; i < PROCESSES; i++)
        if (bench_fork() == 0) {
            run_process(i, argv[1], is_async);
            _exit(EXIT_SUCCESS);
        }
    for (size_t i = 0; i < rounds + WARM_UP; i++) {
        run_round(redis);
        if (i == WARM_UP - 1)
            atomic_store(&shared->loads, 0);
        if (i < WARM_UP)
            continue;
        bench_count(redis, &commands);
        count += note_waits(waits + count);
    }
    atomic_store(&shared->is_over, true);
    (void)pthread_barrier_wait(&shared->barrier);
    bench_wait_for_children();
    print(&commands, argv[2], rounds);
    print_waits(argv[2], is_async, waits, count);
    redisFree(redis);
    free(waits);
    return EXIT_SUCCESS;
}
