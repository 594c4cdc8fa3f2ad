/* pending: which writes are kept, for how many keys, and what makes up for
 * them. */
#include <stdio.h>
#include <string.h>

#include "known/undelivered.h"
#include "support/testing.h"

enum { LIMIT = 3, ITEMS = 1000 };

static struct pending_test {
    struct shed_undelivered set;
    struct shed_undelivered_item item[ITEMS];
    char key[ITEMS][8];
} t;

static void begin(size_t limit)
{
    memset(&t, 0, sizeof(t));
    shed_undelivered_init(&t.set, limit);
    for (size_t i = 0; i < ITEMS; i++) {
        snprintf(t.key[i], sizeof(t.key[i]), "k%zu", i);
        t.item[i].in_map.key = shed_map_key(t.key[i], strlen(t.key[i]));
    }
}

static bool add(size_t i, enum shed_wish wish)
{
    return shed_undelivered_insert(&t.set, &t.item[i], wish);
}

static struct shed_undelivered_item *find(size_t i)
{
    return shed_undelivered_find(&t.set, t.key[i], strlen(t.key[i]));
}

static struct shed_undelivered_item *settle(size_t i, enum shed_wish wish,
                                            uint64_t upto)
{
    return shed_undelivered_settle(&t.set, t.key[i], strlen(t.key[i]), wish,
                                   upto);
}

TEST(a_key_that_was_added_is_found_and_no_other)
{
    begin(ITEMS);
    for (size_t i = 0; i < ITEMS - 1; i++)
        ck_assert(add(i, SHED_WISH_INVALIDATE));
    for (size_t i = 0; i < ITEMS - 1; i++)
        ck_assert_ptr_eq(find(i), &t.item[i]);
    ck_assert_ptr_null(find(ITEMS - 1));
    ck_assert_ptr_null(shed_undelivered_find(&t.set, "k", 1));
}

TEST(a_full_set_takes_no_more)
{
    begin(LIMIT);
    for (size_t i = 0; i < LIMIT; i++)
        ck_assert(add(i, SHED_WISH_INVALIDATE));
    ck_assert(!add(LIMIT, SHED_WISH_INVALIDATE));
    ck_assert_uint_eq(t.set.count, LIMIT);
    ck_assert_ptr_null(find(LIMIT));
    ck_assert_ptr_nonnull(settle(1, SHED_WISH_INVALIDATE, t.set.last));
    ck_assert(add(LIMIT, SHED_WISH_INVALIDATE));
}

TEST(a_set_of_none_takes_none)
{
    begin(0);
    ck_assert(!add(0, SHED_WISH_INVALIDATE));
}

TEST(a_write_makes_up_for_what_had_failed_before_it_was_sent)
{
    uint64_t before;

    begin(LIMIT);
    ck_assert(add(0, SHED_WISH_INVALIDATE));
    before = t.set.last;
    ck_assert(add(1, SHED_WISH_INVALIDATE));
    shed_undelivered_renew(&t.set, &t.item[0], SHED_WISH_INVALIDATE);
    ck_assert_uint_eq(t.set.count, 2);
    ck_assert_ptr_null(settle(0, SHED_WISH_INVALIDATE, before));
    ck_assert_ptr_null(settle(1, SHED_WISH_INVALIDATE, before));
    ck_assert_ptr_eq(settle(0, SHED_WISH_INVALIDATE, t.set.last), &t.item[0]);
    ck_assert_ptr_null(find(0));
    ck_assert_ptr_null(settle(0, SHED_WISH_INVALIDATE, t.set.last));
}

TEST(an_expiry_does_not_make_up_for_an_invalidation)
{
    begin(LIMIT);
    ck_assert(add(0, SHED_WISH_EXPIRE));
    shed_undelivered_renew(&t.set, &t.item[0], SHED_WISH_INVALIDATE);
    shed_undelivered_renew(&t.set, &t.item[0], SHED_WISH_EXPIRE);
    ck_assert_int_eq(t.item[0].wish, SHED_WISH_INVALIDATE);
    ck_assert_ptr_null(settle(0, SHED_WISH_EXPIRE, t.set.last));
    ck_assert(add(1, SHED_WISH_EXPIRE));
    ck_assert_ptr_eq(settle(1, SHED_WISH_INVALIDATE, t.set.last), &t.item[1]);
}

TEST(items_are_sent_once_in_the_order_in_which_they_came)
{
    begin(LIMIT);
    for (size_t i = 0; i < LIMIT; i++)
        ck_assert(add(i, SHED_WISH_INVALIDATE));
    for (size_t i = 0; i < LIMIT; i++)
        ck_assert_ptr_eq(shed_undelivered_send(&t.set), &t.item[i]);
    ck_assert_ptr_null(shed_undelivered_send(&t.set));
}

TEST(what_was_delivered_leaves_and_what_was_not_goes_behind_the_others)
{
    begin(LIMIT);
    for (size_t i = 0; i < LIMIT; i++)
        ck_assert(add(i, SHED_WISH_INVALIDATE));
    ck_assert_ptr_eq(shed_undelivered_send(&t.set), &t.item[0]);
    ck_assert_ptr_eq(shed_undelivered_send(&t.set), &t.item[1]);
    ck_assert_int_eq(shed_undelivered_return(&t.set, &t.item[0], false),
                     SHED_UNDELIVERED_STAYS);
    ck_assert_int_eq(shed_undelivered_return(&t.set, &t.item[1], true),
                     SHED_UNDELIVERED_DONE);
    ck_assert_ptr_null(find(1));
    ck_assert_ptr_eq(shed_undelivered_send(&t.set), &t.item[2]);
    ck_assert_ptr_eq(shed_undelivered_send(&t.set), &t.item[0]);
}

TEST(a_write_that_fails_while_the_key_is_delivered_is_delivered_again)
{
    begin(LIMIT);
    ck_assert(add(0, SHED_WISH_EXPIRE));
    ck_assert_ptr_eq(shed_undelivered_send(&t.set), &t.item[0]);
    shed_undelivered_renew(&t.set, &t.item[0], SHED_WISH_INVALIDATE);
    ck_assert_int_eq(shed_undelivered_return(&t.set, &t.item[0], true),
                     SHED_UNDELIVERED_STAYS);
    ck_assert_ptr_eq(shed_undelivered_send(&t.set), &t.item[0]);
    ck_assert_int_eq(shed_undelivered_return(&t.set, &t.item[0], true),
                     SHED_UNDELIVERED_DONE);
}

/* Its memory is still in use, and the key can be added as another item. */
TEST(an_item_that_is_settled_while_it_is_delivered_ends_with_its_return)
{
    begin(LIMIT);
    ck_assert(add(0, SHED_WISH_INVALIDATE));
    ck_assert_ptr_eq(shed_undelivered_send(&t.set), &t.item[0]);
    ck_assert_ptr_eq(settle(0, SHED_WISH_INVALIDATE, t.set.last), &t.item[0]);
    ck_assert(t.item[0].is_under_way);
    t.item[1].in_map.key = t.item[0].in_map.key;
    ck_assert(add(1, SHED_WISH_INVALIDATE));
    ck_assert_int_eq(shed_undelivered_return(&t.set, &t.item[0], true),
                     SHED_UNDELIVERED_DONE_ELSE);
    ck_assert_ptr_eq(find(0), &t.item[1]);
}

int main(void)
{
    return run_tests("undelivered_set");
}
