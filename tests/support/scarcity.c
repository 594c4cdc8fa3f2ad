/* The linker lets the program and the static libraries call __wrap_NAME in
 * place of NAME. */
#include "support/scarcity.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include <sys/random.h>

#include "support/testing.h"
#include "wire/parser.h"

static _Thread_local int countdown = -1;
static _Thread_local bool has_failed;

static _Thread_local bool is_tester;
static _Thread_local bool is_spared;
static atomic_int countdown_elsewhere = -1;
static atomic_bool has_one_failed;

static atomic_bool is_without_random, is_without_threads;
static atomic_bool are_replies_spared;

WRAPPED(malloc);
WRAPPED(calloc);
WRAPPED(realloc);
WRAPPED(pthread_create);
WRAPPED(getrandom);
WRAPPED(shed_parser_take);

void scarcity_begin(int n)
{
    has_failed = false;
    countdown = n;
}

bool scarcity_end(void)
{
    countdown = -1;
    return has_failed;
}

void scarcity_begin_elsewhere(int n)
{
    is_tester = true;
    atomic_store(&has_one_failed, false);
    atomic_store(&countdown_elsewhere, n);
}

bool scarcity_end_elsewhere(void)
{
    atomic_store(&countdown_elsewhere, -1);
    return atomic_load(&has_one_failed);
}

void scarcity_spare_replies(bool are_spared)
{
    atomic_store(&are_replies_spared, are_spared);
}

void scarcity_of_threads(bool are_out)
{
    atomic_store(&is_without_threads, are_out);
}

void scarcity_of_random_bytes(bool are_out)
{
    atomic_store(&is_without_random, are_out);
}

static bool fails_elsewhere(void)
{
    if (is_tester || atomic_load(&countdown_elsewhere) < 0 ||
        atomic_fetch_sub(&countdown_elsewhere, 1) != 0)
        return false;
    atomic_store(&has_one_failed, true);
    return true;
}

static bool fails_now(void)
{
    if (is_spared)
        return false;
    if (fails_elsewhere())
        return true;
    if (countdown < 0 || countdown-- > 0)
        return false;
    has_failed = true;
    return true;
}

void *__wrap_malloc(size_t size)
{
    return fails_now() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    return fails_now() ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *at, size_t size)
{
    return fails_now() ? NULL : __real_realloc(at, size);
}

int __wrap_pthread_create(pthread_t *out, const pthread_attr_t *attr,
                          void *(*run)(void *), void *arg)
{
    return atomic_load(&is_without_threads)
               ? EAGAIN
               : __real_pthread_create(out, attr, run, arg);
}

ssize_t __wrap_getrandom(void *out, size_t size, unsigned flags)
{
    if (!atomic_load(&is_without_random))
        return __real_getrandom(out, size, flags);
    errno = EAGAIN;
    return -1;
}

enum shed_parser_result __wrap_shed_parser_take(struct shed_parser *parser,
                                                const char *bytes, size_t size,
                                                size_t *taken,
                                                struct shed_reply **reply)
{
    enum shed_parser_result result;

    is_spared = atomic_load(&are_replies_spared);
    result = __real_shed_parser_take(parser, bytes, size, taken, reply);
    is_spared = false;
    return result;
}
