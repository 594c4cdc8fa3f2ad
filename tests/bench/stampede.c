/* See stampede.h. */
#include "stampede.h"

#include <hiredis/hiredis.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <snowshed/async.h>
#include <snowshed/source.h>

#include "base/clock.h"
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
    COME_WITHIN_US = 30000, /* after the row has expired */
    COMMANDS_MAX = 40
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

static _Noreturn void die(const char *what)
{
    (void)fprintf(stderr, "bench_wait: %s\n", what);
    exit(EXIT_FAILURE);
}

static void sleep_until(uint64_t at_us)
{
    uint64_t now_us = shed_now_us(), us = at_us > now_us ? at_us - now_us : 0;
    const struct timespec t = {(time_t)(us / 1000000),
                               (long)(us % 1000000) * 1000};

    (void)nanosleep(&t, NULL);
}

/* -------------------------------------------------------------- a process */

static void load(void *user, void *thread, struct shed_load *l)
{
    (void)user;
    (void)thread;
    atomic_fetch_add(&shared->loads, 1);
    sleep_until(shed_now_us() + LOAD_US);
    atomic_store(&shared->load_end_us, shed_now_us());
    answer_row(l, 0, shed_str("row"));
    shed_load_done(l);
}

static void open_all(const char *socket)
{
    struct shed_client_options client_options = bare_client();
    struct shed_cache_options cache_options = bare_cache();
    struct shed_client *client;
    struct shed_source *source;
    struct shed_error err;
    char uri[200];

    cache_options.ttl_ms = TTL_MS;
    cache_options.ttl_jitter_pct = 0;
    (void)snprintf(uri, sizeof(uri), "unix:%s", socket);
    if (shed_client_open(uri, &client_options, &client, &err) != SHED_OK ||
        shed_source_open_batch(load, NULL, BARE_SOURCE, &source, &err) !=
            SHED_OK ||
        shed_cache_open(client, "bench", source, &cache_options, &cache,
                        &err) != SHED_OK ||
        shed_queue_open(&queue, &err) != SHED_OK)
        die(err.reason);
    shed_source_close(source);
    shed_client_close(client);
}

static void note(struct caller *c, enum shed_code code,
                 struct shed_value *value)
{
    if (code != SHED_OK)
        die("a call has failed");
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
        die("a call was refused");
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
            uint64_t since_us = shed_now_us() - atomic_load(&shared->begin_us);
            int wait_ms = -1;
            while (begun < CALLERS && callers[begun].come_us <= since_us)
                begin(&callers[begun++]);
            if (begun < CALLERS)
                wait_ms = (int)((callers[begun].come_us - since_us) / 1000) + 1;
            (void)poll(&fd, 1, wait_ms);
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
        sleep_until(atomic_load(&shared->begin_us) + c->come_us);
        if (shed_get(cache, shed_str("hot"), NULL, &value, NULL) != SHED_OK)
            die("a call has failed");
        shed_value_unref(value);
        shared->done_us[c->i] = shed_now_us();
        (void)pthread_barrier_wait(&shared->barrier);
    }
}

static void run_process(size_t number, const char *socket, bool is_async)
{
    pthread_t threads[CALLERS];

    open_all(socket);
    for (size_t i = 0; i < CALLERS; i++)
        callers[i].i = number * CALLERS + i;
    if (is_async)
        run_async((unsigned)number);
    for (size_t i = 0; i < CALLERS && !is_async; i++)
        if (pthread_create(&threads[i], NULL, run_blocking, &callers[i]) != 0)
            die("no thread");
    for (size_t i = 0; i < CALLERS && !is_async; i++)
        (void)pthread_join(threads[i], NULL);
    shed_cache_close(cache);
    shed_queue_close(queue);
}

/* ------------------------------------------------------------------- figures
 */

/* What Redis has executed, in scripts, too. */
static struct command {
    char name[32];
    unsigned long long calls;
} commands[COMMANDS_MAX];

static redisReply *ask(redisContext *redis, const char *command)
{
    redisReply *reply = redisCommand(redis, command);

    if (reply == NULL || reply->type == REDIS_REPLY_ERROR)
        die("Redis does not answer");
    return reply;
}

static void add_command(const char *name, size_t size, unsigned long long calls)
{
    size_t i = 0;

    if (size >= sizeof(commands->name))
        size = sizeof(commands->name) - 1;
    while (i < COMMANDS_MAX - 1 && commands[i].calls > 0 &&
           (strlen(commands[i].name) != size ||
            memcmp(commands[i].name, name, size) != 0))
        i++;
    memcpy(commands[i].name, name, size);
    commands[i].calls += calls;
}

static void count_commands(redisContext *redis)
{
    redisReply *reply = ask(redis, "INFO commandstats");
    char *rest = NULL;

    for (char *line = strtok_r(reply->str, "\r\n", &rest); line != NULL;
         line = strtok_r(NULL, "\r\n", &rest)) {
        const char *name = strchr(line, '_'), *calls = strstr(line, ":calls=");
        if (calls == NULL || name == NULL || strstr(line, "config") != NULL)
            continue;
        add_command(name + 1, (size_t)(calls - name - 1),
                    strtoull(calls + strlen(":calls="), NULL, 10));
    }
    freeReplyObject(reply);
}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

static double quantile_ms(const uint64_t *us, size_t count, double q)
{
    return count > 0 ? (double)us[(size_t)(q * (double)(count - 1))] / 1e3 : 0;
}

/* Of those who were there when the load ended. */
static size_t note_waits(uint64_t *waits)
{
    uint64_t end_us = atomic_load(&shared->load_end_us);
    size_t count = 0;

    if (end_us < atomic_load(&shared->begin_us))
        return 0; /* the machine stood still, and the row had not expired */

    for (size_t i = 0; i < ALL; i++)
        if (shared->done_us[i] > end_us)
            waits[count++] = shared->done_us[i] - end_us;
    return count;
}

static void print(uint64_t *waits, size_t count, size_t rounds, bool is_async)
{
    unsigned long long all = 0;

    qsort(waits, count, sizeof(*waits), compare);
    for (size_t i = 0; i < COMMANDS_MAX; i++)
        all += commands[i].calls;
    (void)printf("%d processes, %d %s callers each, %zu expiries\n"
                 "loads per expiry                   %8.3f\n"
                 "commands of Redis per expiry       %8.1f\n"
                 "wait after the load: p50, p99, max %8.2f %8.2f %8.2f ms\n",
                 PROCESSES, CALLERS, is_async ? "asynchronous" : "blocking",
                 rounds, (double)atomic_load(&shared->loads) / (double)rounds,
                 (double)all / (double)rounds, quantile_ms(waits, count, 0.5),
                 quantile_ms(waits, count, 0.99), quantile_ms(waits, count, 1));
    for (size_t i = 0; i < COMMANDS_MAX && commands[i].calls > 0; i++)
        (void)printf("  %-20s %8.2f\n", commands[i].name,
                     (double)commands[i].calls / (double)rounds);
}

/* ------------------------------------------------------------------- rounds */

static void share(size_t waiting)
{
    pthread_barrierattr_t attr;

    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        die("no shared memory");
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
    sleep_until(stored_us + (uint64_t)(TTL_MS + EXPIRED_MS) * 1000);
    freeReplyObject(ask(redis, "CONFIG RESETSTAT"));
    atomic_store(&shared->begin_us, shed_now_us() + 2000);
    (void)pthread_barrier_wait(&shared->barrier);
    (void)pthread_barrier_wait(&shared->barrier);
}

void stampede_run(const char *socket, size_t rounds, bool is_async)
{
    pid_t children[PROCESSES];
    uint64_t *waits = calloc(rounds * ALL, sizeof(*waits));
    redisContext *redis = redisConnectUnix(socket);
    size_t count = 0;

    if (waits == NULL || redis == NULL || redis->err != 0)
        die("no memory, or no Redis");
    share((is_async ? (size_t)PROCESSES : (size_t)ALL) + 1);
    for (size_t i = 0; i < PROCESSES; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
            run_process(i, socket, is_async);
            _exit(EXIT_SUCCESS);
        }
    }
    for (size_t i = 0; i < rounds + WARM_UP; i++) {
        run_round(redis);
        if (i == WARM_UP - 1)
            atomic_store(&shared->loads, 0);
        if (i < WARM_UP)
            continue;
        count_commands(redis);
        count += note_waits(waits + count);
    }
    atomic_store(&shared->is_over, true);
    (void)pthread_barrier_wait(&shared->barrier);
    for (size_t i = 0; i < PROCESSES; i++)
        (void)waitpid(children[i], NULL, 0);
    print(waits, count, rounds, is_async);
    redisFree(redis);
    free(waits);
}
