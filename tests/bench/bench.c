/* See bench.h. */
#define _GNU_SOURCE /* program_invocation_short_name */
#include "bench.h"

#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <snowshed/snowshed.h>
#include <snowshed/stats.h>

#include "base/clock.h"

#define US_PER_S 1000000

void bench_die(const char *what)
{
    (void)fprintf(stderr, "%s: %s\n", program_invocation_short_name, what);
    exit(EXIT_FAILURE);
}

void *bench_allocate(size_t count, size_t size)
{
    void *memory = calloc(count, size);

    if (memory == NULL)
        bench_die("out of memory");
    return memory;
}

/* ------------------------------------------------------------------ figures */

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

double bench_at(double *values, size_t count, double part)
{
    if (count == 0)
        return 0;
    qsort(values, count, sizeof(*values), compare);
    return values[(size_t)((double)(count - 1) * part)];
}

static void write_figure(FILE *file, double *values, size_t count,
                         const struct bench_figure *f, const char *name)
{
    (void)fprintf(file,
                  "{\"name\": \"%s\", \"unit\": \"%s\", \"value\": %.9g, "
                  "\"low\": %.9g, \"high\": %.9g, \"better\": \"%s\", ",
                  name, f->unit, bench_at(values, count, 0.5),
                  bench_at(values, count, 0.25), bench_at(values, count, 0.75),
                  f->is_more_better ? "higher" : "lower");
    if (f->bar > 0)
        (void)fprintf(file, "\"bar\": %.9g, ", f->bar);
    (void)fprintf(file, "\"exact\": %s}\n", f->is_exact ? "true" : "false");
}

double bench_note(double *values, size_t count, struct bench_figure figure,
                  const char *name, ...)
{
    const char *path = getenv("SNOWSHED_FIGURES");
    FILE *file = path != NULL ? fopen(path, "a") : NULL;
    char text[100];
    va_list args;

    va_start(args, name);
    (void)vsnprintf(text, sizeof(text), name, args);
    va_end(args);
    if (file != NULL)
        write_figure(file, values, count, &figure, text);
    if (path != NULL && (file == NULL || fclose(file) != 0))
        bench_die("the file that SNOWSHED_FIGURES names cannot be written");
    return bench_at(values, count, 0.5);
}

/* ---------------------------------------------------------------- arguments */

size_t bench_number(int argc, char **argv, int at, size_t usual, size_t most)
{
    char *end;
    unsigned long long number;

    if (argc <= at)
        return usual;
    number = strtoull(argv[at], &end, 10);
    if (*end != '\0' || number < 1 || number > most)
        bench_die("an argument is not a number, or out of its range; see the "
                  "head of its source");
    return number;
}

/* -------------------------------------------------------------------- Redis */

redisContext *bench_connect(const char *socket)
{
    redisContext *redis = redisConnectUnix(socket);

    if (redis == NULL || redis->err != 0)
        bench_die("hiredis cannot connect");
    return redis;
}

const char *bench_uri(const char *socket)
{
    static char uri[256];

    (void)snprintf(uri, sizeof(uri), "unix:%s", socket);
    return uri;
}

static redisReply *ask(redisContext *redis, const char *format, va_list args)
{
    redisReply *reply = redisvCommand(redis, format, args);

    if (reply == NULL || reply->type == REDIS_REPLY_ERROR)
        bench_die(reply == NULL ? "Redis does not answer" : reply->str);
    return reply;
}

redisReply *bench_ask(redisContext *redis, const char *format, ...)
{
    va_list args;
    redisReply *reply;

    va_start(args, format);
    reply = ask(redis, format, args);
    va_end(args);
    return reply;
}

void bench_do(redisContext *redis, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    freeReplyObject(ask(redis, format, args));
    va_end(args);
}

static void add_calls(struct bench_commands *sum, const char *name,
                      unsigned long long calls)
{
    size_t i = 0, last = sizeof(sum->of) / sizeof(*sum->of) - 1;

    while (i < last && sum->of[i].name[0] != '\0' &&
           strcmp(sum->of[i].name, name) != 0)
        i++;
    (void)snprintf(sum->of[i].name, sizeof(sum->of[i].name), "%s", name);
    sum->of[i].calls += calls;
}

void bench_count(redisContext *redis, struct bench_commands *sum)
{
    redisReply *reply = bench_ask(redis, "INFO commandstats");
    char *rest = NULL;

    for (char *line = strtok_r(reply->str, "\r\n", &rest); line != NULL;
         line = strtok_r(NULL, "\r\n", &rest)) {
        char name[sizeof(sum->of->name)];
        unsigned long long calls;
        if (sscanf(line, "cmdstat_%31[^:]:calls=%llu", name, &calls) == 2 &&
            strncmp(name, "config", strlen("config")) != 0)
            add_calls(sum, name, calls);
    }
    freeReplyObject(reply);
}

static bool has_word(const char *words, const char *word)
{
    size_t size = strlen(word);

    for (const char *at = words; (at = strstr(at, word)) != NULL; at += size)
        if ((at == words || at[-1] == ' ') &&
            (at[size] == ' ' || at[size] == '\0'))
            return true;
    return false;
}

double bench_calls(const struct bench_commands *commands, const char *names)
{
    double sum = 0;

    for (size_t i = 0; i < sizeof(commands->of) / sizeof(*commands->of) &&
                       commands->of[i].name[0] != '\0';
         i++)
        if (names == NULL || has_word(names, commands->of[i].name))
            sum += (double)commands->of[i].calls;
    return sum;
}

/* -------------------------------------------------------------------- cache */

static void no_load(void *user, void *thread, struct shed_load *load)
{
    (void)user;
    (void)thread;
    shed_load_done(load);
}

struct shed_cache *bench_open(const char *uri,
                              const struct shed_client_options *client_options,
                              const struct shed_source_options *source_options,
                              const struct shed_cache_options *cache_options,
                              shed_load_fn *load, void *user)
{
    struct shed_client *client;
    struct shed_source *source;
    struct shed_cache *cache;
    struct shed_error err;

    if (shed_client_open(uri, client_options, &client, &err) != SHED_OK ||
        shed_source_open_batch(load != NULL ? load : no_load, user,
                               source_options, &source, &err) != SHED_OK ||
        shed_cache_open(client, "bench", source, cache_options, &cache, &err) !=
            SHED_OK)
        bench_die(err.reason);
    shed_source_close(source);
    shed_client_close(client);
    return cache;
}

void bench_put(struct shed_cache *cache, const char *key)
{
    static const char payload[BENCH_PAYLOAD_BYTES];
    struct shed_error err;

    if (shed_put(cache, shed_str(key), shed_bytes(payload, sizeof(payload)),
                 NULL, &err) != SHED_OK)
        bench_die(err.reason);
}

void bench_get(struct shed_cache *cache, const char *key)
{
    struct shed_value *value;
    struct shed_error err;

    if (shed_get(cache, shed_str(key), NULL, &value, &err) != SHED_OK)
        bench_die(err.reason);
    if (value->size != BENCH_PAYLOAD_BYTES)
        bench_die("not the value");
    shed_value_unref(value);
}

uint64_t bench_near_hits(struct shed_cache *cache)
{
    struct shed_stats stats;

    if (shed_stats_read(cache, &stats, sizeof(stats), NULL) != SHED_OK)
        bench_die("no statistics");
    return stats.near_hits;
}

size_t bench_used_bytes(void)
{
    struct mallinfo2 info = mallinfo2();

    return info.uordblks + info.hblkhd;
}

/* ------------------------------------------------------ threads and processes
 */

void bench_on_threads(size_t count, void *(*run)(void *arg), void *array,
                      size_t size)
{
    static pthread_t threads[BENCH_THREADS_MAX];

    for (size_t i = 0; i < count; i++)
        if (pthread_create(&threads[i], NULL, run, (char *)array + i * size) !=
            0)
            bench_die("no thread");
    for (size_t i = 0; i < count; i++)
        (void)pthread_join(threads[i], NULL);
}

static atomic_bool is_over;

struct worker {
    pthread_t thread;
    size_t number;
    void (*call)(size_t number);
    double calls, cpu_ns;
};

static void *work(void *arg)
{
    struct worker *w = arg;
    struct timespec cpu;
    size_t calls = 0;

    for (; !atomic_load_explicit(&is_over, memory_order_relaxed); calls++)
        w->call(w->number);
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu);
    w->cpu_ns = (double)cpu.tv_sec * 1e9 + (double)cpu.tv_nsec;
    w->calls = (double)calls;
    return NULL;
}

struct bench_rate bench_run(size_t threads, void (*call)(size_t number),
                            unsigned ms)
{
    static struct worker workers[BENCH_THREADS_MAX];
    uint64_t begun_us = shed_now_us();
    double calls = 0, cpu_ns = 0;

    atomic_store(&is_over, false);
    for (size_t i = 0; i < threads; i++) {
        workers[i] = (struct worker){.number = i, .call = call};
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0)
            bench_die("no thread");
    }
    bench_sleep_until(shed_now_us() + (uint64_t)ms * 1000);
    atomic_store(&is_over, true);
    for (size_t i = 0; i < threads; i++) {
        (void)pthread_join(workers[i].thread, NULL);
        calls += workers[i].calls;
        cpu_ns += workers[i].cpu_ns;
    }
    return (struct bench_rate){
        calls * US_PER_S / (double)(shed_now_us() - begun_us), cpu_ns / calls};
}

void bench_sleep_until(uint64_t at_us)
{
    uint64_t now_us = shed_now_us(), us = at_us > now_us ? at_us - now_us : 0;
    const struct timespec left = {(time_t)(us / US_PER_S),
                                  (long)(us % US_PER_S) * 1000};

    if (us > 0)
        (void)nanosleep(&left, NULL);
}

void *bench_share(size_t size)
{
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (memory == MAP_FAILED)
        bench_die("no shared memory");
    return memory;
}

pid_t bench_fork(void)
{
    pid_t parent = getpid(), pid = fork();

    if (pid < 0)
        bench_die("cannot fork");
    if (pid > 0)
        return pid;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(EXIT_FAILURE);
    return 0;
}

void bench_wait_for_children(void)
{
    int status;

    while (wait(&status) > 0)
        if (status != 0)
            bench_die("a process has failed");
}
