/* server_clock: the estimate stays within the bounds of all answers. */
#include "redis/server_clock.h"

#include "support/testing.h"

/* What the server's clock is ahead of ours. */
#define AHEAD_MS 1000000

static struct shed_server_clock clock_of_server;

/* The server is asked at a time by our clock, reads its clock and is heard so
 * many ms later. */
static void answer(uint64_t asked_ms, uint64_t read_ms, uint64_t heard_ms)
{
    shed_server_clock_note(&clock_of_server, asked_ms,
                           asked_ms + read_ms + AHEAD_MS, asked_ms + heard_ms);
}

static void check_offset(uint64_t offset_ms)
{
    ck_assert_uint_eq(shed_server_clock_ms(&clock_of_server, 5000),
                      5000 + offset_ms);
}

START_TEST(without_an_answer_it_is_unknown)
{
    ck_assert_uint_eq(shed_server_clock_ms(&clock_of_server, 5000), 0);
}
END_TEST

START_TEST(the_first_estimate_is_not_behind_the_server)
{
    answer(100, 0, 700);
    check_offset(AHEAD_MS);
    clock_of_server = (struct shed_server_clock){0};
    answer(100, 300, 700);
    check_offset(AHEAD_MS + 300);
}
END_TEST

START_TEST(a_quicker_answer_narrows_it)
{
    answer(100, 300, 700);
    answer(3000, 0, 1);
    check_offset(AHEAD_MS);
}
END_TEST

START_TEST(a_late_answer_does_not_move_it)
{
    answer(100, 0, 1);
    answer(3000, 0, 700);
    check_offset(AHEAD_MS);
    answer(6000, 350, 700);
    check_offset(AHEAD_MS);
}
END_TEST

START_TEST(a_server_whose_clock_was_set_is_followed)
{
    answer(100, 0, 1);
    answer(3000, 5000, 0);
    check_offset(AHEAD_MS + 5000);
    answer(6000, 0, 0);
    check_offset(AHEAD_MS);
}
END_TEST

int main(void)
{
    TCase *tc = tcase_create("server clock");

    tcase_add_test(tc, without_an_answer_it_is_unknown);
    tcase_add_test(tc, the_first_estimate_is_not_behind_the_server);
    tcase_add_test(tc, a_quicker_answer_narrows_it);
    tcase_add_test(tc, a_late_answer_does_not_move_it);
    tcase_add_test(tc, a_server_whose_clock_was_set_is_followed);
    return run_tests("server clock", tc);
}
