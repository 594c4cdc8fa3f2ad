/* What the test programs share: their main function, and how long to wait for
 * what must happen. */
#ifndef TESTING_H
#define TESTING_H

#include <stdint.h>
#include <stdlib.h>

#include <check.h>

#include "base/clock.h"

/* How long a test may take: it ends what hangs. Longer than what it waits for,
 * so that a wait which fails can say so. */
enum { TEST_TIMEOUT_S = 480 };

/* Run the tests of tc as a program. */
static inline int run_tests(const char *name, TCase *tc)
{
    Suite *suite = suite_create(name);
    SRunner *runner;
    int failed;

    suite_add_tcase(suite, tc);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* The instant at which what takes a moment has failed: far away, because on a
 * busy machine a process can stop for seconds, and a virtual machine was seen
 * to stop for 28. SHED_TEST_SCALE multiplies it where everything is slow. */
static inline uint64_t test_deadline_ms(void)
{
    enum { PATIENCE_MS = 60000 };
    const char *text = getenv("SHED_TEST_SCALE");
    uint64_t scale = text != NULL ? strtoull(text, NULL, 10) : 1;

    return shed_now_ms() + PATIENCE_MS * (scale > 0 ? scale : 1);
}

#endif
