/* A doubly linked list. Its nodes are parts of their owners' memory. Pure. */
#ifndef SHED_LIST_H
#define SHED_LIST_H

#include <stddef.h>

/* In a list: its neighbours. */
struct shed_node {
    struct shed_node *before, *after;
};

/* All zero at the beginning. */
struct shed_list {
    struct shed_node *first, *last; /* NULL: it is empty */
};

/* Add a node at the end. */
static inline void shed_list_append(struct shed_list *list,
                                    struct shed_node *node)
{
    node->before = list->last;
    node->after = NULL;
    if (list->last != NULL)
        list->last->after = node;
    else
        list->first = node;
    list->last = node;
}

/* Take out a node of this list. */
static inline void shed_list_remove(struct shed_list *list,
                                    struct shed_node *node)
{
    if (node->before != NULL)
        node->before->after = node->after;
    else
        list->first = node->after;
    if (node->after != NULL)
        node->after->before = node->before;
    else
        list->last = node->before;
}

/* Take out the first node. Returns: NULL if the list is empty. */
static inline struct shed_node *shed_list_pop(struct shed_list *list)
{
    struct shed_node *first = list->first;

    if (first == NULL)
        return NULL;
    list->first = first->after;
    if (first->after != NULL)
        first->after->before = NULL;
    else
        list->last = NULL;
    return first;
}

#endif
