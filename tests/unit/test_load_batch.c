/* load_batch: among keys with the same failure, the first one carries their
 * number. */
#include "source/load_batch.h"

#include <stdio.h>
#include <stdlib.h>

#include "support/testing.h"

enum { KEYS = 12 };

static struct shed_job jobs[KEYS];
static struct shed_loaded settled[KEYS];
static const int one_cache, another_cache;

static void note(struct shed_job *job, struct shed_loaded *loaded)
{
    settled[job - jobs] = *loaded;
}

static struct shed_load *load_of(size_t count)
{
    struct shed_load *load = shed_load_create(NULL, KEYS);

    ck_assert_ptr_nonnull(load);
    for (size_t i = 0; i < count; i++) {
        jobs[i] = (struct shed_job){
            .value_limit_bytes = 10, .settle = note, .group = &one_cache};
        load->jobs[load->count++] = &jobs[i];
    }
    return load;
}

static void settle(struct shed_load *load)
{
    shed_load_settle(load, 1);
    shed_load_destroy(load);
}

static void expect_failed_keys(const size_t *expected, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        ck_assert_msg(settled[i].failed_keys == expected[i], "%zu: %zu", i,
                      settled[i].failed_keys);
        shed_value_unref(settled[i].value);
    }
}

START_TEST(failures_are_counted_at_the_first_for_each_reason)
{
    const size_t expected[6] = {0, 3, 1, 0, 0, 0};
    struct shed_load *load = load_of(6);

    shed_load_value(load, 0, shed_str("row"));
    shed_load_fail(load, 1, "the query failed");
    shed_load_fail(load, 2, "this row is broken");
    shed_load_fail(load, 3, "the query failed");
    shed_load_absent(load, 4);
    shed_load_fail(load, 5, "the query failed");
    settle(load);
    expect_failed_keys(expected, 6);
}
END_TEST

/* The other cache may have another log. */
START_TEST(each_cache_has_a_first_failure)
{
    const size_t expected[4] = {2, 2, 0, 0};
    struct shed_load *load = load_of(4);

    jobs[1].group = jobs[3].group = &another_cache;
    settle(load); /* none was answered */
    expect_failed_keys(expected, 4);
}
END_TEST

/* So a load whose failures all differ costs no more than others. */
START_TEST(failures_for_many_reasons_are_counted_singly)
{
    struct shed_load *load = load_of(KEYS);
    char reason[16];

    for (size_t i = 0; i < KEYS; i++) {
        snprintf(reason, sizeof(reason), "%u", (unsigned)i % (KEYS / 2));
        shed_load_fail(load, i, reason);
    }
    settle(load);
    ck_assert_uint_eq(settled[0].failed_keys, 2);
    ck_assert_uint_eq(settled[KEYS / 2].failed_keys, 0);
    ck_assert_uint_eq(settled[KEYS / 2 - 1].failed_keys, 1);
    ck_assert_uint_eq(settled[KEYS - 1].failed_keys, 1);
}
END_TEST

START_TEST(a_key_that_could_not_be_given_a_tag_fails)
{
    static const char longest[SHED_TAG_MAX_BYTES + 1];
    struct shed_load *load = load_of(5);

    for (size_t i = 0; i < 5; i++)
        shed_load_value(load, i, shed_str("row"));
    shed_load_tag(load, 0, shed_str("red"));
    shed_load_tag(load, 0, shed_bytes(longest, SHED_TAG_MAX_BYTES));
    shed_load_tag(load, 1, shed_bytes(longest, SHED_TAG_MAX_BYTES + 1));
    shed_load_tag(load, 2, shed_str(""));
    shed_load_tag(load, 2, shed_str("red")); /* which does not undo it */
    for (size_t tags = 0; tags <= SHED_TAGS_MAX; tags++)
        shed_load_tag(load, 3, shed_str("red"));
    for (size_t tags = 0; tags < SHED_TAGS_MAX; tags++)
        shed_load_tag(load, 4, shed_str("red"));
    shed_load_tag(load, 5, shed_str("of no key"));
    settle(load);
    for (size_t i = 0; i < 5; i++) {
        bool has_failed = i >= 1 && i <= 3;
        ck_assert_int_eq(settled[i].value == NULL, has_failed);
        ck_assert_int_eq(settled[i].error.code == SHED_ESOURCE, has_failed);
        shed_value_unref(settled[i].value);
        free(settled[i].tags);
    }
    ck_assert_uint_eq(settled[0].tags_size, 2 + 4 + 1 + SHED_TAG_MAX_BYTES);
}
END_TEST

int main(void)
{
    TCase *tc = tcase_create("load_batch");

    tcase_set_timeout(tc, TEST_TIMEOUT_S);
    tcase_add_test(tc, failures_are_counted_at_the_first_for_each_reason);
    tcase_add_test(tc, each_cache_has_a_first_failure);
    tcase_add_test(tc, failures_for_many_reasons_are_counted_singly);
    tcase_add_test(tc, a_key_that_could_not_be_given_a_tag_fails);
    return run_tests("load_batch", tc);
}
