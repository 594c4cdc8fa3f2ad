#include "support/painted_stack.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include <check.h>

enum {
    /* a sanitizer keeps data of its own there */
    SMALL_BYTES = IS_SANITIZED ? 1024 * 1024 : 128 * 1024,
    OWN_BYTES = IS_SANITIZED ? 1024 * 1024 : 256 * 1024,
    GUARD_BYTES = 64 * 1024,
    PAINTED_MAX = 64,
    PATTERN = 0xa5
};

struct painted {
    unsigned char *stack; /* its lowest byte */
    size_t used;          /* below the frame that calls run */
    void *(*run)(void *arg);
    void *arg;
};

static void *run_painted(void *arg)
{
    struct painted *p = arg;
    const unsigned char *here = __builtin_frame_address(0);
    const unsigned char *at = p->stack;
    void *result = p->run(p->arg);

    while (*at == PATTERN)
        at++;
    p->used = (size_t)(here - at);
    return result;
}

static int start(pthread_t *out, struct painted *p, size_t size)
{
    unsigned char *at = mmap(NULL, GUARD_BYTES + size, PROT_NONE,
                             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pthread_attr_t attr;
    int failure;

    ck_assert_ptr_ne(at, MAP_FAILED);
    p->stack = at + GUARD_BYTES;
    ck_assert_int_eq(mprotect(p->stack, size, PROT_READ | PROT_WRITE), 0);
    memset(p->stack, PATTERN, size);
    ck_assert_int_eq(pthread_attr_init(&attr), 0);
    ck_assert_int_eq(pthread_attr_setstack(&attr, p->stack, size), 0);
    failure = pthread_create(out, &attr, run_painted, p);
    pthread_attr_destroy(&attr);
    return failure;
}

static void *run_it(void *arg)
{
    void (**run)(void) = arg;

    (*run)();
    return NULL;
}

size_t stack_use_of(void (*run)(void))
{
    struct painted p = {.run = run_it, .arg = &run};
    pthread_t thread;

    ck_assert_int_eq(start(&thread, &p, SMALL_BYTES), 0);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    munmap(p.stack - GUARD_BYTES, GUARD_BYTES + SMALL_BYTES);
    return p.used;
}

static struct painted started[PAINTED_MAX];
static atomic_size_t count;

int painted_start(pthread_t *out, void *(*run)(void *arg), void *arg)
{
    size_t i = atomic_fetch_add(&count, 1);

    ck_assert_uint_lt(i, PAINTED_MAX);
    started[i] = (struct painted){.run = run, .arg = arg};
    return start(out, &started[i], OWN_BYTES);
}

size_t painted_use(void)
{
    size_t most = 0;

    for (size_t i = 0; i < atomic_load(&count); i++)
        most = started[i].used > most ? started[i].used : most;
    return most;
}

void check_stack_use(const char *what, size_t used, size_t bound)
{
    printf("%s: %zu bytes of stack\n", what, used);
    if (!IS_SANITIZED)
        ck_assert_uint_le(used, bound);
}
