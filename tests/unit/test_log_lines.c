/* log_lines: which lines are told, when, with which numbers; and that none is
 * forgotten. */
#include "client/log_lines.h"

#include <stdlib.h>
#include <string.h>

#include "support/testing.h"

enum {
    KIND = 7,
    OTHER_KIND = 8,
    INTERVAL_MS = SHED_LOG_INTERVAL_MS,
    MS_PER_S = 1000
};

static struct shed_log_lines lines;
static uint64_t now_ms;
static struct shed_log_told told;

static struct shed_log_line line_of(unsigned kind, const char *text)
{
    return (struct shed_log_line){
        .kind = kind, .most = 1, .level = SHED_LOG_WARNING, .text = text};
}

static bool offer(const char *text)
{
    struct shed_log_line line = line_of(KIND, text);

    return shed_log_lines_pass(&lines, &line, now_ms);
}

/* One that is news, of a level. */
static bool offer_news(enum shed_log_level level, const char *text)
{
    struct shed_log_line line = line_of(OTHER_KIND, text);

    line.most = 3;
    line.level = level;
    return shed_log_lines_pass(&lines, &line, now_ms);
}

/* Expect that this is told next, and then nothing. */
static void expect_told(enum shed_log_level level, const char *text)
{
    ck_assert(shed_log_lines_take(&lines, now_ms, false, &told));
    ck_assert_str_eq(told.text, text);
    ck_assert_int_eq(told.level, level);
    ck_assert(!shed_log_lines_take(&lines, now_ms, false, &told));
}

static void expect_nothing(void)
{
    ck_assert(!shed_log_lines_take(&lines, now_ms, false, &told));
}

static void begin(void)
{
    memset(&lines, 0, sizeof(lines));
    now_ms = 1000000;
}

TEST(the_first_is_told_at_once_and_then_a_number_each_interval)
{
    ck_assert(offer("stale: item, key 1"));
    ck_assert(!shed_log_lines_are_waiting(&lines));
    for (int i = 0; i < 5; i++)
        ck_assert(!offer("stale: item, key 2"));
    now_ms += INTERVAL_MS - 1;
    ck_assert(!offer("stale: item, key 3"));
    expect_nothing();
    ck_assert(shed_log_lines_are_waiting(&lines));
    now_ms++;
    expect_told(
        SHED_LOG_WARNING,
        "stale: item, key 3 (and 5 more of this kind in the last 10 s)");
    ck_assert(!offer("stale: item, key 4"));
    ck_assert(!offer("stale: item, key 5"));
    now_ms += INTERVAL_MS + 400;
    expect_told(
        SHED_LOG_WARNING,
        "stale: item, key 5 (and 1 more of this kind in the last 11 s)");
}

TEST(a_number_comes_before_the_lines_after_its_interval)
{
    ck_assert(offer("a"));
    ck_assert(!offer("b"));
    now_ms += 2 * INTERVAL_MS;
    ck_assert(!offer("c"));
    expect_told(SHED_LOG_WARNING,
                "c (and 1 more of this kind in the last 20 s)");
}

TEST(a_line_that_was_held_back_alone_has_no_number)
{
    ck_assert(offer("a"));
    ck_assert(!offer("b"));
    now_ms += INTERVAL_MS;
    expect_told(SHED_LOG_WARNING, "b");
    ck_assert(!shed_log_lines_are_waiting(&lines));
    now_ms += INTERVAL_MS;
    expect_nothing();
    ck_assert(offer("c"));
}

/* The longest text and numbers still fit. */
TEST(no_number_is_too_long_for_its_line)
{
    char text[SHED_LOG_LINE_BYTES];

    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    now_ms = 0;
    ck_assert(offer(text));
    ck_assert(!offer(text));
    lines.kinds[KIND].limit.suppressed = UINT64_MAX;
    now_ms = UINT64_MAX - MS_PER_S;
    ck_assert(shed_log_lines_take(&lines, now_ms, false, &told));
    ck_assert_str_eq(strrchr(told.text, ' '), " s)");
}

TEST(kinds_are_limited_apart)
{
    struct shed_log_line other = line_of(OTHER_KIND, "b");

    ck_assert(offer("a"));
    ck_assert(shed_log_lines_pass(&lines, &other, now_ms));
    ck_assert(!offer("a"));
    ck_assert(!shed_log_lines_pass(&lines, &other, now_ms));
}

TEST(what_is_held_back_is_kept_until_it_is_told)
{
    struct shed_log_line other = line_of(OTHER_KIND, "b");

    ck_assert(offer("a"));
    ck_assert(!offer("a"));
    now_ms += INTERVAL_MS;
    ck_assert(shed_log_lines_pass(&lines, &other, now_ms));
    expect_told(SHED_LOG_WARNING, "a");
}

TEST(of_news_a_few_pass_and_the_last_is_told_at_the_highest_level)
{
    ck_assert(offer_news(SHED_LOG_WARNING, "gone"));
    ck_assert(offer_news(SHED_LOG_INFO, "back"));
    ck_assert(offer_news(SHED_LOG_WARNING, "gone"));
    ck_assert(!offer_news(SHED_LOG_INFO, "back"));
    ck_assert(!offer_news(SHED_LOG_ERROR, "refused"));
    ck_assert(!offer_news(SHED_LOG_INFO, "back"));
    now_ms += INTERVAL_MS;
    expect_told(SHED_LOG_ERROR,
                "back (and 2 more of this kind in the last 10 s)");
    ck_assert(!shed_log_lines_are_waiting(&lines));
    ck_assert(offer_news(SHED_LOG_WARNING, "gone"));
}

TEST(lines_of_which_only_a_number_is_known_are_counted)
{
    struct shed_log_line line = line_of(KIND, "a");

    ck_assert(shed_log_lines_pass(&lines, &line, now_ms));
    shed_log_lines_suppress(&lines, &line, 1);
    ck_assert(shed_log_lines_are_waiting(&lines));
    now_ms += INTERVAL_MS;
    expect_told(SHED_LOG_WARNING, "a");
    ck_assert(!offer("b"));
    line.text = "one of a number";
    shed_log_lines_suppress(&lines, &line, 3);
    now_ms += INTERVAL_MS;
    expect_told(SHED_LOG_WARNING,
                "b (and 3 more of this kind in the last 10 s)");
}

TEST(at_the_end_every_number_is_told_at_once)
{
    for (int i = 0; i < 3; i++)
        (void)offer("a");
    ck_assert(shed_log_lines_take(&lines, now_ms, true, &told));
    ck_assert_str_eq(told.text, "a (and 1 more of this kind in the last 1 s)");
    ck_assert(!shed_log_lines_take(&lines, now_ms, true, &told));
}

/* For how many lines one speaks. */
static uint64_t counted(const char *text)
{
    const char *more = strstr(text, " (and ");

    return 1 + (more != NULL ? strtoull(more + 6, NULL, 10) : 0);
}

/* Two hours of lines at random times, of two kinds of which one is news. */
TEST_EACH(lines_and_numbers_add_up_and_are_few, 0, 20)
{
    uint64_t offered = 0, sum = 0, count = 0;
    unsigned random = (unsigned)_i + 1;

    for (int s = 0; s < 7200; s++) {
        random = random * 1103515245 + 12345;
        for (unsigned n = (random >> 16) % (s % 600 < 300 ? 50 : 1); n > 0;
             n--) {
            bool has_passed =
                n % 2 == 0 ? offer("x, y") : offer_news(SHED_LOG_INFO, "z");
            offered++;
            sum += has_passed;
            count += has_passed;
            now_ms += 7;
        }
        now_ms += 1000;
        while (shed_log_lines_take(&lines, now_ms, s == 7199, &told)) {
            sum += counted(told.text);
            count++;
        }
    }
    ck_assert(!shed_log_lines_take(&lines, now_ms, true, &told));
    ck_assert_uint_eq(sum, offered);
    ck_assert_uint_gt(offered, 50000);
    ck_assert_uint_le(count, (1 + 3) * (7200 * 1350 / INTERVAL_MS + 1));
}

int main(void)
{
    tcase_add_checked_fixture(test_case(), begin, NULL);
    return run_tests("log_lines");
}
