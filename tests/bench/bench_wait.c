/*
 * How long a caller waits after another process's load has ended, and what its
 * looks cost: snowshed by polling (SHED_WAIT_POLL) and by push, compared with a
 * loop written by hand over hiredis: SET NX, and a look every 10 ms. The
 * methods alternate, so that a noisy machine disturbs all of them. Each caller
 * has a client of its own, as it would in a separate process.
 *
 * With a kind of calls: a stampede of 200 callers in 4 processes (stampede.h).
 *
 * usage: bench_wait REDIS_SOCKET [ROUNDS [JSON_FILE]]; the server is emptied
 *        bench_wait REDIS_SOCKET blocking|async [ROUNDS]
 */
#include <hiredis/hiredis.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <snowshed/snowshed.h>
#include <snowshed/source.h>

#include "base/clock.h"
#include "support/bare.h"
#include "support/answers.h"
#include "stampede.h"

enum {
    CALLERS = 4, /* of which the first loads */
    WARM_UP = 3, /* rounds that are not counted */
    ROUNDS = 100,
    ROUNDS_MAX = 100000,
    COME_WITHIN_US = 30000, /* after the first */
    LOOP_US = 10000,
    LOCK_MS = 10000,
    US_PER_S = 1000000
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
    struct shed_client *client[WAYS];
    struct shed_source *source[WAYS];
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
    double *waited_ms; /* NULL until the first */
    unsigned long long sent, executed;
    size_t rounds;
};

static _Noreturn void die(const char *what)
{
    (void)fprintf(stderr, "bench_wait: %s\n", what);
    exit(EXIT_FAILURE);
}

static void pause_us(uint64_t us)
{
    const struct timespec t = {(time_t)(us / US_PER_S),
                               (long)(us % US_PER_S) * 1000};

    (void)nanosleep(&t, NULL);
}

static redisReply *ask(redisContext *redis, const char *command)
{
    redisReply *reply = redisCommand(redis, command);

    if (reply == NULL || reply->type == REDIS_REPLY_ERROR)
        die(reply == NULL ? "Redis does not answer" : reply->str);
    return reply;
}

static int type_of_reply(redisContext *redis, const char *command)
{
    redisReply *reply = ask(redis, command);
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
            (void)type_of_reply(c->redis, "SET hot row");
            (void)type_of_reply(c->redis, "DEL lock:hot");
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
        die(err.reason);
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
    struct shed_error err;

    options.wait = which == POLL ? SHED_WAIT_POLL : SHED_WAIT_AUTO;
    if (shed_client_open(uri, &options, &c->client[which], &err) != SHED_OK ||
        shed_source_open_batch(load, c, BARE_SOURCE, &c->source[which], &err) !=
            SHED_OK ||
        shed_cache_open(c->client[which], "bench", c->source[which], BARE_CACHE,
                        &c->cache[which], &err) != SHED_OK)
        die(err.reason);
}

static void close_caller(struct caller *c)
{
    for (int i = POLL; i < WAYS; i++) {
        shed_cache_close(c->cache[i]);
        shed_source_close(c->source[i]);
        shed_client_close(c->client[i]);
    }
    redisFree(c->redis);
}

/* ------------------------------------------------------------------- rounds */

/* All commands that Redis has executed, and of these the ones that came over a
 * connection: scripts, and what the two ways send besides. */
static void count_commands(redisContext *redis, unsigned long long *sent,
                           unsigned long long *executed)
{
    redisReply *reply = ask(redis, "INFO commandstats");
    char *rest = NULL;

    *sent = *executed = 0;
    for (char *line = strtok_r(reply->str, "\r\n", &rest); line != NULL;
         line = strtok_r(NULL, "\r\n", &rest)) {
        const char *calls = strstr(line, ":calls=");
        unsigned long long count =
            calls != NULL ? strtoull(calls + strlen(":calls="), NULL, 10) : 0;
        *executed += count;
        if (strncmp(line, "cmdstat_evalsha:", 16) == 0)
            *sent += count;
    }
    freeReplyObject(reply);
}

static void note(struct figures *f, redisContext *redis)
{
    unsigned long long sent, executed;

    count_commands(redis, &sent, &executed);
    f->rounds++;
    f->executed += executed;
    /* each caller of snowshed begins with a GET; the loop has no scripts */
    f->sent += way == BY_HAND ? executed : sent + CALLERS;
    for (size_t i = 0; i < CALLERS; i++)
        if (!callers[i].did_load && callers[i].done_us > load_end_us)
            f->waited_ms[f->count++] =
                (double)(callers[i].done_us - load_end_us) / 1e3;
}

static void run_round(struct figures *f, redisContext *redis, bool counts)
{
    (void)type_of_reply(redis, "DEL hot lock:hot " KEY);
    for (size_t i = 0; i < CALLERS; i++) {
        callers[i].did_load = false;
        callers[i].come_us =
            i == 0 ? 0 : (uint64_t)random() % COME_WITHIN_US + 1000;
    }
    (void)type_of_reply(redis, "CONFIG RESETSTAT");
    (void)pthread_barrier_wait(&barrier);
    (void)pthread_barrier_wait(&barrier);
    if (counts)
        note(f, redis);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double quantile(const struct figures *f, double q)
{
    return f->count > 0 ? f->waited_ms[(size_t)(q * (double)(f->count - 1))]
                        : 0;
}

static void print_way(const struct figures *f, const struct mix *mix,
                      enum way which, FILE *json, bool is_first)
{
    double callers_all = (double)(f->rounds * CALLERS);
    double sent = (double)f->sent / callers_all;
    double executed = (double)f->executed / callers_all;

    (void)printf("%-12s %-5s %9.2f %9.2f %9.2f %10.1f %12.1f\n", mix->name,
                 way_names[which], quantile(f, 0.5), quantile(f, 0.99),
                 quantile(f, 1), sent, executed);
    if (json == NULL)
        return;
    (void)fprintf(json,
                  "%s\n  {\"load\": \"%s\", \"way\": \"%s\", \"waits\": %zu, "
                  "\"p50_ms\": %.3f, \"p99_ms\": %.3f, \"max_ms\": %.3f, "
                  "\"sent\": %.2f, \"executed\": %.2f}",
                  is_first ? "" : ",", mix->name, way_names[which], f->count,
                  quantile(f, 0.5), quantile(f, 0.99), quantile(f, 1), sent,
                  executed);
}

static void measure(const struct mix *mix, size_t rounds, redisContext *redis,
                    FILE *json, bool is_first)
{
    struct figures figures[WAYS] = {0};

    for (int w = 0; w < WAYS; w++) {
        figures[w].waited_ms = calloc(rounds * CALLERS, sizeof(double));
        if (figures[w].waited_ms == NULL)
            die("out of memory");
    }
    for (size_t i = 0; i < rounds + WARM_UP; i++)
        for (int w = 0; w < WAYS; w++) {
            way = (enum way)w;
            load_us = mix->from_us +
                      (uint64_t)random() % (mix->to_us - mix->from_us + 1);
            run_round(&figures[w], redis, i >= WARM_UP);
        }
    for (int w = 0; w < WAYS; w++) {
        qsort(figures[w].waited_ms, figures[w].count, sizeof(double), compare);
        print_way(&figures[w], mix, (enum way)w, json, is_first && w == 0);
        free(figures[w].waited_ms);
    }
    (void)fflush(stdout);
}

static void open_callers(const char *socket)
{
    char uri[200];

    (void)snprintf(uri, sizeof(uri), "unix:%s", socket);
    (void)pthread_barrier_init(&barrier, NULL, CALLERS + 1);
    for (size_t i = 0; i < CALLERS; i++) {
        struct caller *c = &callers[i];

        c->redis = redisConnectUnix(socket);
        if (c->redis == NULL || c->redis->err != 0)
            die("hiredis cannot connect");
        open_way(c, POLL, uri);
        open_way(c, PUSH, uri);
        if (pthread_create(&c->thread, NULL, run_caller, c) != 0)
            die("no thread");
    }
}

static void measure_all(const char *socket, size_t rounds, FILE *json)
{
    redisContext *redis = redisConnectUnix(socket);

    if (redis == NULL || redis->err != 0)
        die("hiredis cannot connect");
    (void)printf("%d callers, each as a process of its own; %zu rounds\n"
                 "             wait after the load's end, ms    "
                 "commands per caller\n"
                 "%-12s %-5s %9s %9s %9s %10s %12s\n",
                 CALLERS, rounds, "a load takes", "way", "p50", "p99", "max",
                 "sent", "executed");
    for (size_t i = 0; i < sizeof(mixes) / sizeof(*mixes); i++)
        measure(&mixes[i], rounds, redis, json, i == 0);
    (void)printf("executed: with those inside scripts\n");
    redisFree(redis);
}

static bool is_kind(const char *word)
{
    return strcmp(word, "blocking") == 0 || strcmp(word, "async") == 0;
}

int main(int argc, char **argv)
{
    bool is_stampede = argc > 2 && is_kind(argv[2]);
    int at = is_stampede ? 3 : 2;
    size_t rounds = argc > at ? strtoull(argv[at], NULL, 10) : ROUNDS;
    FILE *json = argc > 3 && !is_stampede ? fopen(argv[3], "w") : NULL;

    if (argc < 2 || argc > 4 || rounds < 1 || rounds > ROUNDS_MAX)
        die("usage: bench_wait REDIS_SOCKET [ROUNDS [JSON_FILE]], or "
            "bench_wait REDIS_SOCKET blocking|async [ROUNDS]");
    if (is_stampede) {
        stampede_run(argv[1], rounds, strcmp(argv[2], "async") == 0);
        return EXIT_SUCCESS;
    }
    if (argc > 3 && json == NULL)
        die("the JSON file cannot be written");
    open_callers(argv[1]);
    if (json != NULL)
        (void)fprintf(json, "[");
    measure_all(argv[1], rounds, json);
    if (json != NULL && (fprintf(json, "\n]\n") < 0 || fclose(json) != 0))
        die("the JSON file cannot be written");
    is_over = true;
    (void)pthread_barrier_wait(&barrier);
    for (size_t i = 0; i < CALLERS; i++) {
        (void)pthread_join(callers[i].thread, NULL);
        close_caller(&callers[i]);
    }
    return EXIT_SUCCESS;
}
