/* freshness: a ttl is spread below what was asked for, never above. */
#include "cache/freshness.h"

#include "support/testing.h"

START_TEST(without_jitter_a_ttl_is_itself)
{
    ck_assert_uint_eq(shed_freshness_ttl_ms(60000, 0, UINT64_MAX), 60000);
    ck_assert_uint_eq(shed_freshness_ttl_ms(UINT64_MAX, 0, 77), UINT64_MAX);
}
END_TEST

START_TEST(jitter_shortens_by_up_to_its_part)
{
    ck_assert_uint_eq(shed_freshness_ttl_ms(1000, 10, 0), 1000);
    ck_assert_uint_eq(shed_freshness_ttl_ms(1000, 10, 100), 900);
    ck_assert_uint_eq(shed_freshness_ttl_ms(1000, 10, 101), 1000);
    for (uint64_t random = 0; random < 1000; random++) {
        uint64_t ttl = shed_freshness_ttl_ms(1000, 10, random * 7919);

        ck_assert_uint_ge(ttl, 900);
        ck_assert_uint_le(ttl, 1000);
    }
}
END_TEST

START_TEST(the_rest_below_a_hundred_is_jittered_too)
{
    ck_assert_uint_eq(shed_freshness_ttl_ms(250, 50, 125), 125);
    ck_assert_uint_eq(shed_freshness_ttl_ms(99, 90, 89), 10);
}
END_TEST

START_TEST(a_ttl_that_is_not_zero_stays_so)
{
    ck_assert_uint_eq(shed_freshness_ttl_ms(1, 100, 1), 1);
    ck_assert_uint_eq(shed_freshness_ttl_ms(100, 100, 100), 1);
    ck_assert_uint_eq(shed_freshness_ttl_ms(1, 90, 12345), 1);
}
END_TEST

START_TEST(a_ttl_of_zero_stays_zero)
{
    ck_assert_uint_eq(shed_freshness_ttl_ms(0, 0, 5), 0);
    ck_assert_uint_eq(shed_freshness_ttl_ms(0, 90, 5), 0);
}
END_TEST

START_TEST(any_ttl_fits)
{
    const uint64_t half = UINT64_MAX / 2;
    uint64_t ttl = shed_freshness_ttl_ms(UINT64_MAX, 90, UINT64_MAX - 1);

    ck_assert_uint_ge(ttl, UINT64_MAX / 100 * 10);
    ck_assert_uint_eq(shed_freshness_ttl_ms(UINT64_MAX, 50, half),
                      UINT64_MAX - half);
}
END_TEST

int main(void)
{
    TCase *tc = tcase_create("freshness");

    tcase_set_timeout(tc, TEST_TIMEOUT_S);
    tcase_add_test(tc, without_jitter_a_ttl_is_itself);
    tcase_add_test(tc, jitter_shortens_by_up_to_its_part);
    tcase_add_test(tc, the_rest_below_a_hundred_is_jittered_too);
    tcase_add_test(tc, a_ttl_that_is_not_zero_stays_so);
    tcase_add_test(tc, a_ttl_of_zero_stays_zero);
    tcase_add_test(tc, any_ttl_fits);
    return run_tests("freshness", tc);
}
