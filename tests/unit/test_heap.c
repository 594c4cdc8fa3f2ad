/* Heaps: the first is due first, whatever is inserted and taken out. */
#include <stdbool.h>

#include "base/heap.h"
#include "support/testing.h"

enum { NODES = 500, STEPS = 20000 };

static struct shed_heap_node nodes[NODES];
static bool is_in[NODES];

static uint64_t least(void)
{
    uint64_t at_ms = UINT64_MAX;

    for (int i = 0; i < NODES; i++)
        if (is_in[i] && nodes[i].at_ms < at_ms)
            at_ms = nodes[i].at_ms;
    return at_ms;
}

TEST(the_first_is_due_first)
{
    struct shed_heap heap = {NULL};
    uint64_t seed = 1;

    for (int step = 0; step < STEPS; step++) {
        unsigned i;
        seed = seed * 6364136223846793005U + 1442695040888963407U;
        i = (unsigned)(seed >> 33) % NODES;
        if (is_in[i]) {
            shed_heap_remove(&heap, &nodes[i]);
        } else {
            nodes[i].at_ms = (seed >> 50) % 100;
            shed_heap_insert(&heap, &nodes[i]);
        }
        is_in[i] = !is_in[i];
        ck_assert_uint_eq(heap.first != NULL ? heap.first->at_ms : UINT64_MAX,
                          least());
    }
}

TEST(they_come_out_in_order)
{
    struct shed_heap heap = {NULL};
    uint64_t before = 0;

    for (unsigned i = 0; i < NODES; i++) {
        nodes[i].at_ms = (i * 7919U) % NODES;
        shed_heap_insert(&heap, &nodes[i]);
    }
    for (unsigned i = 0; i < NODES; i++) {
        struct shed_heap_node *first = heap.first;
        ck_assert_uint_ge(first->at_ms, before);
        before = first->at_ms;
        shed_heap_remove(&heap, first);
    }
    ck_assert_ptr_null(heap.first);
}

int main(void)
{
    return run_tests("heap");
}
