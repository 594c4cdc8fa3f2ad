/*
 * The listeners: those of one key in a hash table, because thousands of locks
 * may be open; those of a prefix in a list, because caches are few. The
 * invariant: a listener that has been removed is not called again.
 */
#include "client/listeners.h"

#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#define CHAINS 1024

struct shed_listeners {
    struct shed_listener *prefixes;
    struct shed_listener *chain[CHAINS];
};

struct shed_listeners *shed_listeners_create(void)
{
    return calloc(1, sizeof(struct shed_listeners));
}

void shed_listeners_destroy(struct shed_listeners *ls)
{
    free(ls);
}

static struct shed_listener **chain_of(struct shed_listeners *ls,
                                       const char *key, size_t size)
{
    return &ls->chain[XXH3_64bits(key, size) % CHAINS];
}

static struct shed_listener **list_of(struct shed_listeners *ls,
                                      const struct shed_listener *l)
{
    return l->is_prefix ? &ls->prefixes : chain_of(ls, l->key, l->key_size);
}

static bool has_prefix(const struct shed_listeners *ls,
                       const struct shed_listener *wanted)
{
    for (const struct shed_listener *l = ls->prefixes; l != NULL; l = l->next)
        if (l->key_size == wanted->key_size &&
            memcmp(l->key, wanted->key, l->key_size) == 0)
            return true;
    return false;
}

bool shed_listeners_add(struct shed_listeners *ls, struct shed_listener *l)
{
    struct shed_listener **list = list_of(ls, l);

    if (l->is_prefix && has_prefix(ls, l))
        return false;
    l->next = *list;
    *list = l;
    return true;
}

void shed_listeners_remove(struct shed_listeners *ls, struct shed_listener *l)
{
    struct shed_listener **at = list_of(ls, l);

    while (*at != NULL && *at != l)
        at = &(*at)->next;
    if (*at != NULL)
        *at = l->next;
}

static bool is_about(const struct shed_listener *l, const char *key,
                     size_t size)
{
    if (l->is_prefix ? size < l->key_size : size != l->key_size)
        return false;
    return memcmp(l->key, key, l->key_size) == 0;
}

/* A listener may remove itself during its call. */
static void tell_change(struct shed_listener *l, const char *key, size_t size)
{
    for (struct shed_listener *next; l != NULL; l = next) {
        next = l->next;
        if (is_about(l, key, size))
            l->on_change(l, key, size);
    }
}

static void tell_epoch(struct shed_listener *l)
{
    for (struct shed_listener *next; l != NULL; l = next) {
        next = l->next;
        l->on_epoch(l);
    }
}

void shed_listeners_change(struct shed_listeners *ls, const char *key,
                           size_t size)
{
    tell_change(ls->prefixes, key, size);
    tell_change(*chain_of(ls, key, size), key, size);
}

void shed_listeners_epoch(struct shed_listeners *ls)
{
    tell_epoch(ls->prefixes);
    for (size_t i = 0; i < CHAINS; i++)
        tell_epoch(ls->chain[i]);
}
