/* gate: what the breaker before Redis learns from calls, and when it learns
 * it. */
#include "redis/gate.h"

#include <stdio.h>
#include <string.h>

#include "wire/address.h"
#include "support/bare.h"
#include "support/reply_testing.h"
#include "support/testing.h"

enum {
    WINDOW_MS = 10000,
    MIN_CALLS = 10,
    OPEN_MS = 1000,
    SLOW_MS = 100,
    COMMAND_MS = 500
};

static struct shed_client_options options;
static struct shed_address *address;
static struct shed_gate *gate;
static uint64_t now_ms = 1000000;
static unsigned opened, closed;
static uint64_t after_ms;
static char reason[SHED_REASON_BYTES];

uint64_t __wrap_shed_now_ms(void);

uint64_t __wrap_shed_now_ms(void)
{
    return now_ms;
}

static void on_change(void *arg, bool is_open, uint64_t after, const char *why)
{
    ck_assert_ptr_eq(arg, &opened);
    opened += is_open;
    closed += !is_open;
    after_ms = after;
    snprintf(reason, sizeof(reason), "%s", why);
}

static void open_gate(void)
{
    ck_assert_int_eq(shed_address_create("unix:/R", &address, NULL), SHED_OK);
    ck_assert_int_eq(
        shed_gate_create(address, &options, on_change, &opened, &gate, NULL),
        SHED_OK);
}

static void up(void)
{
    options = bare_client();
    options.command_timeout_ms = COMMAND_MS;
    options.breaker.failure_pct = 50;
    options.breaker.min_calls = MIN_CALLS;
    options.breaker.window_ms = WINDOW_MS;
    options.breaker.open_ms = OPEN_MS;
    open_gate();
}

static void down(void)
{
    shed_gate_destroy(gate);
    shed_address_unref(address);
}

/* With other options. */
static void open_again(void)
{
    down();
    open_gate();
}

static struct shed_gate_status status(void)
{
    struct shed_gate_status s;

    shed_gate_read(gate, &s);
    return s;
}

static struct shed_health_pass enter(void)
{
    struct shed_health_pass pass;

    ck_assert(shed_gate_enter(gate, &pass, NULL));
    return pass;
}

static bool is_refused(void)
{
    struct shed_error err;
    struct shed_health_pass pass;

    if (shed_gate_enter(gate, &pass, &err)) {
        const struct shed_error nothing = {SHED_EBUSY, ""};
        const struct shed_health_end end = {.why = &nothing};
        shed_gate_leave(gate, &pass, &end);
        return false;
    }
    ck_assert_int_eq(err.code, SHED_EREDIS);
    ck_assert_ptr_nonnull(strstr(err.reason, "the breaker before Redis /R is"));
    return true;
}

/* Leave after took_ms; SHED_OK: with an answer. */
static void leave(struct shed_health_pass pass, enum shed_code code,
                  bool was_tried, uint64_t took_ms)
{
    const struct shed_error why = {code, "it failed"};
    const struct shed_health_end end = {.was_tried = was_tried,
                                        .began_ms = now_ms - took_ms,
                                        .ended_ms = now_ms,
                                        .why = code == SHED_OK ? NULL : &why};

    shed_gate_leave(gate, &pass, &end);
}

static void succeed_calls(size_t times)
{
    while (times-- > 0)
        leave(enter(), SHED_OK, false, 0);
}

static void fail_calls(size_t times)
{
    while (times-- > 0)
        leave(enter(), SHED_EREDIS, true, 0);
}

static void open_it(void)
{
    fail_calls(MIN_CALLS);
    ck_assert_int_eq(status().breaker.state, SHED_BREAKER_OPEN);
    ck_assert_uint_gt(status().breaker.left_ms, 0);
    ck_assert_uint_le(status().breaker.left_ms, OPEN_MS);
}

static void half_open_it(void)
{
    open_it();
    now_ms += OPEN_MS;
    ck_assert_int_eq(status().breaker.state, SHED_BREAKER_HALF_OPEN);
    ck_assert_uint_eq(status().breaker.left_ms, 0);
}

TEST(without_its_option_it_never_opens)
{
    options.breaker.failure_pct = 0;
    open_again();
    fail_calls(2 * MIN_CALLS);
    for (int i = 0; i < 2 * MIN_CALLS; i++)
        leave(enter(), SHED_ETIMEDOUT, false, 10 * COMMAND_MS);
    ck_assert_int_eq(status().breaker.state, SHED_BREAKER_CLOSED);
}

/* ------------------------------------------------------------- the window */

TEST(it_opens_at_its_part_of_failures_and_says_so)
{
    now_ms += 77;
    succeed_calls(10);
    fail_calls(9);
    ck_assert_uint_eq(opened, 0);
    fail_calls(1);
    ck_assert_uint_eq(opened, 1);
    ck_assert_uint_eq(after_ms, 77);
    ck_assert_ptr_nonnull(strstr(reason, "tries again in "));
    ck_assert_ptr_nonnull(strstr(reason, "the last failure: it failed"));
    ck_assert(is_refused());
    ck_assert(is_refused());
    ck_assert_uint_eq(status().breaker.openings, 1);
    ck_assert_uint_eq(status().refused, 2);
}

/* They are passed on late, by the next failure. */
TEST(successes_count_when_they_happened)
{
    succeed_calls(1000);
    now_ms += WINDOW_MS * 2;
    fail_calls(MIN_CALLS);
    ck_assert_uint_eq(opened, 1);
}

TEST(successes_of_any_slice_of_the_window_count)
{
    for (int i = 0; i < SHED_BREAKER_SLICES; i++) {
        succeed_calls(10);
        now_ms += WINDOW_MS / SHED_BREAKER_SLICES;
    }
    /* the first slice is out of the window now */
    fail_calls(89);
    ck_assert_uint_eq(opened, 0);
    fail_calls(1);
    ck_assert_uint_eq(opened, 1);
}

TEST(what_began_before_it_opened_says_nothing)
{
    struct shed_health_pass before;

    before = enter();
    half_open_it();
    leave(before, SHED_EREDIS, true, 0);
    leave(before, SHED_OK, true, 0);
    leave(before, SHED_ETIMEDOUT, false, 0);
    ck_assert_int_eq(status().breaker.state, SHED_BREAKER_HALF_OPEN);
    succeed_calls(SHED_BREAKER_PROBES);
    ck_assert_int_eq(status().breaker.state, SHED_BREAKER_CLOSED);
    leave(before, SHED_OK, true, 0);
    fail_calls(MIN_CALLS - 1);
    ck_assert_uint_eq(opened, 1);
    fail_calls(1);
    ck_assert_uint_eq(opened, 2);
}

/* ------------------------------------------------------- what calls tell */

enum verdict { SUCCESS, FAILURE, GIVEN_UP, NOTHING };

static const struct row {
    enum shed_code code;
    bool was_tried;
    uint64_t slow_ms, took_ms;
    enum verdict verdict;
} rows[] = {
    {SHED_OK, false, 0, 60000, SUCCESS},
    {SHED_OK, false, SLOW_MS, SLOW_MS, SUCCESS},
    {SHED_OK, false, SLOW_MS, SLOW_MS + 1, FAILURE},
    {SHED_EREDIS, true, 0, 0, FAILURE},
    {SHED_EREDIS, false, 0, 0, NOTHING},          /* a pause */
    {SHED_EREDIS, false, 0, COMMAND_MS, FAILURE}, /* cut short, late */
    {SHED_ETIMEDOUT, false, 0, 0, NOTHING},
    {SHED_ETIMEDOUT, false, 0, COMMAND_MS - 1, GIVEN_UP},
    {SHED_ETIMEDOUT, false, 0, COMMAND_MS, FAILURE},
    {SHED_ETIMEDOUT, false, SLOW_MS, SLOW_MS - 1, GIVEN_UP},
    {SHED_ETIMEDOUT, false, SLOW_MS, SLOW_MS, FAILURE},
    {SHED_ETIMEDOUT, true, 0, 0, FAILURE}, /* after a lost connection */
    {SHED_EDENIED, true, 0, 0, SUCCESS},
    {SHED_EDENIED, false, 0, 0, NOTHING},
    {SHED_EBUSY, true, 0, 60000, NOTHING},
    {SHED_ENOMEM, true, 0, 60000, NOTHING},
};

static void end_as(const struct row *row, int times)
{
    struct shed_error err;
    struct shed_health_pass pass;

    while (times-- > 0)
        if (shed_gate_enter(gate, &pass, &err))
            leave(pass, row->code, row->was_tried, row->took_ms);
}

/* Calls end at the same time. */
TEST_EACH(a_call_succeeds_fails_or_says_nothing, 0, COUNT_OF(rows))
{
    /* while half-open: as many that are given up have waited less than patient
     * ones would */
    static const int times[] = {[SUCCESS] = SHED_BREAKER_PROBES,
                                [FAILURE] = 1,
                                [GIVEN_UP] = SHED_BREAKER_PROBES,
                                [NOTHING] = 100};
    const struct row *row = &rows[_i];

    options.breaker.slow_ms = row->slow_ms;
    open_again();
    end_as(row, 2 * MIN_CALLS);
    ck_assert_uint_eq(opened, row->verdict == FAILURE);
    opened = 0;
    open_again();
    half_open_it();
    end_as(row, times[row->verdict]);
    ck_assert_uint_eq(opened, row->verdict == FAILURE ? 2 : 1);
    ck_assert_uint_eq(closed, row->verdict == SUCCESS);
}

static void give_up_calls(int times)
{
    while (times-- > 0) {
        now_ms += COMMAND_MS / 10;
        leave(enter(), SHED_ETIMEDOUT, false, COMMAND_MS / 10);
    }
}

TEST(calls_that_are_given_up_open_it_if_no_other_is_answered)
{
    give_up_calls(10 - 1);
    succeed_calls(1);
    give_up_calls(10 - 1 + MIN_CALLS - 2);
    ck_assert_uint_eq(opened, 0);
    give_up_calls(1);
    ck_assert_uint_eq(opened, 1);
    ck_assert_ptr_nonnull(strstr(reason, "the last failure: it failed"));
}

static void refuse(struct shed_health_pass pass)
{
    struct shed_reply *busy = parse_reply("-BUSY Redis is busy\r\n");
    const struct shed_health_end end = {
        .began_ms = now_ms, .ended_ms = now_ms, .refusal = busy};

    shed_gate_leave(gate, &pass, &end);
    shed_reply_free(busy);
}

TEST(a_reply_that_redis_cannot_work_is_a_failure)
{
    for (int i = 0; i < MIN_CALLS; i++) {
        now_ms += SHED_PAUSE_MAX_MS;
        refuse(enter());
    }
    ck_assert_uint_eq(opened, 1);
    ck_assert_ptr_nonnull(strstr(reason, "the last failure: BUSY Redis"));
}

TEST(a_redis_that_cannot_work_is_asked_once_after_a_pause)
{
    struct shed_health_pass pass, other;
    struct shed_error err;

    refuse(enter());
    ck_assert(!shed_gate_enter(gate, &other, &err));
    ck_assert_int_eq(err.code, SHED_EREDIS);
    ck_assert_ptr_nonnull(strstr(err.reason, "cannot work now: BUSY Redis"));
    now_ms += SHED_PAUSE_MIN_MS;
    pass = enter();
    ck_assert(!shed_gate_enter(gate, &other, &err)); /* one is under way */
    leave(pass, SHED_OK, true, 0);
    succeed_calls(MIN_CALLS);
    ck_assert_uint_eq(status().refused, 0); /* by the breaker */
}

TEST(a_slow_call_is_named_as_the_failure)
{
    options.breaker.slow_ms = SLOW_MS;
    open_again();
    for (int i = 0; i < MIN_CALLS; i++)
        leave(enter(), SHED_OK, true, SLOW_MS + 23);
    ck_assert_ptr_nonnull(strstr(reason, "a call took 123 ms"));
}

/* -------------------------------------------------------------- half-open */

TEST(a_few_probes_pass_at_a_time_and_close_it)
{
    struct shed_health_pass passes[SHED_BREAKER_PROBES];
    size_t last = SHED_BREAKER_PROBES - 1;

    half_open_it();
    for (size_t i = 0; i <= last; i++)
        passes[i] = enter();
    ck_assert(is_refused());
    leave(passes[0], SHED_ETIMEDOUT, false, 0); /* makes room */
    passes[0] = enter();
    ck_assert(is_refused());
    for (size_t i = 0; i < last; i++)
        leave(passes[i], SHED_OK, true, 0);
    ck_assert_uint_eq(closed, 0);
    now_ms += 5;
    leave(passes[last], SHED_OK, true, 0);
    ck_assert_uint_eq(closed, 1);
    ck_assert_uint_eq(after_ms, OPEN_MS + 5);
    ck_assert(!is_refused());
}

TEST(a_probe_that_fails_opens_it_again)
{
    half_open_it();
    fail_calls(1);
    ck_assert_uint_eq(opened, 2);
    ck_assert(is_refused());
}

/* Each is given up a moment before it would be a failure. */
TEST(probes_that_are_given_up_open_it_again_and_say_why)
{
    half_open_it();
    leave(enter(), SHED_ETIMEDOUT, false, COMMAND_MS - 1);
    leave(enter(), SHED_OK, true, 0); /* begins the count again */
    for (int i = 0; i < SHED_BREAKER_PROBES; i++)
        leave(enter(), SHED_ETIMEDOUT, false, COMMAND_MS - 1);
    ck_assert_uint_eq(opened, 1);
    now_ms += 7;
    leave(enter(), SHED_ETIMEDOUT, false, COMMAND_MS - 1);
    ck_assert_uint_eq(opened, 2);
    ck_assert_uint_eq(after_ms, OPEN_MS + 7);
    ck_assert_ptr_nonnull(strstr(reason, "open, and tries again in "));
    ck_assert_ptr_nonnull(strstr(reason, "the last failure: it failed"));
    ck_assert(is_refused());
}

int main(void)
{
    tcase_add_checked_fixture(test_case(), up, down);
    return run_tests("gate");
}
