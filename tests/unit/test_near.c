/* near: what somebody may have meant. */
#include "cli/text.h"

#include "support/testing.h"

static const char *nearest(const char *word)
{
    static const char *const names[] = {"item", "items", "user", "session:v2",
                                        "a"};
    struct cli_near near = {.word = word};

    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        cli_near_offer(&near, names[i]);
    return near.best != NULL ? near.best : "";
}

TEST(a_slip_is_recognised)
{
    ck_assert_str_eq(nearest("itme"), "item");
    ck_assert_str_eq(nearest("ietms"), "items");
    ck_assert_str_eq(nearest("usr"), "user");
    ck_assert_str_eq(nearest("userx"), "user");
    ck_assert_str_eq(nearest("uzer"), "user");
    ck_assert_str_eq(nearest("sesion:v2"), "session:v2");
    ck_assert_str_eq(nearest("b"), "a");
}

TEST(the_nearest_is_meant)
{
    ck_assert_str_eq(nearest("items"), "items");
    ck_assert_str_eq(nearest("item"), "item");
    ck_assert_str_eq(nearest("iems"), "items");
}

TEST(nothing_is_near_enough)
{
    char longest[200];

    memset(longest, 'a', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = '\0';
    ck_assert_str_eq(nearest("order"), "");
    ck_assert_str_eq(nearest("uuss"), "");
    ck_assert_str_eq(nearest(longest), "");
}

int main(void)
{
    return run_tests("near");
}
