/*
 * How long a caller waits after another process's load has ended, and what its
 * looks cost: snowshed by polling (SHED_WAIT_POLL) and by push, compared with a
 * loop written by hand over hiredis: SET NX, and a look every 10 ms. The
 * methods alternate, so that a noisy machine disturbs all of them. Each caller
 * has a client of its own, as it would in a separate process.
 *
 * usage: bench_wait SOCKET [ROUNDS]; the server is emptied
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include <snowshed/snowshed.h>

#include "base/clock.h"
#include "bench.h"
#include "support/answers.h"
#include "support/bare.h"

enum {
    CALLERS = 4, /* of which the first loads */
    WARM_UP = 3, /* rounds that are not counted */
    ROUNDS = 100,
    ROUNDS_MAX = 100000,
    COME_WITHIN_US = 30000, /* after the first */
    LOOP_US = 10000,
    LOCK_MS = 10000
};

#define KEY "bench:{hot}"

enum way { BY_HAND, POLL, PUSH, WAYS };

static const char *const way_names[WAYS] = {"loop", "poll", "push"};

/* How long loads take: drawn between the two. */
static const struct mix {
    const char *name;
    uint64_t from_us, to_us;
} mixes[] = {{"50 ms", 50000, 50000}, {"30 to 70 ms", 30000, 70000}};

struct caller {
    pthread_t thread;
    redisContext *redis; /* by hand */
    struct shed_cache *cache[WAYS];
    uint64_t come_us; /* after the round's beginning */
    uint64_t done_us;
    bool did_load;
};

static struct caller callers[CALLERS];
static pthread_barrier_t barrier; /* the callers and main */
/* set by main between two barriers */
static enum way way;
static uint64_t load_us;
static bool is_over;
/* set by the one that loads, in a round */
static uint64_t load_end_us;

struct figures {
    size_t count;
    double *waited_ms;     /* NULL until the first */
    double sent, executed; /* commands */
    size_t rounds;
};

static void pause_us(uint64_t us)
{
    bench_sleep_until(shed_now_us() + us);
}

static int type_of_reply(redisContext *redis, const char *command)
{
    redisReply *reply = bench_ask(redis, command);
    int type = reply->type;

    freeReplyObject(reply);
    return type;
}

/* ------------------------------------------------------------------ callers */

static void query(struct caller *caller)
{
    pause_us(load_us);
    caller->did_load = true;
    load_end_us = shed_now_us();
}

static void load(void *user, void *thread, struct shed_load *l)
{
    (void)thread;
    query(user);
    answer_row(l, 0, shed_str("row"));
    shed_load_done(l);
}

static void get_by_hand(struct caller *c)
{
    char lock[64];

    (void)snprintf(lock, sizeof(lock), "SET lock:hot x NX PX %d", LOCK_MS);
    while (type_of_reply(c->redis, "GET hot") != REDIS_REPLY_STRING) {
        if (type_of_reply(c->redis, lock) == REDIS_REPLY_STATUS) {
            query(c);
            bench_do(c->redis, "SET hot row");
            bench_do(c->redis, "DEL lock:hot");
            return;
        }
        pause_us(LOOP_US);
    }
}

static void get(struct caller *c)
{
    struct shed_value *value = NULL;
    struct shed_error err;

    if (way == BY_HAND) {
        get_by_hand(c);
        return;
    }
    if (shed_get(c->cache[way], shed_str("hot"), NULL, &value, &err) != SHED_OK)
        bench_die(err.reason);
    shed_value_unref(value);
}

static void *run_caller(void *arg)
{
    struct caller *c = arg;

    for (;;) {
        (void)pthread_barrier_wait(&barrier);
        if (is_over)
            return NULL;
        pause_us(c->come_us);
        get(c);
        c->done_us = shed_now_us();
        (void)pthread_barrier_wait(&barrier);
    }
}

static void open_way(struct caller *c, enum way which, const char *uri)
{
    struct shed_client_options options = bare_client();

    options.wait = which == POLL ? SHED_WAIT_POLL : SHED_WAIT_AUTO;
    c->cache[which] =
        bench_open(uri, &options, BARE_SOURCE, BARE_CACHE, load, c);
}

static void close_caller(struct caller *c)
{
    for (int i = POLL; i < WAYS; i++)
        shed_cache_close(c->cache[i]);
    redisFree(c->redis);
}

/* ------------------------------------------------------------------- rounds */

static void note(struct figures *f, redisContext *redis)
{
    struct bench_commands commands = {0};

    bench_count(redis, &commands);
    f->rounds++;
    f->executed += bench_calls(&commands, NULL);
    /* each caller of snowshed begins with a GET; the loop has no scripts */
    f->sent += way == BY_HAND
                   ? bench_calls(&commands, NULL)
                   : bench_calls(&commands, "evalsha") + (double)CALLERS;
    for (size_t i = 0; i < CALLERS; i++)
        if (!callers[i].did_load && callers[i].done_us > load_end_us)
            f->waited_ms[f->count++] =
                (double)(callers[i].done_us - load_end_us) / 1e3;
}

static void run_round(struct figures *f, redisContext *redis, bool counts)
{
    bench_do(redis, "DEL hot lock:hot " KEY);
    for (size_t i = 0; i < CALLERS; i++) {
        callers[i].did_load = false;
        callers[i].come_us =
            i == 0 ? 0 : (uint64_t)random() % COME_WITHIN_US + 1000;
    }
    bench_do(redis, "CONFIG RESETSTAT");
    (void)pthread_barrier_wait(&barrier);
    (void)pthread_barrier_wait(&barrier);
    if (counts)
        note(f, redis);
}

static void print_way(const struct figures *f, const struct mix *mix,
                      enum way which)
{
    static const struct bench_figure figure = {.unit = "ms"};
    double at50 = bench_at(f->waited_ms, f->count, 0.5),
           at99 = bench_at(f->waited_ms, f->count, 0.99),
           calls = (double)(f->rounds * CALLERS);

    (void)printf("%-12s %-5s %9.2f %9.2f %9.2f %10.1f %12.1f\n", mix->name,
                 way_names[which], at50, at99,
                 bench_at(f->waited_ms, f->count, 1), f->sent / calls,
                 f->executed / calls);
    if (which == BY_HAND)
        return;
    (void)bench_note(&at50, 1, figure, "wait after a load of %s, %s, p50",
                     mix->name, way_names[which]);
    (void)bench_note(&at99, 1, figure, "wait after a load of %s, %s, p99",
                     mix->name, way_names[which]);
}

static void measure(const struct mix *mix, size_t rounds, redisContext *redis)
{
    struct figures figures[WAYS] = {0};

    for (int w = 0; w < WAYS; w++)
        figures[w].waited_ms = bench_allocate(rounds * CALLERS, sizeof(double));
    for (size_t i = 0; i < rounds + WARM_UP; i++)
        for (int w = 0; w < WAYS; w++) {
            way = (enum way)w;
            load_us = mix->from_us +
                      (uint64_t)random() % (mix->to_us - mix->from_us + 1);
            run_round(&figures[w], redis, i >= WARM_UP);
        }
    for (int w = 0; w < WAYS; w++) {
        print_way(&figures[w], mix, (enum way)w);
        free(figures[w].waited_ms);
    }
    (void)fflush(stdout);
}

static void open_callers(const char *socket)
{
    (void)pthread_barrier_init(&barrier, NULL, CALLERS + 1);
    for (size_t i = 0; i < CALLERS; i++) {
        struct caller *c = &callers[i];

        c->redis = bench_connect(socket);
        open_way(c, POLL, bench_uri(socket));
        open_way(c, PUSH, bench_uri(socket));
        if (pthread_create(&c->thread, NULL, run_caller, c) != 0)
            bench_die("no thread");
    }
}

static void measure_all(const char *socket, size_t rounds)
{
    redisContext *redis = bench_connect(socket);

    (void)printf("%d callers, each as a process of its own; %zu rounds\n"
                 "             wait after the load's end, ms    "
                 "commands per caller\n"
                 "%-12s %-5s %9s %9s %9s %10s %12s\n",
                 CALLERS, rounds, "a load takes", "way", "p50", "p99", "max",
                 "sent", "executed");
    for (size_t i = 0; i < sizeof(mixes) / sizeof(*mixes); i++)
        measure(&mixes[i], rounds, redis);
    (void)printf("executed: with those inside scripts\n");
    redisFree(redis);
}

int main(int argc, char **argv)
{
    size_t rounds = bench_number(argc, argv, 2, ROUNDS, ROUNDS_MAX);

    if (argc < 2)
        bench_die("usage: bench_wait SOCKET [ROUNDS]");
    open_callers(argv[1]);
    measure_all(argv[1], rounds);
    is_over = true;
    (void)pthread_barrier_wait(&barrier);
    for (size_t i = 0; i < CALLERS; i++) {
        (void)pthread_join(callers[i].thread, NULL);
        close_caller(&callers[i]);
    }
    return EXIT_SUCCESS;
}
