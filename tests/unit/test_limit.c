/* limit: a fixed number passes per interval; the rest is counted. */
#include "base/limit.h"

#include "support/testing.h"

enum { MOST = 3, SECOND_MS = 1000 };

TEST(so_many_pass_in_a_second_and_no_more)
{
    struct shed_limit limit = {0};

    for (int i = 0; i < MOST; i++)
        ck_assert(shed_limit_pass(&limit, MOST, SECOND_MS, 5000));
    ck_assert(!shed_limit_pass(&limit, MOST, SECOND_MS, 5000));
    ck_assert(!shed_limit_pass(&limit, MOST, SECOND_MS, 5000 + SECOND_MS - 1));
    ck_assert(shed_limit_pass(&limit, MOST, SECOND_MS, 5000 + SECOND_MS));
}

TEST(a_second_begins_with_the_first_that_passes_in_it)
{
    struct shed_limit limit = {0};

    ck_assert(shed_limit_pass(&limit, 1, SECOND_MS, 100));
    ck_assert(shed_limit_pass(&limit, 1, SECOND_MS, 2500));
    ck_assert(!shed_limit_pass(&limit, 1, SECOND_MS, 3499));
    ck_assert(shed_limit_pass(&limit, 1, SECOND_MS, 3500));
}

TEST(what_is_left_out_is_counted_once)
{
    struct shed_limit limit = {0};

    for (int i = 0; i < MOST + 4; i++)
        (void)shed_limit_pass(&limit, MOST, SECOND_MS, 0);
    ck_assert_uint_eq(shed_limit_take(&limit), 4);
    ck_assert_uint_eq(shed_limit_take(&limit), 0);
    ck_assert(!shed_limit_pass(&limit, MOST, SECOND_MS, 1));
    ck_assert_uint_eq(shed_limit_take(&limit), 1);
}

TEST(one_that_passed_and_was_lost_is_counted)
{
    struct shed_limit limit = {0};

    ck_assert(shed_limit_pass(&limit, 1, SECOND_MS, 0));
    limit.suppressed++;
    ck_assert(!shed_limit_pass(&limit, 1, SECOND_MS, 0));
    ck_assert_uint_eq(shed_limit_take(&limit), 2);
}

int main(void)
{
    return run_tests("limit");
}
