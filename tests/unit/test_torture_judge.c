/* The judge of the lock torture, on hand-made records. */
#include "fault/torture_check.h"
#include "fault/torture_judge.h"
#include "support/testing.h"

#define E TORTURE_ENTER
#define X TORTURE_EXIT
#define K TORTURE_KILLED
#define L TORTURE_LOST

TEST(one_after_another_is_no_overlap)
{
    struct torture_record r[] = {
        {40, 0, X, 0}, {30, 0, E, 7}, {10, 1, E, 5}, {20, 1, X, 0}};
    struct torture_verdict v = torture_judge(r, COUNT_OF(r), TORTURE_NOBODY);

    ck_assert_uint_eq(v.entries, 2);
    ck_assert_uint_eq(v.overlaps, 0);
    ck_assert_uint_eq(v.disorders, 0);
}

TEST(two_inside_are_an_overlap)
{
    struct torture_record r[] = {
        {10, 0, E, 5}, {20, 1, E, 6}, {30, 1, X, 0}, {40, 0, X, 0}};
    struct torture_verdict v = torture_judge(r, COUNT_OF(r), 0);

    ck_assert_uint_eq(v.overlaps, 1);
    ck_assert_uint_eq(v.bystanders, 0);
    v = torture_judge(r, COUNT_OF(r), 2);
    ck_assert_uint_eq(v.bystanders, 1);
}

/* The first loses it with the end of its lease, then because it is gone. */
TEST(an_overlap_after_the_end_of_a_lease_is_told_from_others)
{
    struct torture_record r[] = {{10, 0, E, 5}, {20, 0, L, 1}, {30, 1, E, 6},
                                 {40, 1, X, 6}, {50, 0, X, 5}, {60, 0, E, 7},
                                 {70, 0, L, 0}, {80, 1, E, 8}, {85, 1, X, 8},
                                 {90, 0, X, 7}, {95, 0, L, 1}};
    struct torture_verdict v = torture_judge(r, COUNT_OF(r), 0);

    ck_assert_uint_eq(v.overlaps, 2);
    ck_assert_uint_eq(v.ended, 1);
}

TEST(a_killed_contender_is_not_inside)
{
    struct torture_record r[] = {{10, 0, E, 0}, {15, 0, K, 0}, {20, 1, E, 0}};

    ck_assert_uint_eq(torture_judge(r, COUNT_OF(r), 0).overlaps, 0);
}

TEST(a_contender_that_never_left_is_inside)
{
    struct torture_record r[] = {{10, 0, E, 0}, {90, 1, E, 0}, {95, 1, X, 0}};

    ck_assert_uint_eq(torture_judge(r, COUNT_OF(r), 0).overlaps, 1);
}

TEST(numbers_that_do_not_grow_are_counted)
{
    struct torture_record r[] = {{10, 0, E, 5}, {11, 0, X, 0}, {20, 1, E, 5},
                                 {21, 1, X, 0}, {30, 0, E, 4}, {31, 0, X, 0},
                                 {40, 0, E, 6}};

    ck_assert_uint_eq(torture_judge(r, COUNT_OF(r), 0).disorders, 2);
}

TEST(recovery_is_the_next_entry_of_another)
{
    const struct torture_record r[] = {
        {10, 0, E, 0}, {30, 0, E, 0}, {50, 1, E, 0}, {40, 2, E, 0}};

    ck_assert_uint_eq(torture_next_entry_us(r, COUNT_OF(r), 0, 20), 40);
    ck_assert_uint_eq(torture_next_entry_us(r, COUNT_OF(r), 0, 50), 0);
}

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

TEST_EACH(a_stall_excuses_what_leases_promise_and_nothing_else, 0,
          COUNT_OF(checks))
{
    const struct checked *c = &checks[_i];
    char text[TORTURE_TEXT_BYTES];

    ck_assert_int_eq(torture_check(&c->cell, c->stall_ms, 1000, text),
                     c->outcome);
}

int main(void)
{
    return run_tests("torture judge");
}
