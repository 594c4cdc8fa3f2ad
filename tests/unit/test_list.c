/* list: nodes stay in the order in which they were added, whichever leave. */
#include "base/list.h"

#include <stdbool.h>

#include "support/testing.h"

enum { NODES = 4 };

static struct shed_list list;
static struct shed_node node[NODES];

static void fill(void)
{
    list = (struct shed_list){NULL, NULL};
    for (size_t i = 0; i < NODES; i++)
        shed_list_append(&list, &node[i]);
}

/* Whether the list has these nodes in this order, from both ends. */
static bool has(const size_t *wanted, size_t count)
{
    const struct shed_node *n = list.first;
    size_t i;

    for (i = 0; i < count && n == &node[wanted[i]]; i++)
        n = n->after;
    if (i < count || n != NULL)
        return false;
    for (n = list.last; i > 0 && n == &node[wanted[i - 1]]; i--)
        n = n->before;
    return i == 0 && n == NULL;
}

TEST(nodes_are_in_the_order_in_which_they_were_added)
{
    fill();
    ck_assert(has((size_t[]){0, 1, 2, 3}, NODES));
}

TEST(any_node_can_leave)
{
    fill();
    shed_list_remove(&list, &node[1]);
    ck_assert(has((size_t[]){0, 2, 3}, 3));
    shed_list_remove(&list, &node[3]);
    ck_assert(has((size_t[]){0, 2}, 2));
    shed_list_remove(&list, &node[0]);
    ck_assert(has((size_t[]){2}, 1));
    shed_list_remove(&list, &node[2]);
    ck_assert_ptr_null(list.first);
    ck_assert_ptr_null(list.last);
}

TEST(pop_takes_the_first_until_the_list_is_empty)
{
    fill();
    for (size_t i = 0; i < NODES; i++)
        ck_assert_ptr_eq(shed_list_pop(&list), &node[i]);
    ck_assert_ptr_null(shed_list_pop(&list));
    shed_list_append(&list, &node[2]);
    ck_assert(has((size_t[]){2}, 1));
}

int main(void)
{
    return run_tests("list");
}
