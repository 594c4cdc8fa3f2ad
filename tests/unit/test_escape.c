/* escape: bytes as one line of printable ASCII. */
#include <snowshed/snowshed.h>

#include <string.h>

#include "support/testing.h"

TEST(bytes_are_printable_and_a_backslash_is_doubled)
{
    char text[64];

    ck_assert_uint_eq(
        shed_escape(shed_bytes("a ~\\\0\n\x7f\xff", 8), text, sizeof(text)),
        strlen("a ~\\\\\\x00\\x0a\\x7f\\xff"));
    ck_assert_str_eq(text, "a ~\\\\\\x00\\x0a\\x7f\\xff");
    ck_assert_uint_eq(shed_escape(shed_str(NULL), text, sizeof(text)), 0);
    ck_assert_str_eq(text, "");
}

TEST(a_text_that_does_not_fit_is_cut_and_terminated)
{
    char text[] = "xxxxxxxx";

    ck_assert_uint_eq(shed_escape(shed_str("a\nb"), NULL, 0), 6);
    ck_assert_uint_eq(shed_escape(shed_str("a\nb"), text, 6), 6);
    ck_assert_str_eq(text, "a\\x0a");
    ck_assert_int_eq(text[6], 'x');
    ck_assert_uint_eq(shed_escape(shed_str("a\nb"), text, 7), 6);
    ck_assert_str_eq(text, "a\\x0ab");
    ck_assert_int_eq(text[7], 'x');
}

int main(void)
{
    return run_tests("escape");
}
