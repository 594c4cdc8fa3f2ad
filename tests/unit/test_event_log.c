/* event_log: what the log says of an event, and when; which lines are limited
 * together; and that none is forgotten. */
#include "client/event_log.h"

#include <stdlib.h>
#include <string.h>

#include "support/testing.h"

enum { INTERVAL_MS = SHED_LOG_INTERVAL_MS, NEWS_MOST = 10 };

static struct shed_event_log events;
static uint64_t now_ms;
static struct shed_log_line line;

static bool add(enum shed_event_kind kind, enum shed_code outcome,
                const char *name, const char *key, const char *reason)
{
    const struct shed_event event = {.kind = kind,
                                     .outcome = outcome,
                                     .name = shed_str(name),
                                     .key = shed_str(key),
                                     .reason = reason};

    return shed_event_log_add(&events, &event, 1, now_ms, &line);
}

/* One whose kind has a line per interval: "load failed: KEY". */
static bool offer(const char *key)
{
    return add(SHED_EVENT_LOAD_FINISHED, SHED_ESOURCE, key, "", NULL);
}

/* One that is news. */
static bool offer_news(enum shed_code outcome)
{
    return add(outcome == SHED_OK ? SHED_EVENT_CONNECTED
                                  : SHED_EVENT_DISCONNECTED,
               outcome, "", "", NULL);
}

static bool take(bool is_last)
{
    return shed_event_log_take(&events, now_ms, is_last, &line);
}

/* Expect that this is told next, and then nothing. */
static void expect_told(enum shed_log_level level, const char *text)
{
    ck_assert(take(false));
    ck_assert_str_eq(line.text, text);
    ck_assert_int_eq(line.level, level);
    ck_assert(!take(false));
}

static void begin(void)
{
    memset(&events, 0, sizeof(events));
    now_ms = 1000000;
}

/* ------------------------------------------------------------- the words */

TEST(a_line_says_what_whose_and_why)
{
    ck_assert(
        add(SHED_EVENT_STALE_SERVED, SHED_EREDIS, "item", "42", "no reply"));
    ck_assert_str_eq(line.text, "stale row served: item, key 42: no reply");
    ck_assert_int_eq(line.level, SHED_LOG_INFO);
    ck_assert(offer_news(SHED_EDENIED));
    ck_assert_str_eq(line.text, "refused by Redis");
    ck_assert_int_eq(line.level, SHED_LOG_ERROR);
}

TEST(what_only_a_program_wants_to_know_has_no_line)
{
    static const struct shed_event silent[] = {
        {.kind = SHED_EVENT_INVALIDATED},
        {.kind = SHED_EVENT_LOAD_FINISHED},
        {.kind = SHED_EVENT_LOCK_ACQUIRED}};

    for (size_t i = 0; i < COUNT_OF(silent); i++)
        ck_assert(!shed_event_has_line(&silent[i]));
}

/* Also where one was held back, with the largest numbers. */
TEST_EACH(the_longest_names_keys_and_reasons_fit, SHED_EVENT_CONNECTED,
          SHED_EVENT_KINDS)
{
    static char name[300], key[SHED_KEY_MAX_BYTES + 1],
        reason[SHED_REASON_BYTES];
    struct shed_event event = {.kind = (enum shed_event_kind)_i,
                               .outcome = SHED_EREDIS,
                               .reason = reason};

    memset(name, '\n', sizeof(name) - 1);
    memset(key, 'k', sizeof(key) - 1);
    memset(reason, 'r', sizeof(reason) - 1);
    event.name = shed_str(name);
    event.key = shed_str(key);
    if (!shed_event_has_line(&event))
        return;
    now_ms = 0;
    for (int i = 0; i <= NEWS_MOST; i++)
        (void)shed_event_log_add(&events, &event, SIZE_MAX, now_ms, &line);
    for (size_t i = 0; i < COUNT_OF(events.kinds); i++)
        if (events.kinds[i].limit.suppressed > 0)
            events.kinds[i].limit.suppressed = UINT64_MAX;
    ck_assert_uint_lt(strlen(line.text), SHED_LOG_LINE_BYTES);
    now_ms = UINT64_MAX - 1000;
    ck_assert(take(false));
    ck_assert_ptr_null(strchr(line.text, '\n'));
    ck_assert_ptr_nonnull(strstr(line.text, reason));
    ck_assert_ptr_nonnull(strstr(line.text, "more: "));
    ck_assert_str_eq(strrchr(line.text, ' '), " s)");
}

/* ----------------------------------------------------------- limited together
 */

/* Whether the second of two events is still told after as many of the first as
 * are news. */
static const struct {
    enum shed_event_kind first, second;
    enum shed_code of_first, of_second;
    bool is_told;
} pairs[] = {
    {SHED_EVENT_STALE_SERVED, SHED_EVENT_STALE_SERVED, SHED_EREDIS,
     SHED_ETIMEDOUT, false},
    {SHED_EVENT_STALE_SERVED, SHED_EVENT_STALE_SERVED, SHED_EREDIS, SHED_OK,
     true},
    {SHED_EVENT_STALE_SERVED, SHED_EVENT_LOAD_FINISHED, SHED_EREDIS,
     SHED_EREDIS, true},
    {SHED_EVENT_CONNECTED, SHED_EVENT_DISCONNECTED, SHED_OK, SHED_EREDIS,
     false},
    {SHED_EVENT_BREAKER, SHED_EVENT_BREAKER, SHED_OK, SHED_ESOURCE, false},
    {SHED_EVENT_LOCK_LOST, SHED_EVENT_LOCK_LOST, SHED_ELOST, SHED_ELOST, false},
    {SHED_EVENT_LOCK_LOST, SHED_EVENT_LOCK_TAKEN_OVER, SHED_ELOST, SHED_OK,
     true},
};

TEST_EACH(kinds_and_failures_are_limited_apart_and_changes_together, 0,
          COUNT_OF(pairs))
{
    bool is_news = pairs[_i].first != SHED_EVENT_STALE_SERVED;

    for (int i = 0; i < NEWS_MOST; i++)
        ck_assert_int_eq(
            add(pairs[_i].first, pairs[_i].of_first, "one", "", ""),
            i == 0 || is_news);
    ck_assert_int_eq(add(pairs[_i].second, pairs[_i].of_second, "two", "", ""),
                     pairs[_i].is_told);
}

/* ---------------------------------------------------------------- how often */

TEST(the_first_is_told_at_once_and_then_a_number_each_interval)
{
    ck_assert(offer("1"));
    ck_assert(!shed_event_log_is_waiting(&events));
    for (int i = 0; i < 5; i++)
        ck_assert(!offer("2"));
    now_ms += INTERVAL_MS - 1;
    ck_assert(!offer("3"));
    ck_assert(!take(false));
    ck_assert(shed_event_log_is_waiting(&events));
    now_ms++;
    expect_told(SHED_LOG_WARNING,
                "load failed: 3 (and 5 more of this kind in the last 10 s)");
    ck_assert(!offer("4"));
    ck_assert(!offer("5"));
    now_ms += INTERVAL_MS + 400;
    expect_told(SHED_LOG_WARNING,
                "load failed: 5 (and 1 more of this kind in the last 11 s)");
}

/* Other kinds do not hasten it. */
TEST(a_number_comes_before_the_lines_after_its_interval)
{
    ck_assert(offer("a"));
    ck_assert(!offer("b"));
    now_ms += 2 * INTERVAL_MS;
    ck_assert(offer_news(SHED_OK));
    ck_assert(!offer("c"));
    expect_told(SHED_LOG_WARNING,
                "load failed: c (and 1 more of this kind in the last 20 s)");
}

TEST(a_line_that_was_held_back_alone_has_no_number)
{
    ck_assert(offer("a"));
    ck_assert(!offer("b"));
    now_ms += INTERVAL_MS;
    expect_told(SHED_LOG_WARNING, "load failed: b");
    ck_assert(!shed_event_log_is_waiting(&events));
    now_ms += INTERVAL_MS;
    ck_assert(!take(false));
    ck_assert(offer("c"));
}

TEST(of_news_a_few_pass_and_the_last_is_told_at_the_highest_level)
{
    for (int i = 0; i < NEWS_MOST; i++)
        ck_assert(offer_news(i % 2 == 0 ? SHED_EREDIS : SHED_OK));
    ck_assert(!offer_news(SHED_OK));
    ck_assert(!offer_news(SHED_EDENIED));
    ck_assert(!offer_news(SHED_OK));
    now_ms += INTERVAL_MS;
    expect_told(
        SHED_LOG_ERROR,
        "connected to Redis (and 2 more of this kind in the last 10 s)");
    ck_assert(!shed_event_log_is_waiting(&events));
    ck_assert(offer_news(SHED_EREDIS));
}

TEST(of_very_many_only_the_first_is_told)
{
    const struct shed_event event = {.kind = SHED_EVENT_LOAD_FINISHED,
                                     .outcome = SHED_ESOURCE};

    ck_assert(!shed_event_log_add(&events, &event, 1, now_ms, NULL));
    ck_assert(shed_event_log_is_waiting(&events));
    expect_told(SHED_LOG_WARNING, "load failed");
    ck_assert(!offer("b"));
    for (int i = 0; i < 3; i++)
        (void)shed_event_log_add(&events, &event, 1, now_ms, NULL);
    now_ms += INTERVAL_MS;
    expect_told(SHED_LOG_WARNING,
                "load failed: b (and 3 more of this kind in the last 10 s)");
}

TEST(at_the_end_every_number_is_told_at_once)
{
    for (int i = 0; i < 3; i++)
        (void)offer("a");
    ck_assert(take(true));
    ck_assert_str_eq(line.text,
                     "load failed: a (and 1 more of this kind in the last 1 "
                     "s)");
    ck_assert(!take(true));
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
            bool has_passed = n % 2 == 0 ? offer("x, y") : offer_news(SHED_OK);
            offered++;
            sum += has_passed;
            count += has_passed;
            now_ms += 7;
        }
        now_ms += 1000;
        for (; take(s == 7199); count++)
            sum += counted(line.text);
    }
    ck_assert(!take(true));
    ck_assert_uint_eq(sum, offered);
    ck_assert_uint_gt(offered, 50000);
    ck_assert_uint_le(count, (1 + NEWS_MOST) * (7200 * 1350 / INTERVAL_MS + 1));
}

int main(void)
{
    tcase_add_checked_fixture(test_case(), begin, NULL);
    return run_tests("event_log");
}
