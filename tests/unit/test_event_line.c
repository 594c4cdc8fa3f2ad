/* event_line: what the log says of an event, and what is limited together. */
#include "client/event_line.h"

#include <string.h>

#include "support/testing.h"

static struct shed_event_line out;

static bool write_line(enum shed_event_kind kind, enum shed_code outcome,
                       const char *name, const char *key, const char *reason)
{
    const struct shed_event event = {.kind = kind,
                                     .outcome = outcome,
                                     .name = shed_str(name),
                                     .key = shed_str(key),
                                     .reason = reason};

    return shed_event_line_write(&event, 1, &out);
}

/* Whether two lines are limited together. */
static bool are_together(const struct shed_log_line *a,
                         const struct shed_log_line *b)
{
    return a->kind == b->kind && a->most == b->most;
}

static struct shed_log_line line_of(enum shed_event_kind kind,
                                    enum shed_code outcome, const char *name)
{
    ck_assert(write_line(kind, outcome, name, "", ""));
    return out.line;
}

TEST(a_line_says_what_whose_and_why)
{
    ck_assert(write_line(SHED_EVENT_STALE_SERVED, SHED_EREDIS, "item", "42",
                         "no reply"));
    ck_assert_str_eq(out.text, "stale row served: item, key 42: no reply");
    ck_assert_ptr_eq(out.line.text, out.text);
    ck_assert_int_eq(out.line.level, SHED_LOG_INFO);
    ck_assert(write_line(SHED_EVENT_DISCONNECTED, SHED_EDENIED, "", "", NULL));
    ck_assert_str_eq(out.text, "refused by Redis");
    ck_assert_int_eq(out.line.level, SHED_LOG_ERROR);
}

TEST(what_only_a_program_wants_to_know_has_no_line)
{
    ck_assert(!write_line(SHED_EVENT_INVALIDATED, SHED_OK, "item", "1", ""));
    ck_assert(!write_line(SHED_EVENT_LOAD_FINISHED, SHED_OK, "item", "1", ""));
    ck_assert(!write_line(SHED_EVENT_LOCK_ACQUIRED, SHED_OK, "job", "", ""));
}

TEST(the_longest_names_keys_and_reasons_fit)
{
    static char name[300], key[SHED_KEY_MAX_BYTES + 1],
        reason[SHED_REASON_BYTES];

    memset(name, '\n', sizeof(name) - 1);
    memset(key, 'k', sizeof(key) - 1);
    memset(reason, 'r', sizeof(reason) - 1);
    for (int kind = SHED_EVENT_CONNECTED; kind < SHED_EVENT_KINDS; kind++) {
        const struct shed_event event = {.kind = (enum shed_event_kind)kind,
                                         .outcome = SHED_EREDIS,
                                         .name = shed_str(name),
                                         .key = shed_str(key),
                                         .reason = reason};
        if (!shed_event_line_write(&event, SIZE_MAX, &out))
            continue;
        ck_assert_uint_lt(strlen(out.text), sizeof(out.text));
        ck_assert_ptr_null(strchr(out.text, '\n'));
        ck_assert_ptr_nonnull(strstr(out.text, reason));
        ck_assert_ptr_nonnull(strstr(out.text, "more: "));
    }
}

TEST(kinds_and_failures_are_limited_apart)
{
    struct shed_log_line a, b;

    a = line_of(SHED_EVENT_STALE_SERVED, SHED_EREDIS, "item");
    b = line_of(SHED_EVENT_STALE_SERVED, SHED_ETIMEDOUT, "item");
    ck_assert(are_together(&a, &b));
    b = line_of(SHED_EVENT_STALE_SERVED, SHED_OK, "item");
    ck_assert(!are_together(&a, &b));
    b = line_of(SHED_EVENT_LOAD_FINISHED, SHED_EREDIS, "item");
    ck_assert(!are_together(&a, &b));
}

TEST(a_change_is_limited_with_the_one_that_it_takes_back)
{
    struct shed_log_line a, b;

    a = line_of(SHED_EVENT_CONNECTED, SHED_OK, "");
    b = line_of(SHED_EVENT_DISCONNECTED, SHED_EREDIS, "");
    ck_assert(are_together(&a, &b) && a.most > 1);
    a = line_of(SHED_EVENT_BREAKER, SHED_OK, "item");
    b = line_of(SHED_EVENT_BREAKER, SHED_ESOURCE, "item");
    ck_assert(are_together(&a, &b) && a.most > 1);
}

TEST(locks_are_limited_together)
{
    struct shed_log_line a, b;

    a = line_of(SHED_EVENT_LOCK_LOST, SHED_ELOST, "one");
    b = line_of(SHED_EVENT_LOCK_LOST, SHED_ELOST, "two");
    ck_assert(are_together(&a, &b) && a.most > 1);
    b = line_of(SHED_EVENT_LOCK_TAKEN_OVER, SHED_OK, "one");
    ck_assert(!are_together(&a, &b));
}

int main(void)
{
    return run_tests("event_line");
}
