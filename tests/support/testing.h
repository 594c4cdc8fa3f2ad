/* What all test programs share: their main function, and waiting for
 * conditions. */
#ifndef TESTING_H
#define TESTING_H

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <check.h>

#include <snowshed/snowshed.h>

#include "base/clock.h"

/* Options of a get, and of a put, that differ from the defaults in some fields.
 */
#define GET_WITH(...)                                                          \
    (&(const struct shed_get_options){.size = sizeof(struct shed_get_options), \
                                      __VA_ARGS__})
#define WITHIN(ms) GET_WITH(.timeout_ms = (ms))
#define AT_VERSION(number)                                                     \
    (&(const struct shed_put_options){.size = sizeof(struct shed_put_options), \
                                      .version = &(const uint64_t){number}})

/* How much longer Redis keeps a value than anybody is given it: LEEWAY of
 * src/redis/entry.lua. */
#define LEEWAY_MS 200

#define COUNT_OF(array) (sizeof(array) / sizeof(*(array)))

/* Declare the function that takes the place of a function in a program that is
 * linked with --wrap=NAME, and the one that is replaced. */
#define WRAPPED(name) __typeof__(name) __real_##name, __wrap_##name

/* How long a single test may take; ends tests that hang. Longer than
 * test_deadline_ms, so that a wait that fails can still report what it waited
 * for. */
enum { TEST_TIMEOUT_S = 480 };

/* What holds the tests of a program, for fixtures and another timeout. */
static inline TCase *test_case(void)
{
    static TCase *tc;

    if (tc == NULL) {
        tc = tcase_create("tests");
        tcase_set_timeout(tc, TEST_TIMEOUT_S);
    }
    return tc;
}

/* Add a test, unless SHED_TEST_ONLY names another one. */
static inline void add_test(const TTest *test, int from, int to)
{
    const char *only = getenv("SHED_TEST_ONLY");

    if (only == NULL || strcmp(only, test->name) == 0)
        tcase_add_loop_test(test_case(), test, from, to);
}

/* Define a test, which adds itself to its program before main begins. A program
 * runs its tests in the order of their definitions. */
#define TEST(name) TEST_EACH(name, 0, 1)

/* Define a test that runs for each _i from the number from to to - 1. */
#define TEST_EACH(name, from, to)                                              \
    static void name##_fn(int _i);                                             \
    __attribute__((constructor)) static void name##_add(void)                  \
    {                                                                          \
        static const TTest test = {#name, name##_fn, __FILE__, __LINE__};      \
        add_test(&test, (int)(from), (int)(to));                               \
    }                                                                          \
    static void name##_fn(int _i CK_ATTRIBUTE_UNUSED)

/* Run them; for main to return. */
static inline int run_tests(const char *name)
{
    Suite *suite = suite_create(name);
    SRunner *runner;
    int failed;

    suite_add_tcase(suite, test_case());
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* Check what a call returns, or has stored as an atomic_int. */
#define EXPECT_CODE(call, expected)                                            \
    do {                                                                       \
        enum shed_code code_of_call = (enum shed_code)(call);                  \
        ck_assert_msg(code_of_call == (expected), "%s: %s", #call,             \
                      shed_code_name(code_of_call));                           \
    } while (0)
#define EXPECT_OK(call) EXPECT_CODE(call, SHED_OK)

/* Check that the reason of an error contains these words. */
static inline void expect_reason(const struct shed_error *err,
                                 const char *words)
{
    ck_assert_msg(strstr(err->reason, words) != NULL, "not '%s': %s", words,
                  err->reason);
}

static inline void start_thread(pthread_t *thread, void *(*run)(void *),
                                void *arg)
{
    ck_assert_int_eq(pthread_create(thread, NULL, run, arg), 0);
}

/* The number in an environment variable, or otherwise if it is not set. */
static inline uint64_t number_in(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);

    return text != NULL ? strtoull(text, NULL, 10) : otherwise;
}

/* SHED_TEST_SCALE: how many times slower than usual everything is. */
static inline uint64_t test_scale(void)
{
    uint64_t scale = number_in("SHED_TEST_SCALE", 1);

    return scale > 0 ? scale : 1;
}

/* A time that is also long enough on a slow machine. */
static inline uint64_t scaled_ms(uint64_t ms)
{
    return ms * test_scale();
}

/* The time after which something that should take a moment counts as failed. It
 * is long, because on a busy machine a process can stop for seconds, and a
 * virtual machine was seen to stop for 28. */
static inline uint64_t test_deadline_ms(void)
{
    enum { PATIENCE_MS = 60000 };

    return shed_now_ms() + scaled_ms(PATIENCE_MS);
}

/* Wait until the condition holds; what names it if it never does. */
#define WAIT_UNTIL(condition, what)                                            \
    do {                                                                       \
        uint64_t wait_end_ms = test_deadline_ms();                             \
        while (!(condition)) {                                                 \
            ck_assert_msg(shed_now_ms() < wait_end_ms, "still not: %s", what); \
            usleep(1000);                                                      \
        }                                                                      \
    } while (0)

#define WAIT_FOR(condition) WAIT_UNTIL(condition, #condition)

/* Wait for the end of a child, whose exit status must be 0. */
static inline void expect_success(pid_t child)
{
    int status = -1;

    ck_assert_int_gt(child, 0);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
}

#endif
