/*
 * What a lock costs: acquire and release by each algorithm, alone and with many
 * contenders in several processes, compared with a hand-written lock over
 * hiredis: SET NX PX and a release script, with a retry every 10 ms while it is
 * taken.
 *
 * usage: bench_lock SOCKET [SOCKET SOCKET SOCKET SOCKET]; tests/bench/run
 * starts the servers. The counters of the first are reset.
 */
#include <hiredis/hiredis.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <snowshed/lock.h>

#include "base/clock.h"
#include "base/random.h"
#include "support/bare.h"

enum {
    SERVERS = 5,
    ALONE_ROUNDS = 7,
    ALONE_MS = 250,
    CROWD_MS = 3000,
    HOLD_US = 1000, /* long enough that the others wait */
    RETRY_US = 10000,
    LEASE_MS = 30000,
    SAMPLES_MAX = 100000,
    KILLS = 10,
    THREADS_MAX = 64,
    MS_PER_S = 1000,
    PERCENT = 100
};

#define NAME "bench"
#define PLENTY_MS ((uint64_t)60000)
#define RELEASE_SCRIPT                                                         \
    "if redis.call('GET', KEYS[1]) == ARGV[1] then "                           \
    "return redis.call('DEL', KEYS[1]) end return 0"

enum way { BY_HAND, SETNX, EXPIRE, TIMESTAMP, LEASE, QUORUM, WAYS };

static const struct {
    const char *name;
    enum shed_lock_algorithm algorithm;
    const char
        *commands; /* commands that are sent, without those inside scripts */
} ways[WAYS] = {
    [BY_HAND] = {"by hand", SHED_LOCK_LEASE, "set evalsha"},
    [SETNX] = {"SETNX", SHED_LOCK_SETNX, "setnx get del"},
    [EXPIRE] = {"EXPIRE", SHED_LOCK_EXPIRE, "setnx pttl expire del evalsha"},
    [TIMESTAMP] = {"TIMESTAMP", SHED_LOCK_TIMESTAMP, "setnx get getset del"},
    [LEASE] = {"LEASE", SHED_LOCK_LEASE, "evalsha eval"},
    [QUORUM] = {"QUORUM", SHED_LOCK_LEASE, "evalsha eval"}};

/* Shared by all processes. */
struct stage {
    atomic_bool is_over;
    atomic_uint ready;
    useconds_t hold_us;
    atomic_uint_fast64_t released_us; /* 0: nobody has released yet */
    atomic_uint holder;               /* 0: nobody */
    atomic_uint last;                 /* the last releaser */
    atomic_size_t acquired;
    atomic_size_t
        count; /* samples: acquires of a lock that another has released */
    uint32_t waited_us[SAMPLES_MAX]; /* from a release to the next holder */
};

static struct stage *stage;
static char **sockets;
static size_t servers;

static _Noreturn void die(const char *what, const char *why)
{
    (void)fprintf(stderr, "bench_lock: %s: %s\n", what, why);
    exit(EXIT_FAILURE);
}

/* ---------------------------------------------------------------- two locks */

/* One contender's lock: a handle of ours, or a connection. */
struct bench_lock {
    enum way way;
    struct shed_lock *lock;
    redisContext *redis;
    char token[40];
    char script_sha[48];
};

static redisReply *run(redisContext *c, const char *format, ...)
{
    va_list arguments;
    redisReply *reply;

    va_start(arguments, format);
    reply = redisvCommand(c, format, arguments);
    va_end(arguments);
    if (reply == NULL || reply->type == REDIS_REPLY_ERROR)
        die("Redis", reply != NULL ? reply->str : c->errstr);
    return reply;
}

static redisContext *connect_to(const char *path)
{
    redisContext *c = redisConnectUnix(path);

    if (c == NULL || c->err != 0)
        die(path, "hiredis cannot connect");
    return c;
}

static void open_by_hand(struct bench_lock *b)
{
    redisReply *reply;

    b->redis = connect_to(sockets[0]);
    (void)snprintf(b->token, sizeof(b->token), "%d-%llx", (int)getpid(),
                   (unsigned long long)shed_random_jitter());
    reply = run(b->redis, "SCRIPT LOAD %s", RELEASE_SCRIPT);
    (void)snprintf(b->script_sha, sizeof(b->script_sha), "%s", reply->str);
    freeReplyObject(reply);
}

static bool try_by_hand(struct bench_lock *b)
{
    redisReply *reply =
        run(b->redis, "SET " NAME " %s NX PX %d", b->token, LEASE_MS);
    bool is_held = reply->type == REDIS_REPLY_STATUS;

    freeReplyObject(reply);
    return is_held;
}

static void acquire(struct bench_lock *b)
{
    struct shed_error err;

    if (b->way == BY_HAND) {
        while (!try_by_hand(b))
            usleep(RETRY_US);
    } else if (shed_lock_acquire(b->lock, PLENTY_MS, &err) != SHED_OK) {
        die(ways[b->way].name, err.reason);
    }
}

static void release(struct bench_lock *b)
{
    struct shed_error err;

    if (b->way == BY_HAND)
        freeReplyObject(
            run(b->redis, "EVALSHA %s 1 " NAME " %s", b->script_sha, b->token));
    else if (shed_lock_release(b->lock, &err) != SHED_OK)
        die(ways[b->way].name, err.reason);
}

/* ------------------------------------------------------------------ handles */

/* One process's handle, which its threads share. */
static struct shed_lock *open_lock(enum way way)
{
    struct shed_lock_options o = SHED_LOCK_OPTIONS_INIT;
    struct shed_client *clients[SERVERS];
    size_t count = way == QUORUM ? SERVERS : 1;
    struct shed_error err;
    struct shed_lock *lock;
    char uri[256];

    /* the servers of a quorum must be older than a lease */
    o.lease_ms = way == QUORUM ? MS_PER_S : LEASE_MS;
    o.algorithm = (uint64_t)ways[way].algorithm;
    for (size_t i = 0; i < count; i++) {
        (void)snprintf(uri, sizeof(uri), "unix:%s", sockets[i]);
        if (shed_client_open(uri, BARE_CLIENT, &clients[i], &err) != SHED_OK)
            die(uri, err.reason);
    }
    if (shed_lock_open_quorum(clients, count, shed_str(NAME), &o, &lock,
                              &err) != SHED_OK)
        die(ways[way].name, err.reason);
    return lock;
}

static struct bench_lock open_bench(enum way way, struct shed_lock *lock)
{
    struct bench_lock b = {.way = way, .lock = lock};

    if (way == BY_HAND)
        open_by_hand(&b);
    return b;
}

static void close_bench(struct bench_lock *b)
{
    if (b->redis != NULL)
        redisFree(b->redis);
}

/* -------------------------------------------------------------------- alone */

static double rate_alone(struct bench_lock *b)
{
    uint64_t begin_us = shed_now_us();
    uint64_t end_ms = shed_now_ms() + ALONE_MS;
    size_t count = 0;

    for (; shed_now_ms() < end_ms; count++) {
        acquire(b);
        release(b);
    }
    return (double)count * 1e6 / (double)(shed_now_us() - begin_us);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

/* All locks alternate, so that a noisy machine disturbs all of them. In a
 * process of its own, so that later forks have no threads. */
static void run_alone(enum way last)
{
    double rates[WAYS][ALONE_ROUNDS];
    struct bench_lock benches[WAYS];

    for (enum way w = BY_HAND; w <= last; w++)
        benches[w] = open_bench(w, w == BY_HAND ? NULL : open_lock(w));
    for (enum way w = BY_HAND; w <= last; w++) {
        acquire(&benches[w]); /* connect, and load the scripts */
        release(&benches[w]);
    }
    for (size_t i = 0; i < ALONE_ROUNDS; i++)
        for (enum way w = BY_HAND; w <= last; w++)
            rates[w][i] = rate_alone(&benches[w]);
    printf("acquire and release, one thread, medians of %d turns\n"
           "             per second   of by hand\n",
           ALONE_ROUNDS);
    for (enum way w = BY_HAND; w <= last; w++)
        qsort(rates[w], ALONE_ROUNDS, sizeof(double), by_value);
    for (enum way w = BY_HAND; w <= last; w++)
        printf("%-12s %10.0f   %10.2f\n", ways[w].name,
               rates[w][ALONE_ROUNDS / 2],
               rates[w][ALONE_ROUNDS / 2] / rates[BY_HAND][ALONE_ROUNDS / 2]);
    (void)fflush(stdout);
    _exit(EXIT_SUCCESS); /* the system closes what is open */
}

/* ---------------------------------------------------------------- the crowd */

/* Count a hand-over, unless the contender takes again what it has just
 * released. */
static void take_sample(unsigned number)
{
    uint64_t released_us = atomic_load(&stage->released_us);
    size_t i;

    atomic_fetch_add(&stage->acquired, 1);
    if (released_us == 0 || atomic_load(&stage->last) == number)
        return;
    i = atomic_fetch_add(&stage->count, 1);
    if (i < SAMPLES_MAX)
        stage->waited_us[i] = (uint32_t)(shed_now_us() - released_us);
}

struct contender {
    pthread_t thread;
    struct bench_lock bench;
    unsigned number;
};

static void *contend(void *arg)
{
    struct contender *c = arg;

    atomic_fetch_add(&stage->ready, 1);
    while (!atomic_load(&stage->is_over)) {
        unsigned nobody = 0;
        acquire(&c->bench);
        take_sample(c->number);
        if (!atomic_compare_exchange_strong(&stage->holder, &nobody, c->number))
            die(ways[c->bench.way].name, "two hold it");
        if (stage->hold_us > 0)
            usleep(stage->hold_us);
        atomic_store(&stage->holder, 0);
        atomic_store(&stage->last, c->number);
        atomic_store(&stage->released_us, shed_now_us());
        release(&c->bench);
    }
    close_bench(&c->bench);
    return NULL;
}

static _Noreturn void contend_in_threads(enum way way, unsigned first,
                                         unsigned threads)
{
    struct contender contenders[THREADS_MAX];
    struct shed_lock *lock = way == BY_HAND ? NULL : open_lock(way);

    for (unsigned i = 0; i < threads; i++) {
        contenders[i].bench = open_bench(way, lock);
        contenders[i].number = first + i + 1;
        if (pthread_create(&contenders[i].thread, NULL, contend,
                           &contenders[i]) != 0)
            die("a thread", "none to be had");
    }
    for (unsigned i = 0; i < threads; i++)
        (void)pthread_join(contenders[i].thread, NULL);
    _exit(EXIT_SUCCESS);
}

/* How many commands a lock has sent. */
static unsigned long long count_commands(redisContext *c, enum way way)
{
    redisReply *reply = run(c, "INFO commandstats");
    unsigned long long total = 0;
    char names[64];
    char *rest = names;

    (void)snprintf(names, sizeof(names), "%s", ways[way].commands);
    for (char *name; (name = strtok_r(rest, " ", &rest)) != NULL;) {
        char key[96];
        const char *at;
        (void)snprintf(key, sizeof(key), "cmdstat_%s:calls=", name);
        at = strstr(reply->str, key);
        if (at != NULL)
            total += strtoull(at + strlen(key), NULL, 10);
    }
    freeReplyObject(reply);
    return total;
}

static int by_number(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return x < y ? -1 : x > y;
}

static size_t count_samples(void)
{
    size_t count = atomic_load(&stage->count);

    return count < SAMPLES_MAX ? count : SAMPLES_MAX;
}

/* clang 19 warns of an enumerator in arithmetic with doubles. */
static double per_second(unsigned long long count)
{
    return (double)count * (double)MS_PER_S / (double)CROWD_MS;
}

/* A percentile of the samples, which are sorted. */
static double percentile_ms(size_t percent)
{
    size_t count = count_samples();

    return count == 0 ? 0
                      : stage->waited_us[(count - 1) * percent / PERCENT] /
                            (double)MS_PER_S;
}

static void wait_for_children(const pid_t *pids, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        int status;
        if (waitpid(pids[i], &status, 0) != pids[i] || status != 0)
            die("a contender", "it failed");
    }
}

static void reset_stage(void)
{
    atomic_store(&stage->is_over, false);
    atomic_store(&stage->ready, 0);
    atomic_store(&stage->released_us, 0);
    atomic_store(&stage->holder, 0);
    atomic_store(&stage->count, 0);
}

static void run_crowd(enum way way, unsigned processes, unsigned threads)
{
    redisContext *c = connect_to(sockets[0]);
    unsigned contenders = processes * threads;
    pid_t pids[THREADS_MAX];
    unsigned long long commands;
    size_t acquired, handed;

    reset_stage();
    for (unsigned i = 0; i < processes; i++) {
        pids[i] = fork();
        if (pids[i] == 0)
            contend_in_threads(way, i * threads, threads);
    }
    while (atomic_load(&stage->ready) < contenders)
        usleep(MS_PER_S);
    usleep(ALONE_MS * MS_PER_S); /* meanwhile all connect */
    freeReplyObject(run(c, "CONFIG RESETSTAT"));
    atomic_store(&stage->acquired, 0);
    atomic_store(&stage->count, 0);
    usleep(CROWD_MS * MS_PER_S);
    acquired = atomic_load(&stage->acquired);
    handed = atomic_load(&stage->count);
    commands = count_commands(c, way);
    atomic_store(&stage->is_over, true);
    wait_for_children(pids, processes);
    redisFree(c);
    qsort(stage->waited_us, count_samples(), sizeof(uint32_t), by_number);
    printf("%-10s %10.0f %10.0f %9.2f %9.2f %9.2f %9.1f %9.2f\n",
           ways[way].name, per_second(acquired), per_second(handed),
           percentile_ms(50), percentile_ms(99), percentile_ms(PERCENT),
           (double)commands / (double)handed,
           (double)commands / (double)handed / contenders);
    (void)fflush(stdout);
}

static void run_crowds(enum way last, unsigned processes, unsigned threads,
                       useconds_t hold_us)
{
    stage->hold_us = hold_us;
    printf("\n%u contenders in %u processes, each holds it for %u us\n"
           "                 per second      release to next holder, ms"
           "  commands per hand-over\n"
           "             acquired handed over     p50       p99       max"
           "    in all  a contender\n",
           processes * threads, processes, hold_us);
    for (enum way w = BY_HAND; w <= last; w++)
        run_crowd(w, processes, threads);
}

/* ----------------------------------------------------------------- the kill */

static _Noreturn void hold_for_ever(int told)
{
    struct bench_lock b = open_bench(LEASE, open_lock(LEASE));

    acquire(&b);
    if (write(told, "", 1) != 1)
        _exit(EXIT_FAILURE);
    for (;;)
        pause();
}

static _Noreturn void wait_for_it(int told)
{
    struct bench_lock b = open_bench(LEASE, open_lock(LEASE));
    uint64_t got_us;

    acquire(&b);
    got_us = shed_now_us();
    release(&b);
    _exit(write(told, &got_us, sizeof(got_us)) == sizeof(got_us)
              ? EXIT_SUCCESS
              : EXIT_FAILURE);
}

static double kill_once(void)
{
    int held[2], got[2];
    uint64_t killed_us, got_us;
    pid_t holder, waiter;
    char byte;

    if (pipe(held) != 0 || pipe(got) != 0)
        die("pipe", "none to be had");
    holder = fork();
    if (holder == 0)
        hold_for_ever(held[1]);
    if (read(held[0], &byte, 1) != 1)
        die("the holder", "it failed");
    waiter = fork();
    if (waiter == 0)
        wait_for_it(got[1]);
    usleep(ALONE_MS * MS_PER_S); /* meanwhile it waits */
    killed_us = shed_now_us();
    (void)kill(holder, SIGKILL);
    if (read(got[0], &got_us, sizeof(got_us)) != sizeof(got_us))
        die("the waiter", "it failed");
    (void)waitpid(holder, NULL, 0);
    (void)waitpid(waiter, NULL, 0);
    close(held[0]);
    close(held[1]);
    close(got[0]);
    close(got[1]);
    return (double)(got_us - killed_us) / (double)MS_PER_S;
}

static void run_kills(void)
{
    double times[KILLS];

    for (size_t i = 0; i < KILLS; i++)
        times[i] = kill_once();
    qsort(times, KILLS, sizeof(double), by_value);
    printf("\nfrom SIGKILL of a holder with a lease of %d s to the next one, "
           "LEASE:\nmedian %.0f ms, max %.0f ms of %d\n",
           LEASE_MS / MS_PER_S, times[KILLS / 2], times[KILLS - 1], KILLS);
}

int main(int argc, char **argv)
{
    enum way last;
    pid_t alone;

    if (argc != 2 && argc != 1 + SERVERS) {
        (void)fprintf(
            stderr, "usage: bench_lock SOCKET [SOCKET SOCKET SOCKET SOCKET]\n");
        return 2;
    }
    sockets = argv + 1;
    servers = (size_t)argc - 1;
    last = servers == SERVERS ? QUORUM : LEASE;
    stage = mmap(NULL, sizeof(*stage), PROT_READ | PROT_WRITE,
                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (stage == MAP_FAILED)
        die("mmap", "no memory");
    (void)fflush(stdout);
    alone = fork();
    if (alone == 0)
        run_alone(last);
    wait_for_children(&alone, 1);
    for (useconds_t hold_us = 0; hold_us <= HOLD_US; hold_us += HOLD_US) {
        run_crowds(last, 4, 4, hold_us);
        run_crowds(last, 8, 8, hold_us);
    }
    run_kills();
    return EXIT_SUCCESS;
}
