/* server_clock: the estimate stays within the bounds of all answers. */
#include "wire/server_clock.h"

#include "support/testing.h"

/* What the server's clock is ahead of ours. */
#define AHEAD_MS 1000000
/* The answer, and our clock when it is used, were rounded down. */
#define ROUNDING_MS 1

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
                      5000 + offset_ms + ROUNDING_MS);
}

TEST(without_an_answer_it_is_unknown)
{
    ck_assert_uint_eq(shed_server_clock_ms(&clock_of_server, 5000), 0);
}

TEST(the_first_estimate_is_not_behind_the_server)
{
    answer(100, 0, 700);
    check_offset(AHEAD_MS);
    clock_of_server = (struct shed_server_clock){0};
    answer(100, 300, 700);
    check_offset(AHEAD_MS + 300);
}

TEST(a_quicker_answer_narrows_it)
{
    answer(100, 300, 700);
    answer(3000, 0, 1);
    check_offset(AHEAD_MS);
}

TEST(a_late_answer_moves_it_by_a_millisecond)
{
    answer(100, 0, 1);
    answer(3000, 0, 700);
    check_offset(AHEAD_MS);
    answer(6000, 350, 700);
    check_offset(AHEAD_MS + 1);
    answer(9000, 0, 1);
    check_offset(AHEAD_MS);
}

TEST(a_server_whose_clock_was_set_is_followed)
{
    answer(100, 0, 1);
    answer(3000, 5000, 0);
    check_offset(AHEAD_MS + 5000);
    answer(6000, 0, 0);
    check_offset(AHEAD_MS);
}

/* All clocks in microseconds; ours begins a part of a millisecond after the
 * server's. Answers are under way for up to 3 ms. */
static void follow(uint64_t phase_us)
{
    const uint64_t under_way_us = 3000, steps = 20000;

    clock_of_server = (struct shed_server_clock){0};
    for (uint64_t i = 1; i < steps; i++) {
        uint64_t asked_us = i * 1217,
                 read_us = asked_us + i * 37 % under_way_us;
        uint64_t used_us = asked_us + under_way_us + i * 11 % 1000, estimate_ms;
        uint64_t true_ms = (used_us + AHEAD_MS * 1000 + phase_us) / 1000;
        shed_server_clock_note(&clock_of_server, asked_us / 1000,
                               (read_us + AHEAD_MS * 1000 + phase_us) / 1000,
                               (asked_us + under_way_us) / 1000);
        estimate_ms = shed_server_clock_ms(&clock_of_server, used_us / 1000);
        ck_assert_uint_ge(estimate_ms, true_ms);
        ck_assert_uint_le(estimate_ms, true_ms + under_way_us / 1000 + 2);
    }
}

TEST(it_is_never_behind_and_ahead_by_an_answers_way_at_most)
{
    for (uint64_t phase_us = 0; phase_us < 1000; phase_us += 50)
        follow(phase_us);
}

/* The lower bound, by which a put is too late. */
TEST(what_the_clock_is_at_least_is_never_ahead_of_the_server)
{
    struct shed_server_clock known = {0};
    const uint64_t ahead_ms = 5000;

    ck_assert_uint_eq(shed_server_clock_lowest_ms(&known, 100), 0);
    for (uint64_t way_ms = 50; way_ms > 0; way_ms--) {
        uint64_t asked_ms = 1000 * (51 - way_ms), read_ms = asked_ms + way_ms;
        uint64_t lowest_ms;
        shed_server_clock_note(&known, asked_ms, asked_ms + ahead_ms, read_ms);
        lowest_ms = shed_server_clock_lowest_ms(&known, read_ms);
        ck_assert_uint_lt(lowest_ms, read_ms + ahead_ms);
        ck_assert_uint_ge(lowest_ms + way_ms + 1, read_ms + ahead_ms);
    }
}

TEST(what_it_is_at_least_follows_a_clock_that_was_set_back)
{
    struct shed_server_clock known = {0};

    shed_server_clock_note(&known, 1000, 9000, 1002);
    ck_assert_uint_gt(shed_server_clock_lowest_ms(&known, 1002), 8990);
    shed_server_clock_note(&known, 2000, 3000, 2002);
    ck_assert_uint_le(shed_server_clock_lowest_ms(&known, 2002), 3002);
}

int main(void)
{
    return run_tests("server clock");
}
