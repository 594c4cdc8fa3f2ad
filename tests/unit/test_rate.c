/* rate: groups of things come no faster than so many per second. */
#include "cli/rate.h"

#include "support/testing.h"

enum { PER_S = 100, GROUP = 20, GROUP_US = 200000, BEGIN_US = 5000 };

TEST(a_group_waits_for_the_time_of_the_one_before_it)
{
    struct cli_rate rate = {.per_s = PER_S};

    ck_assert_uint_eq(cli_rate_count(&rate, GROUP, BEGIN_US), 0);
    ck_assert_uint_eq(cli_rate_count(&rate, 1, BEGIN_US), GROUP_US);
    ck_assert_uint_eq(cli_rate_count(&rate, 1, BEGIN_US + GROUP_US),
                      GROUP_US / GROUP);
}

TEST(a_long_pause_is_not_caught_up_with)
{
    struct cli_rate rate = {.per_s = PER_S};
    uint64_t later_us = BEGIN_US + 100 * (uint64_t)GROUP_US;

    (void)cli_rate_count(&rate, GROUP, BEGIN_US);
    ck_assert_uint_eq(cli_rate_count(&rate, GROUP, later_us), 0);
    ck_assert_uint_eq(cli_rate_count(&rate, GROUP, later_us), GROUP_US);
}

TEST(groups_of_any_size_keep_the_rate)
{
    struct cli_rate rate = {.per_s = PER_S};
    uint64_t now_us = BEGIN_US, count = 0;

    for (uint64_t size = 1; size < GROUP; size++) {
        now_us += cli_rate_count(&rate, size, now_us);
        ck_assert_uint_le(count * 1000000 / PER_S, now_us - BEGIN_US);
        count += size;
    }
}

int main(void)
{
    return run_tests("rate");
}
