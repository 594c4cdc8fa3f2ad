/* error: reasons, and the checks of arguments. random: tokens. */
#include "base/error.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "base/random.h"
#include "support/testing.h"

/* A struct as in a future version of the library. */
struct options {
    size_t size;
    uint64_t first;
    uint64_t second;
};

struct longer_options {
    struct options known;
    uint64_t third;
};

#define NAMED(code)                                                            \
    {                                                                          \
        code, #code                                                            \
    }

TEST(every_code_has_the_name_that_the_header_gives_it)
{
    static const struct {
        enum shed_code code;
        const char *name;
    } codes[] = {NAMED(SHED_OK),       NAMED(SHED_EINVAL),  NAMED(SHED_ENOMEM),
                 NAMED(SHED_EBUSY),    NAMED(SHED_EREDIS),  NAMED(SHED_ESOURCE),
                 NAMED(SHED_ETOOBIG),  NAMED(SHED_EDENIED), NAMED(SHED_ECLOSED),
                 NAMED(SHED_EMISS),    NAMED(SHED_EFORKED), NAMED(SHED_ELOST),
                 NAMED(SHED_ETIMEDOUT)};

    for (size_t i = 0; i < COUNT_OF(codes); i++)
        ck_assert_str_eq(shed_code_name(codes[i].code), codes[i].name);
}

TEST(a_code_of_another_version_has_a_name)
{
    ck_assert_ptr_nonnull(shed_code_name(99));
}

TEST(a_failure_is_its_code_and_its_reason)
{
    struct shed_error err;

    EXPECT_CODE(shed_fail(&err, SHED_EBUSY, "%d of %s", 3, "four"), SHED_EBUSY);
    EXPECT_CODE(err.code, SHED_EBUSY);
    ck_assert_str_eq(err.reason, "3 of four");
}

TEST(nobody_has_to_want_the_reason)
{
    EXPECT_CODE(shed_fail(NULL, SHED_ECLOSED, "closed"), SHED_ECLOSED);
}

TEST(a_long_reason_is_cut_and_terminated)
{
    char text[2 * SHED_REASON_BYTES];
    struct shed_error err;

    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    memset(&err, 0xff, sizeof(err));
    EXPECT_CODE(shed_fail(&err, SHED_EREDIS, "%s", text), SHED_EREDIS);
    ck_assert_uint_eq(strlen(err.reason), SHED_REASON_BYTES - 1);
}

TEST(a_reason_is_one_printable_line)
{
    struct shed_error err;

    (void)shed_fail(&err, SHED_ESOURCE, "a\nb\x1b[2J\x7f\tc\r %s",
                    "gr\xc3\xbcn, \xc2\x9b, \xc2\xa0, \xc2");
    ck_assert_str_eq(err.reason, "a?b?[2J??c? gr\xc3\xbcn, ??, \xc2\xa0, \xc2");
}

TEST(a_reason_may_be_made_of_the_one_that_it_replaces)
{
    struct shed_error err;

    EXPECT_CODE(shed_fail(&err, SHED_EREDIS, "inner"), SHED_EREDIS);
    EXPECT_CODE(shed_fail(&err, SHED_EREDIS, "outer: %s", err.reason),
                SHED_EREDIS);
    ck_assert_str_eq(err.reason, "outer: inner");
}

TEST(errno_stays_as_it_was)
{
    struct shed_error err;

    errno = ECONNRESET;
    /* A wide string that cannot be encoded makes vsnprintf fail. */
    EXPECT_CODE(shed_fail(&err, SHED_EREDIS, "%ls", L"\xd800"), SHED_EREDIS);
    ck_assert_int_eq(errno, ECONNRESET);
    ck_assert_str_eq(err.reason, "");
}

TEST(no_options_are_the_defaults)
{
    const struct options defaults = {sizeof(defaults), 1, 2};
    struct options out = defaults;

    EXPECT_OK(shed_options_take(&out, sizeof(out), NULL, "options", NULL));
    ck_assert_mem_eq(&out, &defaults, sizeof(out));
}

/* Options of this size are {10, 20, third}; ours are {1, 2} before. */
static const struct {
    size_t size;
    uint64_t third;
    enum shed_code code;
    uint64_t first, second; /* ours afterwards */
} taken[] = {
    {sizeof(struct options), 99, SHED_OK, 10, 20},
    /* an older program gets defaults for what it does not know */
    {offsetof(struct options, second), 99, SHED_OK, 10, 2},
    /* a newer one may leave zero what we do not know, and set nothing of it */
    {sizeof(struct longer_options), 0, SHED_OK, 10, 20},
    {sizeof(struct longer_options), 1, SHED_EINVAL, 1, 2},
    /* these were not initialised */
    {0, 0, SHED_EINVAL, 1, 2},
    {sizeof(size_t), 0, SHED_EINVAL, 1, 2},
    {sizeof(size_t) + 1, 0, SHED_EINVAL, 1, 2},
    {SIZE_MAX, 0, SHED_EINVAL, 1, 2},
};

TEST_EACH(options_are_taken_as_far_as_both_know_them, 0, COUNT_OF(taken))
{
    struct longer_options given = {{taken[_i].size, 10, 20}, taken[_i].third};
    struct options out = {sizeof(out), 1, 2};
    struct shed_error err = {0};

    EXPECT_CODE(
        shed_options_take(&out, sizeof(out), &given, "item options", &err),
        taken[_i].code);
    ck_assert_uint_eq(out.size, sizeof(out));
    ck_assert_uint_eq(out.first, taken[_i].first);
    ck_assert_uint_eq(out.second, taken[_i].second);
    ck_assert_int_eq(strstr(err.reason, "item options") != NULL,
                     taken[_i].code != SHED_OK);
}

TEST(a_size_beyond_that_of_any_options_is_refused)
{
    static size_t given[1024]; /* zeros, which any version would accept */
    struct options out = {sizeof(out), 1, 2};

    given[0] = sizeof(given);
    EXPECT_CODE(shed_options_take(&out, sizeof(out), given, "options", NULL),
                SHED_EINVAL);
}

TEST(a_value_out_of_range_is_named)
{
    struct shed_error err;

    EXPECT_OK(shed_check_range(1, 1, 9, "ttl_ms", NULL));
    EXPECT_OK(shed_check_range(9, 1, 9, "ttl_ms", NULL));
    EXPECT_CODE(shed_check_range(0, 1, 9, "ttl_ms", &err), SHED_EINVAL);
    ck_assert_str_eq(err.reason, "ttl_ms is 0, must be in [1, 9]");
    EXPECT_CODE(shed_check_range(10, 1, 9, "ttl_ms", NULL), SHED_EINVAL);
}

TEST(a_deadline_beyond_all_time_is_the_last_instant)
{
    ck_assert_uint_eq(shed_deadline_ms(5, 6), 11);
    ck_assert_uint_eq(shed_deadline_ms(5, UINT64_MAX), UINT64_MAX);
    ck_assert_uint_eq(shed_left_ms(11, 5), 6);
    ck_assert_uint_eq(shed_left_ms(5, 11), 0);
}

TEST(the_clock_counts_on_in_both_units)
{
    uint64_t us = shed_now_us(), ms = shed_now_ms();

    ck_assert_uint_ge(ms, us / 1000);
    ck_assert_uint_ge(shed_now_us(), us);
    ck_assert_uint_ge(shed_now_us() / 1000, ms);
}

TEST(two_tokens_differ_and_are_filled_to_their_end)
{
    unsigned char a[32] = {0}, b[32] = {0};
    bool is_tail_set = false;

    /* by chance a byte is 0 once in 256 times; three times in a row is taken
     * for impossible */
    for (int i = 0; i < 3; i++) {
        EXPECT_OK(shed_random_token(a, sizeof(a), NULL));
        is_tail_set = is_tail_set || a[sizeof(a) - 1] != 0;
    }
    EXPECT_OK(shed_random_token(b, sizeof(b), NULL));
    ck_assert_mem_ne(a, b, sizeof(a));
    ck_assert(is_tail_set);
}

TEST(jitter_spreads_over_all_of_a_range)
{
    unsigned hits[16] = {0};

    for (int i = 0; i < 16000; i++)
        hits[shed_random_jitter() % 16]++;
    /* 1000 each; the standard deviation is 31. */
    for (int i = 0; i < 16; i++)
        ck_assert(hits[i] > 800 && hits[i] < 1200);
}

int main(void)
{
    return run_tests("error");
}
