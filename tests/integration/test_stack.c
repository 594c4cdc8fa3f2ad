/* No call needs more of its thread's stack than snowshed.h says: every public
 * call is made on a thread whose stack is small and filled with a pattern. */
#define _GNU_SOURCE /* pthread_setattr_default_np, pthread_getattr_np */
#include <string.h>

#include <snowshed/lock.h>

#include "base/thread.h"
#include "support/certificates.h"
#include "support/fixture.h"
#include "support/painted_stack.h"

enum {
    CALL_BYTES = 16 * 1024,
    TLS_CALL_BYTES = 24 * 1024, /* OpenSSL 3.5 has larger keys */
    OWN_BYTES = 256 * 1024,
    SMALL_DEFAULT_BYTES = 128 * 1024,
    /* of the functions of calls.c, which hold statistics and error texts */
    CALLER_BYTES = 4 * 1024,
    LOOP_BYTES = 12 * 1024 /* of libuv's own, for what epoll tells */
};

/* The program that calls what the others do not: its main. */
int calls_main(int argc, char **argv);

static void call_all(void)
{
    char program[] = "calls", *words[] = {program, fixture.server.uri, NULL};

    ck_assert_int_eq(calls_main(2, words), 0);
}

static struct shed_bytes many_tags[SHED_TAGS_MAX];

static void ask_lock(void)
{
    struct shed_lock *lock = NULL;

    EXPECT_OK(shed_lock_open(fixture.client, shed_str("l"), NULL, &lock, NULL));
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
    EXPECT_OK(
        shed_put(fixture.cache, items[1].key, shed_str("row"), &put, NULL));
    EXPECT_OK(shed_get_many(fixture.cache, items, 2, NULL, NULL));
    for (int i = 0; i < 2; i++)
        shed_value_unref(items[i].value);
    EXPECT_OK(shed_invalidate(fixture.cache, items[1].key, SHED_TIMEOUT_DEFAULT,
                              NULL));
    ask_lock();
    EXPECT_OK(shed_cache_probe(fixture.cache, 0, NULL));
}

/* The threads of the library are started here, in the place of its own
 * function (the linker's --wrap). */
WRAPPED(shed_thread_start);
static bool is_painted;

int __wrap_shed_thread_start(pthread_t *out, void *(*run)(void *arg), void *arg)
{
    return is_painted ? painted_start(out, run, arg)
                      : __real_shed_thread_start(out, run, arg);
}

static void make_tags(void)
{
    static char names[SHED_TAGS_MAX][SHED_TAG_MAX_BYTES];

    for (size_t i = 0; i < SHED_TAGS_MAX; i++) {
        memset(names[i], 't', sizeof(names[i]));
        names[i][0] = (char)('0' + i);
        many_tags[i] = (struct shed_bytes){names[i], sizeof(names[i])};
    }
}

TEST(no_call_needs_more_than_16_kb_of_stack)
{
    make_tags();
    is_painted = true;
    fixture_init(&fixture);
    fixture.cache_options.tags_limit = 2 * SHED_TAGS_MAX;
    fixture_open(&fixture);
    check_stack_use("the longest arguments", stack_use_of(call_others),
                    CALL_BYTES);
    is_painted = false;
    check_stack_use("every call", stack_use_of(call_all),
                    CALL_BYTES + CALLER_BYTES);
    fixture_down(&fixture);
    check_stack_use("the library's threads", painted_use(),
                    CALL_BYTES + LOOP_BYTES);
}

/* The handshake of a connection is made by the call that needs it. */
TEST(over_tls_no_call_needs_more_than_24_kb)
{
    char dir[] = "/tmp/shed-stack-XXXXXX";

    ck_assert_ptr_nonnull(mkdtemp(dir));
    certificates_make(dir);
    make_tags();
    is_painted = true;
    fixture_init_tls(&fixture, dir);
    fixture.cache_options.tags_limit = 2 * SHED_TAGS_MAX;
    fixture_open(&fixture);
    check_stack_use("over TLS", stack_use_of(call_others), TLS_CALL_BYTES);
    fixture_down(&fixture);
    check_stack_use("the library's threads, over TLS", painted_use(),
                    TLS_CALL_BYTES + LOOP_BYTES);
    certificates_remove(dir);
}

static void *read_stack_size(void *size)
{
    pthread_attr_t attr;

    ck_assert_int_eq(pthread_getattr_np(pthread_self(), &attr), 0);
    ck_assert_int_eq(pthread_attr_getstacksize(&attr, size), 0);
    pthread_attr_destroy(&attr);
    return NULL;
}

TEST(threads_of_the_library_have_room_whatever_the_default_is)
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

int main(void)
{
    return run_tests("stack");
}
