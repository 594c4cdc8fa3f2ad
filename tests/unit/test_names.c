/* names: each enumerator has one, and any other number has a text. */
#include <snowshed/snowshed.h>

#include "support/testing.h"

START_TEST(every_kind_has_a_name)
{
    ck_assert_str_eq(shed_kind_name(SHED_KIND_ROW), "row");
    ck_assert_str_eq(shed_kind_name(SHED_KIND_NULL), "null");
    ck_assert_str_eq(shed_kind_name(SHED_KIND_ABSENT), "absent");
    ck_assert_str_eq(shed_kind_name((enum shed_kind)99), "unknown kind");
}
END_TEST

START_TEST(every_origin_has_a_name)
{
    ck_assert_str_eq(shed_origin_name(SHED_ORIGIN_REDIS), "redis");
    ck_assert_str_eq(shed_origin_name(SHED_ORIGIN_LOAD), "load");
    ck_assert_str_eq(shed_origin_name(SHED_ORIGIN_UNPUBLISHED), "unpublished");
    ck_assert_str_eq(shed_origin_name(SHED_ORIGIN_STALE), "stale");
    ck_assert_str_eq(shed_origin_name(SHED_ORIGIN_WAITED), "waited");
    ck_assert_str_eq(shed_origin_name((enum shed_origin)99), "unknown origin");
}
END_TEST

int main(void)
{
    TCase *tc = tcase_create("names");

    tcase_add_test(tc, every_kind_has_a_name);
    tcase_add_test(tc, every_origin_has_a_name);
    return run_tests("names", tc);
}
