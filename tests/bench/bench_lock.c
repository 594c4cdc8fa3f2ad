/*
 * What a lock costs: acquire and release by each algorithm, alone and with many
 * contenders in several processes, compared with a hand-written lock over
 * hiredis: SET NX PX and a release script, with a retry every 10 ms while it is
 * taken.
 *
 * usage: bench_lock SOCKET [SOCKET SOCKET SOCKET SOCKET [CROWD_MS]];
 * tests/bench/run starts the servers. The counters of the first are reset.
 */
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <snowshed/lock.h>

#include "base/clock.h"
#include "base/random.h"
#include "bench.h"
#include "support/bare.h"

enum {
    SERVERS = 5,
    ALONE_ROUNDS = 7,
    ALONE_PART = 12, /* of crowd_ms: a turn alone */
    SETTLE_MS = 250,
    HOLD_US = 1000, /* long enough that the others wait */
    RETRY_US = 10000,
    LEASE_MS = 30000,
    SAMPLES_MAX = 100000,
    KILLS = 10,
    THREADS_MAX = 64,
    MS_PER_S = 1000
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
    double waited_ms[SAMPLES_MAX]; /* from a release to the next holder */
};

static struct stage *stage;
static char **sockets;
static unsigned crowd_ms = 3000;

/* ---------------------------------------------------------------- two locks */

/* One contender's lock: a handle of ours, or a connection. */
struct bench_lock {
    enum way way;
    struct shed_lock *lock;
    redisContext *redis;
    char token[40];
    char script_sha[48];
};

static void open_by_hand(struct bench_lock *b)
{
    redisReply *reply;

    b->redis = bench_connect(sockets[0]);
    (void)snprintf(b->token, sizeof(b->token), "%d-%llx", (int)getpid(),
                   (unsigned long long)shed_random_jitter());
    reply = bench_ask(b->redis, "SCRIPT LOAD %s", RELEASE_SCRIPT);
    (void)snprintf(b->script_sha, sizeof(b->script_sha), "%s", reply->str);
    freeReplyObject(reply);
}

static bool try_by_hand(struct bench_lock *b)
{
    redisReply *reply =
        bench_ask(b->redis, "SET " NAME " %s NX PX %d", b->token, LEASE_MS);
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
        bench_die(err.reason);
    }
}

static void release(struct bench_lock *b)
{
    struct shed_error err;

    if (b->way == BY_HAND)
        bench_do(b->redis, "EVALSHA %s 1 " NAME " %s", b->script_sha, b->token);
    else if (shed_lock_release(b->lock, &err) != SHED_OK)
        bench_die(err.reason);
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

    /* the servers of a quorum must be older than a lease */
    o.lease_ms = way == QUORUM ? MS_PER_S : LEASE_MS;
    o.algorithm = (uint64_t)ways[way].algorithm;
    for (size_t i = 0; i < count; i++)
        if (shed_client_open(bench_uri(sockets[i]), BARE_CLIENT, &clients[i],
                             &err) != SHED_OK)
            bench_die(err.reason);
    if (shed_lock_open_quorum(clients, count, shed_str(NAME), &o, &lock,
                              &err) != SHED_OK)
        bench_die(err.reason);
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
    uint64_t end_ms = shed_now_ms() + crowd_ms / ALONE_PART;
    size_t count = 0;

    for (; shed_now_ms() < end_ms; count++) {
        acquire(b);
        release(b);
    }
    return (double)count * 1e6 / (double)(shed_now_us() - begin_us);
}

static void print_alone(enum way way, double *rates, double by_hand)
{
    const struct bench_figure figure = {.unit = "/s", .is_more_better = true};

    printf("%-12s %10.0f   %10.2f\n", ways[way].name,
           bench_at(rates, ALONE_ROUNDS, 0.5),
           bench_at(rates, ALONE_ROUNDS, 0.5) / by_hand);
    if (way != BY_HAND)
        (void)bench_note(rates, ALONE_ROUNDS, figure, "lock alone, %s",
                         ways[way].name);
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
        print_alone(w, rates[w], bench_at(rates[BY_HAND], ALONE_ROUNDS, 0.5));
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
        stage->waited_ms[i] = (double)(shed_now_us() - released_us) / 1e3;
}

struct contender {
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
            bench_die("two hold a lock");
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
    }
    bench_on_threads(threads, contend, contenders, sizeof(*contenders));
    _exit(EXIT_SUCCESS);
}

static size_t count_samples(void)
{
    size_t count = atomic_load(&stage->count);

    return count < SAMPLES_MAX ? count : SAMPLES_MAX;
}

/* clang 19 warns of an enumerator in arithmetic with doubles. */
static double per_second(size_t count)
{
    return (double)count * (double)MS_PER_S / (double)crowd_ms;
}

static void reset_stage(void)
{
    atomic_store(&stage->is_over, false);
    atomic_store(&stage->ready, 0);
    atomic_store(&stage->released_us, 0);
    atomic_store(&stage->holder, 0);
    atomic_store(&stage->count, 0);
}

static void print_crowd(enum way way, unsigned contenders, size_t acquired,
                        size_t handed, double commands)
{
    const struct bench_figure figure = {.unit = "/s", .is_more_better = true};
    double rate = per_second(handed), *ms = stage->waited_ms;
    size_t count = count_samples();

    printf("%-10s %10.0f %10.0f %9.2f %9.2f %9.2f %9.1f %9.2f\n",
           ways[way].name, per_second(acquired), rate, bench_at(ms, count, 0.5),
           bench_at(ms, count, 0.99), bench_at(ms, count, 1),
           commands / (double)handed, commands / (double)handed / contenders);
    (void)fflush(stdout);
    if (way == LEASE)
        (void)bench_note(&rate, 1, figure,
                         "lock, %u contenders, held %u us: handed over",
                         contenders, (unsigned)stage->hold_us);
}

static void run_crowd(enum way way, unsigned processes, unsigned threads)
{
    redisContext *c = bench_connect(sockets[0]);
    unsigned contenders = processes * threads;
    struct bench_commands commands = {0};
    size_t acquired, handed;

    reset_stage();
    for (unsigned i = 0; i < processes; i++)
        if (bench_fork() == 0)
            contend_in_threads(way, i * threads, threads);
    while (atomic_load(&stage->ready) < contenders)
        usleep(MS_PER_S);
    usleep(SETTLE_MS * MS_PER_S); /* meanwhile all connect */
    bench_do(c, "CONFIG RESETSTAT");
    atomic_store(&stage->acquired, 0);
    atomic_store(&stage->count, 0);
    usleep(crowd_ms * MS_PER_S);
    acquired = atomic_load(&stage->acquired);
    handed = atomic_load(&stage->count);
    bench_count(c, &commands);
    atomic_store(&stage->is_over, true);
    bench_wait_for_children();
    redisFree(c);
    print_crowd(way, contenders, acquired, handed,
                bench_calls(&commands, ways[way].commands));
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
        bench_die("no pipe");
    holder = bench_fork();
    if (holder == 0)
        hold_for_ever(held[1]);
    if (read(held[0], &byte, 1) != 1)
        bench_die("the holder has failed");
    waiter = bench_fork();
    if (waiter == 0)
        wait_for_it(got[1]);
    usleep(SETTLE_MS * MS_PER_S); /* meanwhile it waits */
    killed_us = shed_now_us();
    (void)kill(holder, SIGKILL);
    if (read(got[0], &got_us, sizeof(got_us)) != sizeof(got_us))
        bench_die("the waiter has failed");
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
    printf("\nfrom SIGKILL of a holder with a lease of %d s to the next one, "
           "LEASE:\nmedian %.0f ms, max %.0f ms of %d\n",
           LEASE_MS / MS_PER_S,
           bench_note(times, KILLS, (struct bench_figure){.unit = "ms"},
                      "lock: SIGKILL of a holder to the next"),
           bench_at(times, KILLS, 1), KILLS);
}

int main(int argc, char **argv)
{
    enum way last;

    if (argc != 2 && argc != 1 + SERVERS && argc != 2 + SERVERS)
        bench_die("usage: bench_lock SOCKET [SOCKET SOCKET SOCKET SOCKET "
                  "[CROWD_MS]]");
    sockets = argv + 1;
    crowd_ms = (unsigned)bench_number(argc, argv, 1 + SERVERS, crowd_ms, 60000);
    last = argc > SERVERS ? QUORUM : LEASE;
    stage = bench_share(sizeof(*stage));
    (void)fflush(stdout);
    if (bench_fork() == 0)
        run_alone(last);
    bench_wait_for_children();
    for (useconds_t hold_us = 0; hold_us <= HOLD_US; hold_us += HOLD_US) {
        run_crowds(last, 4, 4, hold_us);
        run_crowds(last, 8, 8, hold_us);
    }
    run_kills();
    return EXIT_SUCCESS;
}
