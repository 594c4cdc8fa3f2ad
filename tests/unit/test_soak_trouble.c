/* What of the soak a fault explains, on a made-up clock. */
#include "soak/trouble.h"
#include "support/testing.h"

enum { AFTER_MS = 50 };

TEST(a_trouble_explains_what_overlaps_it_and_what_follows)
{
    struct soak_troubles t = {.after_ms = AFTER_MS};
    unsigned number;

    ck_assert_uint_eq(soak_trouble_ms(&t, 0, 5000), 0);
    number = soak_trouble_begin(&t, 1000);
    ck_assert_uint_eq(soak_trouble_ms(&t, 500, 999), 0);
    ck_assert_uint_eq(soak_trouble_ms(&t, 500, 1010), 10 + AFTER_MS);
    ck_assert_uint_eq(soak_trouble_ms(&t, 8000, 9000), 8000 + AFTER_MS);
    soak_trouble_end(&t, number, 1200);
    ck_assert_uint_eq(soak_trouble_ms(&t, 1250, 1300), 200 + AFTER_MS);
    ck_assert_uint_eq(soak_trouble_ms(&t, 1251, 1300), 0);
}

TEST(troubles_add_up)
{
    struct soak_troubles t = {.after_ms = AFTER_MS};
    unsigned first = soak_trouble_begin(&t, 1000);
    unsigned second = soak_trouble_begin(&t, 3000);

    soak_trouble_end(&t, first, 1100);
    soak_trouble_end(&t, second, 3200);
    ck_assert_uint_eq(soak_trouble_ms(&t, 900, 1050), 100 + AFTER_MS);
    ck_assert_uint_eq(soak_trouble_ms(&t, 2000, 2999), 0);
    ck_assert_uint_eq(soak_trouble_ms(&t, 1000, 3000), 300 + 2 * AFTER_MS);
}

int main(void)
{
    return run_tests("soak_trouble");
}
