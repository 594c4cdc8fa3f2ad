/* No call needs more of its thread's stack than snowshed.h says: every public
 * call is made on a thread whose stack is small and filled with a pattern. */
#define _GNU_SOURCE /* pthread_setattr_default_np, pthread_getattr_np */
#include <string.h>
#include <sys/mman.h>

#include <snowshed/lock.h>

#include "base/thread.h"
#include "support/fixture.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define IS_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define IS_SANITIZED 1
#endif
#endif
#ifndef IS_SANITIZED
#define IS_SANITIZED 0
#endif

enum {
    /* a sanitizer enlarges frames, and keeps data of its own there */
    STACK_BYTES = IS_SANITIZED ? 1024 * 1024 : 32 * 1024,
    GUARD_BYTES = 64 * 1024,
    CALL_BYTES = 16 * 1024,
    OWN_BYTES = 256 * 1024,
    SMALL_DEFAULT_BYTES = 128 * 1024,
    /* of the functions of calls.c, which hold statistics and error texts */
    CALLER_BYTES = 4 * 1024,
    PATTERN = 0xa5
};

/* The program that calls what the others do not: its main. */
int calls_main(int argc, char **argv);

static struct fixture fixture;

struct small {
    void (*run)(void);
    unsigned char *stack; /* its lowest byte */
    size_t used;          /* below the frame that makes the calls */
};

static void *run_painted(void *arg)
{
    struct small *small = arg;
    const unsigned char *here = __builtin_frame_address(0);
    const unsigned char *at = small->stack;

    small->run();
    while (*at == PATTERN)
        at++;
    small->used = (size_t)(here - at);
    return NULL;
}

/* Run on a thread with a small stack. Returns: how much of it was used. */
static size_t use_of(void (*run)(void))
{
    unsigned char *at = mmap(NULL, GUARD_BYTES + STACK_BYTES, PROT_NONE,
                             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct small small = {.run = run, .stack = at + GUARD_BYTES};
    pthread_attr_t attr;
    pthread_t thread;

    ck_assert_ptr_ne(at, MAP_FAILED);
    ck_assert_int_eq(mprotect(small.stack, STACK_BYTES, PROT_READ | PROT_WRITE),
                     0);
    memset(small.stack, PATTERN, STACK_BYTES);
    ck_assert_int_eq(pthread_attr_init(&attr), 0);
    ck_assert_int_eq(pthread_attr_setstack(&attr, small.stack, STACK_BYTES), 0);
    ck_assert_int_eq(pthread_create(&thread, &attr, run_painted, &small), 0);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    pthread_attr_destroy(&attr);
    munmap(at, GUARD_BYTES + STACK_BYTES);
    return small.used;
}

static void call_all(void)
{
    char program[] = "calls", *words[] = {program, fixture.server.uri, NULL};

    ck_assert_int_eq(calls_main(2, words), 0);
}

static struct shed_bytes many_tags[SHED_TAGS_MAX];

static void ask_lock(void)
{
    struct shed_lock *lock = NULL;

    ck_assert_int_eq(
        shed_lock_open(fixture.client, shed_str("l"), NULL, &lock, NULL),
        SHED_OK);
    ck_assert_int_eq(shed_lock_is_mine(lock), 0);
    shed_lock_close(lock);
}

/* What calls.c leaves out, and the longest arguments. */
static void call_others(void)
{
    static char long_key[SHED_KEY_MAX_BYTES];
    struct shed_put_options put = SHED_PUT_OPTIONS_INIT;
    struct shed_item items[2] = {{.key = shed_str("absent")},
                                 {.key = {long_key, sizeof(long_key)}}};

    memset(long_key, 'k', sizeof(long_key));
    put.tags = many_tags;
    put.tags_count = SHED_TAGS_MAX;
    ck_assert_int_eq(
        shed_put_with(fixture.cache, items[1].key, shed_str("row"), &put, NULL),
        SHED_OK);
    ck_assert_int_eq(
        shed_get_many(fixture.cache, items, 2, SHED_TIMEOUT_DEFAULT, NULL),
        SHED_OK);
    for (int i = 0; i < 2; i++)
        shed_value_unref(items[i].value);
    ck_assert_int_eq(shed_invalidate(fixture.cache, items[1].key,
                                     SHED_TIMEOUT_DEFAULT, NULL),
                     SHED_OK);
    ask_lock();
    ck_assert_int_eq(shed_client_probe(fixture.client, SHED_USE_EXACT_LOCK,
                                       items[1].key, 0, NULL),
                     SHED_OK);
}

static void check_use(const char *what, size_t used, size_t bound)
{
    printf("test_stack: %s: %zu bytes\n", what, used);
    if (!IS_SANITIZED)
        ck_assert_uint_le(used, bound);
}

START_TEST(no_call_needs_more_than_16_kb_of_stack)
{
    static char names[SHED_TAGS_MAX][SHED_TAG_MAX_BYTES];

    for (size_t i = 0; i < SHED_TAGS_MAX; i++) {
        memset(names[i], 't', sizeof(names[i]));
        names[i][0] = (char)('0' + i);
        many_tags[i] = (struct shed_bytes){names[i], sizeof(names[i])};
    }
    fixture_init(&fixture);
    fixture.cache_options.groups = 2 * SHED_TAGS_MAX;
    fixture_open(&fixture);
    check_use("the longest arguments", use_of(call_others), CALL_BYTES);
    check_use("every call", use_of(call_all), CALL_BYTES + CALLER_BYTES);
    fixture_down(&fixture);
}
END_TEST

static void *read_stack_size(void *size)
{
    pthread_attr_t attr;

    ck_assert_int_eq(pthread_getattr_np(pthread_self(), &attr), 0);
    ck_assert_int_eq(pthread_attr_getstacksize(&attr, size), 0);
    pthread_attr_destroy(&attr);
    return NULL;
}

START_TEST(threads_of_the_library_have_room_whatever_the_default_is)
{
    size_t size = 0;
    pthread_attr_t attr;
    pthread_t thread;

    ck_assert_int_eq(pthread_attr_init(&attr), 0);
    ck_assert_int_eq(pthread_attr_setstacksize(&attr, SMALL_DEFAULT_BYTES), 0);
    ck_assert_int_eq(pthread_setattr_default_np(&attr), 0);
    ck_assert_int_eq(shed_thread_start(&thread, read_stack_size, &size), 0);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_assert_uint_ge(size, OWN_BYTES);
    pthread_attr_destroy(&attr);
}
END_TEST

int main(void)
{
    TCase *tc = tcase_create("stack");

    tcase_add_test(tc, no_call_needs_more_than_16_kb_of_stack);
    tcase_add_test(tc,
                   threads_of_the_library_have_room_whatever_the_default_is);
    return run_tests("stack", tc);
}
