/* A pairing heap. Its invariant: no node is due before its parent. */
#include "base/heap.h"

/* Make one of two roots the first child of the other. NULL is allowed. */
static struct shed_heap_node *meld(struct shed_heap_node *a,
                                   struct shed_heap_node *b)
{
    struct shed_heap_node *root = a, *child = b;

    if (a == NULL || b == NULL)
        return a != NULL ? a : b;
    if (b->at_ms < a->at_ms) {
        root = b;
        child = a;
    }
    root->next = NULL;
    child->before = root;
    child->next = root->child;
    if (root->child != NULL)
        root->child->before = child;
    root->child = child;
    return root;
}

/* Make one root of a list of siblings: meld them in pairs, and then the pairs,
 * the last one first. */
static struct shed_heap_node *meld_all(struct shed_heap_node *first)
{
    struct shed_heap_node *pairs = NULL, *root = NULL;

    while (first != NULL) {
        struct shed_heap_node *a = first, *b = a->next, *pair;
        first = b != NULL ? b->next : NULL;
        pair = meld(a, b);
        pair->next = pairs;
        pairs = pair;
    }
    while (pairs != NULL) {
        struct shed_heap_node *next = pairs->next;
        root = meld(root, pairs);
        pairs = next;
    }
    return root;
}

void shed_heap_insert(struct shed_heap *heap, struct shed_heap_node *node)
{
    node->child = node->next = node->before = NULL;
    heap->first = meld(heap->first, node);
}

void shed_heap_remove(struct shed_heap *heap, struct shed_heap_node *node)
{
    struct shed_heap_node *rest = meld_all(node->child);

    if (node->before == NULL) {
        heap->first = rest;
    } else {
        if (node->before->child == node)
            node->before->child = node->next;
        else
            node->before->next = node->next;
        if (node->next != NULL)
            node->next->before = node->before;
        heap->first = meld(heap->first, rest);
    }
    if (heap->first != NULL)
        heap->first->before = NULL;
}
