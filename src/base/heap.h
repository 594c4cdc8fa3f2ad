/*
 * What is due first: a heap whose nodes are parts of their owners' memory, so
 * that nothing is allocated, and any node can be taken out. (A pairing heap:
 * Fredman, Sedgewick, Sleator, Tarjan, "The pairing heap", 1986. To insert
 * costs one comparison, to take out a logarithm of them on average.) Pure.
 */
#ifndef SHED_HEAP_H
#define SHED_HEAP_H

#include <stddef.h>
#include <stdint.h>

struct shed_heap_node {
    uint64_t at_ms; /* set by the owner, before it is inserted */
    struct shed_heap_node *child, *next;
    struct shed_heap_node *before; /* the node whose next or child it is */
};

/* All zero at the beginning. */
struct shed_heap {
    struct shed_heap_node *first; /* of the least at_ms; NULL: it is empty */
};

void shed_heap_insert(struct shed_heap *heap, struct shed_heap_node *node);

/* Take out a node of this heap. */
void shed_heap_remove(struct shed_heap *heap, struct shed_heap_node *node);

#endif
