/* What the benchmarks share: statistics, the figures that other programs read,
 * and what they all open, fork and run. Whatever fails ends the program. */
#ifndef BENCH_H
#define BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <hiredis/hiredis.h>

#include <snowshed/source.h>

enum { BENCH_THREADS_MAX = 1024, BENCH_PAYLOAD_BYTES = 1000 };

/* Say what has failed, and exit. */
_Noreturn void bench_die(const char *what);

/* An allocation of zeros that succeeds. */
void *bench_allocate(size_t count, size_t size);

/* ------------------------------------------------------------------ figures */

/* Sort the values, and return the one at this part of them: 0.5 is the median.
 */
double bench_at(double *values, size_t count, double part);

struct bench_figure {
    const char *unit;
    double bar; /* what it is to reach; 0: nothing */
    bool is_more_better;
    bool is_exact; /* equal runs give equal values: one run is enough to compare
                    */
};

/* Sort the values, and return their median. If SNOWSHED_FIGURES names a file,
 * append the figure to it as a line of JSON, with the middle half of the
 * values. name: a format; no other figure has the name that it makes. */
double bench_note(double *values, size_t count, struct bench_figure figure,
                  const char *name, ...) __attribute__((format(printf, 4, 5)));

/* ---------------------------------------------------------------- arguments */

/* The argument at this place, from 1 to most; without it, usual. */
size_t bench_number(int argc, char **argv, int at, size_t usual, size_t most);

/* -------------------------------------------------------------------- Redis */

redisContext *bench_connect(const char *socket);

/* The URI of a socket, for a client. */
const char *bench_uri(const char *socket);

/* Send a command in hiredis's format; its reply is no error. */
redisReply *bench_ask(redisContext *redis, const char *format, ...);

/* The same, for commands whose reply says nothing. */
void bench_do(redisContext *redis, const char *format, ...);

/* What Redis has executed, in scripts, too. CONFIG is left out. */
struct bench_commands {
    struct {
        char name[32];
        unsigned long long calls;
    } of[60]; /* until the first without a name */
};

/* Add what it has executed since CONFIG RESETSTAT. */
void bench_count(redisContext *redis, struct bench_commands *sum);

/* Their sum; of those whose names are given, with spaces between them, or of
 * all (NULL). */
double bench_calls(const struct bench_commands *commands, const char *names);

/* -------------------------------------------------------------------- cache */

/* A cache "bench" with a client and a source of its own. Without load, its
 * source has no rows. */
struct shed_cache *bench_open(const char *uri,
                              const struct shed_client_options *client_options,
                              const struct shed_source_options *source_options,
                              const struct shed_cache_options *cache_options,
                              shed_load_fn *load, void *user);

/* Put a row of BENCH_PAYLOAD_BYTES, and get it. */
void bench_put(struct shed_cache *cache, const char *key);
void bench_get(struct shed_cache *cache, const char *key);

/* Gets that the near cache has answered. */
uint64_t bench_near_hits(struct shed_cache *cache);

/* The memory that this process has allocated. */
size_t bench_used_bytes(void);

/* ------------------------------------------------------ threads and processes
 */

struct bench_rate {
    double per_s;
    double cpu_ns; /* of the threads, for a call */
};

/* Run this on threads, each with its element of an array of count, until all
 * have returned. */
void bench_on_threads(size_t count, void *(*run)(void *arg), void *array,
                      size_t size);

/* Let threads make calls for so long. number: of the thread, from 0. */
struct bench_rate bench_run(size_t threads, void (*call)(size_t number),
                            unsigned ms);

void bench_sleep_until(uint64_t at_us);

/* Zeroed memory that this process and its forked children share. */
void *bench_share(size_t size);

/* As fork; the child is killed when its parent ends. */
pid_t bench_fork(void);

/* Until all children have ended, each with success. */
void bench_wait_for_children(void);

#endif
