/*
 * The listeners: those of one key in a hash table, because thousands of locks
 * may be open; those of a prefix in a list, because caches are few. The
 * invariant: a listener that has been removed is not called again.
 */
#include "client/listeners.h"

#include <stdlib.h>
#include <string.h>

#include "base/container.h"

#define CHAINS 1024

struct shed_listeners {
    struct shed_list prefixes;
    struct shed_map keys;
    struct shed_map_node *chains[CHAINS];
};

struct shed_listeners *shed_listeners_create(void)
{
    struct shed_listeners *ls = calloc(1, sizeof(*ls));

    if (ls != NULL)
        shed_map_init(&ls->keys, ls->chains, CHAINS);
    return ls;
}

void shed_listeners_destroy(struct shed_listeners *ls)
{
    free(ls);
}

/* node may be NULL. */
static struct shed_listener *of_prefix(struct shed_node *node)
{
    return node != NULL ? shed_container_of(node, struct shed_listener, in_list)
                        : NULL;
}

static struct shed_listener *of_key(struct shed_map_node *node)
{
    return shed_container_of(node, struct shed_listener, in_map);
}

static bool begins_with(struct shed_bytes key, struct shed_bytes prefix)
{
    return key.size >= prefix.size &&
           memcmp(key.data, prefix.data, prefix.size) == 0;
}

static bool has_prefix(const struct shed_listeners *ls,
                       const struct shed_listener *wanted)
{
    for (struct shed_node *n = ls->prefixes.first; n != NULL; n = n->after)
        if (of_prefix(n)->key.size == wanted->key.size &&
            begins_with(wanted->key, of_prefix(n)->key))
            return true;
    return false;
}

bool shed_listeners_add(struct shed_listeners *ls, struct shed_listener *l)
{
    if (l->is_prefix && has_prefix(ls, l))
        return false;
    l->is_added = true;
    l->in_map.key = shed_map_key(l->key);
    if (l->is_prefix)
        shed_list_append(&ls->prefixes, &l->in_list);
    else
        shed_map_insert(&ls->keys, &l->in_map);
    return true;
}

void shed_listeners_remove(struct shed_listeners *ls, struct shed_listener *l)
{
    if (l->is_added && l->is_prefix)
        shed_list_remove(&ls->prefixes, &l->in_list);
    else if (l->is_added)
        shed_map_remove(&ls->keys, &l->in_map);
    l->is_added = false;
}

/* A listener may remove itself during its call, here and below. */
void shed_listeners_change(struct shed_listeners *ls, struct shed_bytes key)
{
    struct shed_map_node *n = shed_map_find(&ls->keys, shed_map_key(key));
    struct shed_listener *l = of_prefix(ls->prefixes.first);

    for (struct shed_listener *next; l != NULL; l = next) {
        next = of_prefix(l->in_list.after);
        if (begins_with(key, l->key))
            l->on_change(l, key);
    }
    for (struct shed_map_node *next; n != NULL; n = next) {
        next = shed_map_find_next(n);
        if (of_key(n)->on_change != NULL)
            of_key(n)->on_change(of_key(n), key);
        else
            of_key(n)->on_epoch(of_key(n));
    }
}

void shed_listeners_epoch(struct shed_listeners *ls)
{
    struct shed_map_node *n = shed_map_next(&ls->keys, NULL);
    struct shed_listener *l = of_prefix(ls->prefixes.first);

    for (struct shed_listener *next; l != NULL; l = next) {
        next = of_prefix(l->in_list.after);
        l->on_epoch(l);
    }
    for (struct shed_map_node *next; n != NULL; n = next) {
        next = shed_map_next(&ls->keys, n);
        of_key(n)->on_epoch(of_key(n));
    }
}
