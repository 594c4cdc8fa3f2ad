/* backoff: the wait grows, stays within its bounds, and is spread. */
#include "base/backoff.h"

#include "support/testing.h"

TEST(the_first_wait_is_at_most_the_minimum)
{
    for (uint64_t random = 0; random < 50; random++)
        ck_assert_uint_le(shed_backoff_ms(0, 5, 100, random), 5);
}

TEST(full_jitter_reaches_from_one_to_the_bound)
{
    ck_assert_uint_eq(shed_backoff_ms(2, 5, 100, 0), 1);
    ck_assert_uint_eq(shed_backoff_ms(2, 5, 100, 19), 20);
    ck_assert_uint_eq(shed_backoff_ms(2, 5, 100, 20), 1);
}

TEST(the_bound_doubles_up_to_the_maximum)
{
    static const uint64_t bounds[] = {5, 10, 20, 40, 80, 100, 100};

    for (unsigned i = 0; i < sizeof(bounds) / sizeof(*bounds); i++)
        ck_assert_uint_eq(shed_backoff_ms(i, 5, 100, bounds[i] - 1), bounds[i]);
}

TEST(equal_jitter_never_goes_below_half_of_the_bound)
{
    for (uint64_t random = 0; random < 500; random++) {
        uint64_t delay = shed_backoff_equal_ms(1, 50, 150, random);

        ck_assert_uint_ge(delay, 50);
        ck_assert_uint_le(delay, 100);
    }
    ck_assert_uint_eq(shed_backoff_equal_ms(1, 50, 150, 0), 100);
    ck_assert_uint_eq(shed_backoff_equal_ms(1, 50, 150, 50), 50);
}

TEST(ten_thousand_tries_do_not_overflow)
{
    ck_assert_uint_eq(shed_backoff_ms(10000, 1, UINT64_MAX, UINT64_MAX - 1),
                      UINT64_MAX);
    ck_assert_uint_ge(
        shed_backoff_equal_ms(UINT32_MAX, 3, UINT64_MAX, UINT64_MAX),
        UINT64_MAX / 2);
}

TEST(bounds_of_zero_still_wait_a_millisecond)
{
    ck_assert_uint_eq(shed_backoff_ms(3, 0, 0, UINT64_MAX), 1);
    ck_assert_uint_eq(shed_backoff_equal_ms(3, 0, 0, UINT64_MAX), 1);
}

TEST(a_minimum_above_the_maximum_gives_way)
{
    ck_assert_uint_eq(shed_backoff_ms(0, 80, 20, 19), 20);
    ck_assert_uint_le(shed_backoff_equal_ms(4, 80, 20, 7), 20);
}

int main(void)
{
    return run_tests("backoff");
}
