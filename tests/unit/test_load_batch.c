/* load_batch: among keys with the same failure, the first one carries their
 * number. */
#include "source/load_batch.h"

#include <stdio.h>
#include <stdlib.h>

#include "support/answers.h"
#include "support/testing.h"

enum { KEYS = 12 };

static struct shed_job jobs[KEYS];
static struct shed_loaded settled[KEYS];
static const int one_cache, another_cache;

static void note(struct shed_job *job)
{
    settled[job - jobs] = job->loaded;
}

static struct shed_load *load_of(size_t count)
{
    struct shed_load_batch *batch = shed_load_batch_create(NULL, KEYS);

    ck_assert_ptr_nonnull(batch);
    for (size_t i = 0; i < count; i++) {
        jobs[i] = (struct shed_job){
            .value_limit_bytes = 10, .settle = note, .group = &one_cache};
        shed_load_batch_add(batch, &jobs[i]);
    }
    return &batch->load;
}

static void settle(struct shed_load *load)
{
    struct shed_error unused;

    (void)shed_load_batch_settle(shed_load_batch_of(load), &unused);
    shed_load_batch_destroy(shed_load_batch_of(load));
}

static void expect_failed_keys(const size_t *expected, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        ck_assert_msg(settled[i].failed_keys == expected[i], "%zu: %zu", i,
                      settled[i].failed_keys);
        shed_value_unref(settled[i].value);
    }
}

TEST(failures_are_counted_at_the_first_for_each_reason)
{
    const size_t expected[6] = {0, 3, 1, 0, 0, 0};
    struct shed_load *load = load_of(6);

    answer_row(load, 0, shed_str("row"));
    answer_failed(load, 1, "the query failed");
    answer_failed(load, 2, "this row is broken");
    answer_failed(load, 3, "the query failed");
    answer_absent(load, 4);
    answer_failed(load, 5, "the query failed");
    settle(load);
    expect_failed_keys(expected, 6);
}

/* The other cache may have another log. */
TEST(each_cache_has_a_first_failure)
{
    const size_t expected[4] = {2, 2, 0, 0};
    struct shed_load *load = load_of(4);

    jobs[1].group = jobs[3].group = &another_cache;
    settle(load); /* none was answered */
    expect_failed_keys(expected, 4);
}

/* So a load whose failures all differ costs no more than others. */
TEST(failures_for_many_reasons_are_counted_singly)
{
    struct shed_load *load = load_of(KEYS);
    char reason[16];

    for (size_t i = 0; i < KEYS; i++) {
        snprintf(reason, sizeof(reason), "%u", (unsigned)i % (KEYS / 2));
        answer_failed(load, i, reason);
    }
    settle(load);
    ck_assert_uint_eq(settled[0].failed_keys, 2);
    ck_assert_uint_eq(settled[KEYS / 2].failed_keys, 0);
    ck_assert_uint_eq(settled[KEYS / 2 - 1].failed_keys, 1);
    ck_assert_uint_eq(settled[KEYS - 1].failed_keys, 1);
}

static void answer_tagged(struct shed_load *load, size_t i,
                          const struct shed_bytes *tags, size_t count)
{
    struct shed_answer answer = SHED_ANSWER_INIT;

    answer.kind = SHED_ANSWER_ROW;
    answer.row = shed_str("row");
    answer.tags = tags;
    answer.tags_count = count;
    shed_load_answer(load, i, &answer);
}

TEST(a_key_that_could_not_be_given_a_tag_fails)
{
    static const char longest[SHED_TAG_MAX_BYTES + 1];
    const struct shed_bytes red = shed_str("red"),
                            full = shed_bytes(longest, SHED_TAG_MAX_BYTES),
                            over = shed_bytes(longest, SHED_TAG_MAX_BYTES + 1);
    const struct shed_bytes good[] = {red, full}, empty[] = {red, shed_str("")};
    struct shed_bytes many[SHED_TAGS_MAX + 1];
    struct shed_load *load = load_of(5);

    for (size_t t = 0; t <= SHED_TAGS_MAX; t++)
        many[t] = red;
    answer_tagged(load, 0, empty, 2); /* replaced */
    answer_tagged(load, 0, good, 2);
    answer_tagged(load, 1, &over, 1);
    answer_tagged(load, 2, empty, 2);
    answer_tagged(load, 3, many, SHED_TAGS_MAX + 1);
    answer_tagged(load, 4, many, SHED_TAGS_MAX);
    answer_tagged(load, 5, &red, 1); /* there is no such key */
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

TEST(an_answer_of_a_kind_that_there_is_not_fails)
{
    struct shed_load *load = load_of(1);

    answer_kind(load, 0, (enum shed_answer_kind)77, NULL);
    settle(load);
    ck_assert_int_eq(settled[0].error.code, SHED_ESOURCE);
    ck_assert_str_eq(settled[0].error.reason,
                     "the source gave an answer of a kind that there is not");
}

int main(void)
{
    return run_tests("load_batch");
}
