/* names: each enumerator has one, and any other number has a text. */
#include <snowshed/snowshed.h>

#include "support/testing.h"

TEST(every_kind_has_a_name)
{
    ck_assert_str_eq(shed_kind_name(SHED_KIND_ROW), "row");
    ck_assert_str_eq(shed_kind_name(SHED_KIND_NULL), "null");
    ck_assert_str_eq(shed_kind_name(SHED_KIND_ABSENT), "absent");
    ck_assert_str_eq(shed_kind_name((enum shed_kind)99), "unknown kind");
}

TEST(every_origin_has_a_name)
{
    ck_assert_str_eq(shed_origin_name(SHED_ORIGIN_REDIS), "redis");
    ck_assert_str_eq(shed_origin_name(SHED_ORIGIN_LOAD), "load");
    ck_assert_str_eq(shed_origin_name(SHED_ORIGIN_UNPUBLISHED), "unpublished");
    ck_assert_str_eq(shed_origin_name(SHED_ORIGIN_STALE), "stale");
    ck_assert_str_eq(shed_origin_name(SHED_ORIGIN_WAITED), "waited");
    ck_assert_str_eq(shed_origin_name((enum shed_origin)99), "unknown origin");
}

int main(void)
{
    return run_tests("names");
}
