/* Which failures of the soak are findings, on a made-up clock. */
#include "soak/account.h"
#include "support/testing.h"

enum { SETTLE_MS = 1000, LATE_MS = 500, FAULT = 3 };

static struct soak_account account;

static void set_up(void)
{
    account = (struct soak_account){.settle_ms = SETTLE_MS, .late_ms = LATE_MS};
    soak_calm(&account, 100);
}

/* A call that fails at end_ms, without a fault meanwhile. */
static enum soak_end fails(uint64_t begun_ms, uint64_t end_ms)
{
    struct soak_call call = soak_begin(&account, SOAK_READ, 0, begun_ms);

    return soak_end(&account, &call, SHED_EREDIS, end_ms);
}

TEST(a_failure_is_explained_until_a_fault_has_settled)
{
    ck_assert_int_eq(fails(1099, 1200), SOAK_FINE);
    ck_assert_int_eq(fails(1100, 1200), SOAK_UNEXPLAINED);
    soak_trouble(&account, FAULT);
    ck_assert_int_eq(fails(5000, 5001), SOAK_FINE);
    soak_calm(&account, 6000);
    ck_assert_int_eq(fails(6999, 7300), SOAK_FINE);
    ck_assert_uint_eq(account.aftermath_ms, 1300);
    ck_assert_int_eq(fails(7000, 7001), SOAK_UNEXPLAINED);
    ck_assert_uint_eq(account.unexplained, 2);
}

TEST(a_fault_during_the_call_explains_its_failure)
{
    struct soak_call call = soak_begin(&account, SOAK_WRITE, 1, 5000);

    soak_trouble(&account, FAULT);
    ck_assert_int_eq(soak_end(&account, &call, SHED_EREDIS, 5100), SOAK_FINE);
    soak_calm(&account, 5200);
    ck_assert_int_eq(soak_end(&account, &call, SHED_EREDIS, 6500), SOAK_FINE);
}

TEST(what_is_no_failure_needs_no_explanation)
{
    struct soak_call call = soak_begin(&account, SOAK_READ, 0, 5000);
    struct soak_call lock = soak_begin(&account, SOAK_LOCK, 0, 5000);

    ck_assert_int_eq(soak_end(&account, &call, SHED_OK, 5001), SOAK_FINE);
    ck_assert_int_eq(soak_end(&account, &call, SHED_EMISS, 5001), SOAK_FINE);
    ck_assert_int_eq(soak_end(&account, &lock, SHED_ETIMEDOUT, 8000),
                     SOAK_FINE);
    ck_assert_int_eq(soak_end(&account, &lock, SHED_EREDIS, 8000),
                     SOAK_UNEXPLAINED);
}

TEST(a_call_may_return_a_little_after_its_deadline)
{
    struct soak_call call = soak_begin(&account, SOAK_READ, 0, 5000);
    uint64_t deadline_ms = 5000 + SOAK_TIMEOUT_MS;

    soak_trouble(&account, FAULT); /* which is no excuse for being late */
    ck_assert_int_eq(soak_end(&account, &call, SHED_OK, deadline_ms + LATE_MS),
                     SOAK_FINE);
    ck_assert_int_eq(
        soak_end(&account, &call, SHED_OK, deadline_ms + LATE_MS + 1),
        SOAK_LATE);
    ck_assert_uint_eq(account.late, 1);
    ck_assert_uint_eq(account.latest_ms, LATE_MS + 1);
}

TEST(calls_are_counted_by_process_code_and_fault)
{
    const struct shed_value absent = {.kind = SHED_KIND_ABSENT};
    struct soak_call call = soak_begin(&account, SOAK_READ, 2, 5000);

    soak_trouble(&account, FAULT);
    (void)soak_end(&account, &call, SHED_EBUSY, 5001);
    (void)soak_end(&account, &call, SHED_OK, 5001);
    (void)soak_end(&account, &call, SHED_EMISS, 5001);
    ck_assert_uint_eq(account.ended[SOAK_READ][SHED_EBUSY][2], 1);
    ck_assert_uint_eq(account.calls[FAULT], 3);
    ck_assert_uint_eq(account.failures[FAULT], 1);
    ck_assert_uint_eq(soak_failures(&account, SOAK_READ), 1);
    ck_assert_uint_eq(soak_ended(&account, SOAK_READ, SHED_OK), 1);
    soak_count_answer(&account, 1, &absent);
    ck_assert_uint_eq(account.answers[SOAK_FROM_ABSENCE][1], 1);
}

int main(void)
{
    tcase_add_checked_fixture(test_case(), set_up, NULL);
    return run_tests("soak_account");
}
