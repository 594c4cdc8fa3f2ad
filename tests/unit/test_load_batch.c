/* load_batch: what comes of the answers, and among keys with the same failure,
 * the first one carries their number. */
#include "source/load_batch.h"

#include <stdio.h>
#include <stdlib.h>

#include "support/answers.h"
#include "support/testing.h"

enum { KEYS = 13, LIMIT = 10 };

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
            .value_limit_bytes = LIMIT, .settle = note, .group = &one_cache};
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
        snprintf(reason, sizeof(reason), "%u", (unsigned)i % (KEYS / 2 + 1));
        answer_failed(load, i, reason);
    }
    settle(load);
    ck_assert_uint_eq(settled[0].failed_keys, 2);
    ck_assert_uint_eq(settled[KEYS / 2 + 1].failed_keys, 0);
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

/* ------------------------------------------------------------- one answer */

enum { NOTHING = -1 };

/* What a key is answered with, in place of another answer (without one, a
 * failure), and what comes of it: a value, or an error. */
static const struct {
    struct answered {
        int kind; /* NOTHING: not at all */
        size_t size;
        const char *reason;
    } first, last;
    enum shed_code code;
    enum shed_kind kind;
    size_t size;
    const char *why;
} answers[] = {
    {.last = {.kind = SHED_ANSWER_ROW, .size = 3},
     .kind = SHED_KIND_ROW,
     .size = 3},
    {.last = {.kind = SHED_ANSWER_ROW, .size = 0}, .kind = SHED_KIND_ROW},
    {.last = {.kind = SHED_ANSWER_NULL}, .kind = SHED_KIND_NULL},
    {.last = {.kind = SHED_ANSWER_ABSENT}, .kind = SHED_KIND_ABSENT},
    {.first = {.kind = NOTHING},
     .last = {.kind = NOTHING},
     .code = SHED_ESOURCE,
     .why = "the source gave no answer for this key"},
    {.first = {.kind = SHED_ANSWER_ROW, .size = 1},
     .last = {SHED_ANSWER_FAILED, 0, "the result broke off"},
     .code = SHED_ESOURCE,
     .why = "the result broke off"},
    {.first = {SHED_ANSWER_FAILED, 0, "not yet"},
     .last = {.kind = SHED_ANSWER_ROW, .size = 2},
     .kind = SHED_KIND_ROW,
     .size = 2},
    {.first = {.kind = SHED_ANSWER_ROW, .size = 1},
     .last = {.kind = SHED_ANSWER_ROW, .size = LIMIT},
     .kind = SHED_KIND_ROW,
     .size = LIMIT},
    {.last = {.kind = SHED_ANSWER_ROW, .size = LIMIT + 1},
     .code = SHED_ETOOBIG,
     .why = "the value has 11 bytes, value_limit_bytes is 10"},
    {.last = {SHED_ANSWER_TOO_BIG, 0, "a mile of it"},
     .code = SHED_ETOOBIG,
     .why = "a mile of it"},
    {.last = {.kind = SHED_ANSWER_TOO_BIG},
     .code = SHED_ETOOBIG,
     .why = "the source gave no reason"},
    {.last = {.kind = SHED_ANSWER_FAILED},
     .code = SHED_ESOURCE,
     .why = "the source gave no reason"},
    {.last = {.kind = 77},
     .code = SHED_ESOURCE,
     .why = "the source gave an answer of a kind that there is not"},
};

static const char bytes[LIMIT + 1] = "a\0b";

static void give(struct shed_load *load, size_t i, const struct answered *a)
{
    struct shed_answer answer = SHED_ANSWER_INIT;

    answer.kind = (enum shed_answer_kind)a->kind;
    answer.row = shed_bytes(bytes, a->size);
    answer.reason = a->reason;
    if (a->kind != NOTHING)
        shed_load_answer(load, i, &answer);
}

TEST(each_key_has_its_last_answer)
{
    struct shed_load *load = load_of(COUNT_OF(answers));

    for (size_t i = 0; i < COUNT_OF(answers); i++) {
        give(load, i, &answers[i].first);
        give(load, i, &answers[i].last);
        give(load, COUNT_OF(answers) + i, &answers[i].last); /* no such key */
    }
    settle(load);
    for (size_t i = 0; i < COUNT_OF(answers); i++) {
        struct shed_value *value = settled[i].value;
        ck_assert_int_eq(settled[i].error.code, answers[i].code);
        ck_assert_int_eq(value == NULL, answers[i].code != SHED_OK);
        if (answers[i].why != NULL)
            ck_assert_str_eq(settled[i].error.reason, answers[i].why);
        if (value == NULL)
            continue;
        ck_assert_int_eq(value->kind, answers[i].kind);
        ck_assert_int_eq(value->origin, SHED_ORIGIN_UNPUBLISHED);
        ck_assert_uint_eq(value->size, answers[i].size);
        if (value->size > 0)
            ck_assert_mem_eq(value->data, bytes, value->size);
        shed_value_unref(value);
    }
}

int main(void)
{
    return run_tests("load_batch");
}
