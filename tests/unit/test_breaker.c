/* breaker: when it opens, what passes, and when it closes. */
#include "base/breaker.h"

#include "support/testing.h"

enum {
    WINDOW_MS = 1000,
    OPEN_MS = 100,
    OPEN_MAX_MS = SHED_BREAKER_OPEN_FACTOR * OPEN_MS,
    PATIENCE_MS = 50
};

static const struct shed_breaker_options rule = {.failure_pct = 50,
                                                 .min_calls = 10,
                                                 .window_ms = WINDOW_MS,
                                                 .open_ms = OPEN_MS};

static struct shed_breaker breaker;
static uint64_t now_ms, random_bits, last_id;

static void begin(void)
{
    now_ms = 1000000;
    random_bits = 0; /* no jitter: open for the whole time */
    shed_breaker_init(&breaker, &rule, PATIENCE_MS, now_ms);
}

static bool end_load(bool has_failed, uint64_t term, uint64_t id)
{
    const struct shed_breaker_sample sample = {
        .term = term, .passes = 1, .id = id, .has_failed = has_failed};

    return shed_breaker_add(&breaker, &sample, now_ms, random_bits);
}

/* Loads that begin and end now, each of a key of its own. */
static bool load(bool has_failed)
{
    if (!shed_breaker_pass(&breaker, now_ms))
        return false;
    return end_load(has_failed, breaker.term, ++last_id);
}

static void load_many(size_t good, size_t bad)
{
    while (good-- > 0)
        (void)load(false);
    while (bad-- > 0)
        (void)load(true);
}

static enum shed_breaker_state state(void)
{
    return shed_breaker_look(&breaker, now_ms);
}

static void open_it(void)
{
    load_many(0, 10);
    ck_assert_int_eq(state(), SHED_BREAKER_OPEN);
}

/* ----------------------------------------------------------------- closed */

TEST(it_opens_at_its_part_of_failures)
{
    load_many(10, 9);
    ck_assert_int_eq(state(), SHED_BREAKER_CLOSED);
    ck_assert(load(true));
    ck_assert_int_eq(state(), SHED_BREAKER_OPEN);
    ck_assert(!shed_breaker_pass(&breaker, now_ms));
}

TEST(few_loads_decide_nothing)
{
    load_many(0, 9);
    ck_assert_int_eq(state(), SHED_BREAKER_CLOSED);
    ck_assert(load(true));
}

TEST(failures_outside_the_window_are_forgotten)
{
    for (int i = 0; i < 100; i++) {
        load_many(0, 4); /* 8 in any window */
        now_ms += WINDOW_MS / 2 + WINDOW_MS / SHED_BREAKER_SLICES;
    }
    ck_assert_int_eq(state(), SHED_BREAKER_CLOSED);
    load_many(0, 9);
    ck_assert_int_eq(state(), SHED_BREAKER_OPEN);
}

TEST(failures_within_the_window_add_up)
{
    for (int i = 0; i < 9; i++) {
        ck_assert(!load(true));
        now_ms += WINDOW_MS / SHED_BREAKER_SLICES;
    }
    ck_assert(load(true));
}

TEST(successes_keep_it_closed)
{
    for (int i = 0; i < 1000; i++) {
        load_many(3, 2);
        now_ms += 10;
    }
    ck_assert_int_eq(state(), SHED_BREAKER_CLOSED);
}

TEST(successes_that_are_counted_together_count_as_singly)
{
    shed_breaker_add_successes(&breaker, breaker.term, 10, now_ms);
    load_many(0, 9);
    ck_assert_int_eq(state(), SHED_BREAKER_CLOSED);
    now_ms += WINDOW_MS; /* both have slid out */
    load_many(0, 9);
    shed_breaker_add_successes(&breaker, breaker.term - 1, 100, now_ms);
    ck_assert(load(true));
    shed_breaker_add_successes(&breaker, breaker.term, 100, now_ms);
    ck_assert_int_eq(state(), SHED_BREAKER_OPEN);
}

TEST(a_slice_ends_where_the_next_one_begins)
{
    enum { WIDTH_MS = WINDOW_MS / SHED_BREAKER_SLICES };

    for (uint64_t ms = now_ms; ms < now_ms + WIDTH_MS; ms++)
        ck_assert_uint_eq(shed_breaker_slice_end_ms(&breaker, ms),
                          now_ms + WIDTH_MS);
    ck_assert_uint_eq(shed_breaker_slice_end_ms(&breaker, now_ms + WIDTH_MS),
                      now_ms + 2 * WIDTH_MS);
}

TEST(one_key_that_always_fails_does_not_open_it)
{
    for (int i = 0; i < 100; i++)
        ck_assert(!end_load(true, breaker.term, 7));
    ck_assert_int_eq(state(), SHED_BREAKER_CLOSED);
    for (int i = 0; i < 9; i++) /* loads of several keys have no id */
        (void)end_load(true, breaker.term, 0);
    ck_assert_int_eq(state(), SHED_BREAKER_OPEN);
}

TEST(without_a_part_of_failures_it_never_opens)
{
    struct shed_breaker_options none = rule;

    none.failure_pct = 0;
    shed_breaker_init(&breaker, &none, PATIENCE_MS, now_ms);
    load_many(0, 1000);
    ck_assert_int_eq(state(), SHED_BREAKER_CLOSED);
}

/* ------------------------------------------------------------------- open */

TEST(nothing_passes_until_its_time_is_over)
{
    open_it();
    now_ms += OPEN_MS - 1;
    ck_assert(!shed_breaker_pass(&breaker, now_ms));
    now_ms++;
    ck_assert(shed_breaker_pass(&breaker, now_ms));
    ck_assert_int_eq(state(), SHED_BREAKER_HALF_OPEN);
}

TEST(it_stays_open_longer_each_time_up_to_its_bound)
{
    open_it();
    for (uint64_t wait_ms = OPEN_MS; wait_ms <= OPEN_MAX_MS * 4; wait_ms *= 2) {
        uint64_t most_ms = wait_ms < OPEN_MAX_MS ? wait_ms : OPEN_MAX_MS;
        ck_assert_uint_eq(breaker.until_ms - now_ms, most_ms);
        now_ms = breaker.until_ms;
        ck_assert(load(true));
        ck_assert_int_eq(state(), SHED_BREAKER_OPEN);
    }
}

TEST(its_time_is_jittered_down_to_half)
{
    uint64_t least = UINT64_MAX, most = 0;

    for (uint64_t i = 0; i < 1000; i++) {
        begin();
        random_bits = i;
        open_it();
        if (breaker.until_ms - now_ms < least)
            least = breaker.until_ms - now_ms;
        if (breaker.until_ms - now_ms > most)
            most = breaker.until_ms - now_ms;
    }
    ck_assert_uint_eq(least, OPEN_MS / 2);
    ck_assert_uint_eq(most, OPEN_MS);
}

TEST(loads_that_began_before_it_opened_say_nothing)
{
    uint64_t term;

    term = breaker.term;
    open_it();
    ck_assert(!end_load(false, term, 0));
    ck_assert(!end_load(true, term, 0));
    now_ms = breaker.until_ms;
    ck_assert_int_eq(state(), SHED_BREAKER_HALF_OPEN);
    for (int i = 0; i < 10; i++)
        ck_assert(!end_load(i % 2 == 0, term, 0));
    ck_assert_int_eq(state(), SHED_BREAKER_HALF_OPEN);
}

/* -------------------------------------------------------------- half-open */

static void half_open_it(void)
{
    begin();
    open_it();
    now_ms = breaker.until_ms;
    ck_assert_int_eq(state(), SHED_BREAKER_HALF_OPEN);
}

TEST(a_few_keys_pass_at_a_time)
{
    half_open_it();
    for (int i = 0; i < SHED_BREAKER_PROBES; i++)
        ck_assert(shed_breaker_pass(&breaker, now_ms));
    ck_assert(!shed_breaker_pass(&breaker, now_ms));
    shed_breaker_return(&breaker, 1); /* never loaded */
    ck_assert(shed_breaker_pass(&breaker, now_ms));
    ck_assert(!shed_breaker_pass(&breaker, now_ms));
    (void)end_load(false, breaker.term, 1);
    ck_assert(shed_breaker_pass(&breaker, now_ms));
}

TEST(successes_close_it)
{
    half_open_it();
    load_many(SHED_BREAKER_PROBES - 1, 0);
    ck_assert_int_eq(state(), SHED_BREAKER_HALF_OPEN);
    ck_assert(load(false));
    ck_assert_int_eq(state(), SHED_BREAKER_CLOSED);
    for (int i = 0; i < 100; i++)
        ck_assert(shed_breaker_pass(&breaker, now_ms));
    load_many(0, 9); /* earlier loads are forgotten */
    ck_assert_int_eq(state(), SHED_BREAKER_CLOSED);
    ck_assert(load(true));
    ck_assert_uint_eq(breaker.until_ms - now_ms, OPEN_MS);
}

TEST(one_failure_opens_it_again)
{
    half_open_it();
    ck_assert(!load(false));
    ck_assert(load(true));
    ck_assert_int_eq(state(), SHED_BREAKER_OPEN);
    now_ms = breaker.until_ms;
    ck_assert(!load(false)); /* the earlier success is forgotten */
    ck_assert_int_eq(state(), SHED_BREAKER_HALF_OPEN);
}

static bool give_up_probe(uint64_t waited_ms)
{
    ck_assert(shed_breaker_pass(&breaker, now_ms));
    return shed_breaker_give_up(&breaker, waited_ms, now_ms, random_bits);
}

TEST(probes_that_are_given_up_open_it_as_late_as_patient_ones)
{
    half_open_it();
    for (uint64_t ms = 1; ms < SHED_BREAKER_PROBES * PATIENCE_MS; ms++) {
        ck_assert(!give_up_probe(1));
        now_ms += 3600000; /* without a caller; it says nothing */
    }
    ck_assert_int_eq(state(), SHED_BREAKER_HALF_OPEN);
    ck_assert(give_up_probe(1));
    ck_assert_int_eq(state(), SHED_BREAKER_OPEN);
    ck_assert_uint_eq(breaker.until_ms - now_ms, 2 * OPEN_MS);
    now_ms = breaker.until_ms; /* earlier waits are forgotten */
    ck_assert(!give_up_probe(SHED_BREAKER_PROBES * PATIENCE_MS - 1));
    ck_assert_int_eq(state(), SHED_BREAKER_HALF_OPEN);
}

TEST(an_answer_to_one_probe_speaks_for_those_that_were_given_up)
{
    half_open_it();
    for (int i = 1; i < SHED_BREAKER_PROBES; i++) {
        ck_assert(!give_up_probe(SHED_BREAKER_PROBES * PATIENCE_MS - 1));
        ck_assert(!load(false));
    }
    ck_assert(!give_up_probe(SHED_BREAKER_PROBES * PATIENCE_MS - 1));
    ck_assert(load(false));
    ck_assert_int_eq(state(), SHED_BREAKER_CLOSED);
}

/* ---------------------------------------------------- given up while closed */

/* One after the other. Returns: whether it opened. */
static bool give_up_many(uint64_t times, uint64_t waited_ms)
{
    bool has_opened = false;

    while (times-- > 0 && !has_opened) {
        now_ms += waited_ms;
        has_opened = give_up_probe(waited_ms);
    }
    return has_opened;
}

TEST(calls_that_are_given_up_fail_when_none_was_answered_for_long)
{
    ck_assert(!give_up_many(PATIENCE_MS - 1, 1));
    ck_assert(!give_up_many(9, 1)); /* these have failed */
    ck_assert(give_up_many(1, 1));
    ck_assert_int_eq(state(), SHED_BREAKER_OPEN);
}

TEST(an_answer_speaks_for_calls_that_are_given_up)
{
    for (int i = 0; i < 100; i++) {
        ck_assert(!load(false));
        ck_assert(!give_up_many(PATIENCE_MS - 1, 1));
        shed_breaker_add_successes(&breaker, breaker.term, 1, now_ms);
        ck_assert(!give_up_many(PATIENCE_MS - 1, 1));
    }
    ck_assert(give_up_many(1000, 1));
}

/* They wait at the same time: for a connection, say. */
TEST(many_calls_that_are_given_up_together_are_one_wait)
{
    now_ms += PATIENCE_MS - 1;
    for (int i = 0; i < 1000; i++)
        ck_assert(!give_up_probe(PATIENCE_MS - 1));
    now_ms += 1;
    for (int i = 0; i < 9; i++)
        ck_assert(!give_up_probe(PATIENCE_MS - 1));
    ck_assert(give_up_probe(PATIENCE_MS - 1));
}

TEST(a_time_without_calls_is_no_wait)
{
    for (int i = 0; i < PATIENCE_MS - 1; i++) {
        ck_assert(!give_up_many(1, 1));
        now_ms += PATIENCE_MS;
    }
    ck_assert(!load(true));
    ck_assert(!give_up_many(8, 1));
    ck_assert(give_up_many(1, 1));
}

TEST(without_a_patience_no_call_is_given_up_too_often)
{
    breaker.patience_ms = 0;
    ck_assert(!give_up_many(100, 3600000));
    half_open_it();
    breaker.patience_ms = 0;
    ck_assert(!give_up_many(100, 3600000));
    ck_assert_int_eq(state(), SHED_BREAKER_HALF_OPEN);
}

int main(void)
{
    tcase_add_checked_fixture(test_case(), begin, NULL);
    return run_tests("breaker");
}
