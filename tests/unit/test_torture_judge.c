/* The judge of the lock torture, on hand-made records. */
#include "fault/torture_check.h"
#include "fault/torture_judge.h"
#include "support/testing.h"

#define COUNT(array) (sizeof(array) / sizeof(*(array)))

#define E TORTURE_ENTER
#define X TORTURE_EXIT
#define K TORTURE_KILLED
#define L TORTURE_LOST

START_TEST(one_after_another_is_no_overlap)
{
    struct torture_record r[] = {
        {40, 0, X, 0}, {30, 0, E, 7}, {10, 1, E, 5}, {20, 1, X, 0}};
    struct torture_verdict v = torture_judge(r, COUNT(r), TORTURE_NOBODY);

    ck_assert_uint_eq(v.entries, 2);
    ck_assert_uint_eq(v.overlaps, 0);
    ck_assert_uint_eq(v.disorders, 0);
}
END_TEST

START_TEST(two_inside_are_an_overlap)
{
    struct torture_record r[] = {
        {10, 0, E, 5}, {20, 1, E, 6}, {30, 1, X, 0}, {40, 0, X, 0}};
    struct torture_verdict v = torture_judge(r, COUNT(r), 0);

    ck_assert_uint_eq(v.overlaps, 1);
    ck_assert_uint_eq(v.bystanders, 0);
    v = torture_judge(r, COUNT(r), 2);
    ck_assert_uint_eq(v.bystanders, 1);
}
END_TEST

/* The first loses it with the end of its lease, then because it is gone. */
START_TEST(an_overlap_after_the_end_of_a_lease_is_told_from_others)
{
    struct torture_record r[] = {{10, 0, E, 5}, {20, 0, L, 1}, {30, 1, E, 6},
                                 {40, 1, X, 6}, {50, 0, X, 5}, {60, 0, E, 7},
                                 {70, 0, L, 0}, {80, 1, E, 8}, {85, 1, X, 8},
                                 {90, 0, X, 7}, {95, 0, L, 1}};
    struct torture_verdict v = torture_judge(r, COUNT(r), 0);

    ck_assert_uint_eq(v.overlaps, 2);
    ck_assert_uint_eq(v.ended, 1);
}
END_TEST

START_TEST(a_killed_contender_is_not_inside)
{
    struct torture_record r[] = {{10, 0, E, 0}, {15, 0, K, 0}, {20, 1, E, 0}};

    ck_assert_uint_eq(torture_judge(r, COUNT(r), 0).overlaps, 0);
}
END_TEST

START_TEST(a_contender_that_never_left_is_inside)
{
    struct torture_record r[] = {{10, 0, E, 0}, {90, 1, E, 0}, {95, 1, X, 0}};

    ck_assert_uint_eq(torture_judge(r, COUNT(r), 0).overlaps, 1);
}
END_TEST

START_TEST(numbers_that_do_not_grow_are_counted)
{
    struct torture_record r[] = {{10, 0, E, 5}, {11, 0, X, 0}, {20, 1, E, 5},
                                 {21, 1, X, 0}, {30, 0, E, 4}, {31, 0, X, 0},
                                 {40, 0, E, 6}};

    ck_assert_uint_eq(torture_judge(r, COUNT(r), 0).disorders, 2);
}
END_TEST

START_TEST(recovery_is_the_next_entry_of_another)
{
    const struct torture_record r[] = {
        {10, 0, E, 0}, {30, 0, E, 0}, {50, 1, E, 0}, {40, 2, E, 0}};

    ck_assert_uint_eq(torture_next_entry_us(r, COUNT(r), 0, 20), 40);
    ck_assert_uint_eq(torture_next_entry_us(r, COUNT(r), 0, 50), 0);
}
END_TEST

/* With a lease of a second: what is wrong, and the outcome if there was a stall
 * of this many ms. */
static const struct checked {
    struct cell cell;
    uint64_t stall_ms;
    enum torture_outcome outcome;
} checks[] = {
    {{.algorithm = SHED_LOCK_LEASE}, 5000, TORTURE_AS_EXPECTED},
    {{.algorithm = SHED_LOCK_LEASE, .verdict.overlaps = 1}, 90, TORTURE_WRONG},
    {{.algorithm = SHED_LOCK_LEASE, .verdict.overlaps = 1},
     900,
     TORTURE_DISTURBED},
    {{.algorithm = SHED_LOCK_LEASE, .verdict.disorders = 1},
     900,
     TORTURE_WRONG},
    {{.algorithm = TORTURE_QUORUM, .old_writes = 1}, 900, TORTURE_WRONG},
    {{.algorithm = TORTURE_QUORUM, .verdict = {.overlaps = 2, .ended = 2}},
     60,
     TORTURE_DISTURBED}, /* longer than a round of a quorum waits */
    {{.algorithm = TORTURE_QUORUM, .verdict = {.overlaps = 2, .ended = 2}},
     40,
     TORTURE_WRONG},
    {{.algorithm = TORTURE_QUORUM, .verdict = {.overlaps = 2, .ended = 1}},
     60,
     TORTURE_WRONG},
    {{.algorithm = TORTURE_QUORUM, .recovered_ms = UINT64_MAX},
     60,
     TORTURE_WRONG},
    {{.algorithm = SHED_LOCK_LEASE, .verdict = {.overlaps = 2, .ended = 2}},
     60,
     TORTURE_WRONG},
    {{.algorithm = SHED_LOCK_LEASE, .recovered_ms = UINT64_MAX},
     90,
     TORTURE_WRONG},
    {{.algorithm = SHED_LOCK_EXPIRE, .is_broken = true}, 90, TORTURE_NOT_SHOWN},
    {{.algorithm = SHED_LOCK_SETNX, .is_stuck = true}, 90, TORTURE_NOT_SHOWN},
    {{.algorithm = SHED_LOCK_LEASE, .is_broken = true, .verdict.overlaps = 1},
     90,
     TORTURE_NOT_SHOWN}, /* and no old write was refused */
    {{.algorithm = SHED_LOCK_LEASE,
      .is_broken = true,
      .verdict = {.overlaps = 1, .refused = 1}},
     90,
     TORTURE_AS_EXPECTED},
};

START_TEST(a_stall_excuses_what_leases_promise_and_nothing_else)
{
    const struct checked *c = &checks[_i];
    char text[TORTURE_TEXT_BYTES];

    ck_assert_int_eq(torture_check(&c->cell, c->stall_ms, 1000, text),
                     c->outcome);
}
END_TEST

int main(void)
{
    TCase *tc = tcase_create("torture judge");

    tcase_set_timeout(tc, TEST_TIMEOUT_S);
    tcase_add_test(tc, one_after_another_is_no_overlap);
    tcase_add_test(tc, two_inside_are_an_overlap);
    tcase_add_test(tc, an_overlap_after_the_end_of_a_lease_is_told_from_others);
    tcase_add_test(tc, a_killed_contender_is_not_inside);
    tcase_add_test(tc, a_contender_that_never_left_is_inside);
    tcase_add_test(tc, numbers_that_do_not_grow_are_counted);
    tcase_add_test(tc, recovery_is_the_next_entry_of_another);
    tcase_add_loop_test(tc,
                        a_stall_excuses_what_leases_promise_and_nothing_else, 0,
                        COUNT(checks));
    return run_tests("torture judge", tc);
}
