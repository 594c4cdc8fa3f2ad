/*
 * The registry of those who want to hear of changed keys and of new epochs: a
 * lock registers its own key, a cache all keys that begin with its name.
 *
 * Reactor thread only, except for create and destroy.
 */
#ifndef SHED_CLIENT_LISTENERS_H
#define SHED_CLIENT_LISTENERS_H

#include <stdbool.h>
#include <stddef.h>

#include <snowshed/snowshed.h>

#include "base/list.h"
#include "base/map.h"

struct shed_listeners;

/* Part of its owner, which must not be freed before the listener is removed. */
struct shed_listener {
    struct shed_bytes key;
    bool is_prefix; /* it hears of every key that begins with key */
    /* NULL, of a single key: on_epoch is called instead */
    void (*on_change)(struct shed_listener *listener, struct shed_bytes key);
    /* pushes have begun or ended, or some were lost: look at everything */
    void (*on_epoch)(struct shed_listener *listener);
    /* used by the registry */
    bool is_added;
    struct shed_map_node in_map; /* of a key */
    struct shed_node in_list;    /* of a prefix */
};

/* Returns: NULL when out of memory. Any thread. */
struct shed_listeners *shed_listeners_create(void);

/* Any thread. NULL is allowed. */
void shed_listeners_destroy(struct shed_listeners *listeners);

/* Add a listener. Returns: false, and it is not added, if another listener has
 * its prefix. A listener of a single key is always added. */
bool shed_listeners_add(struct shed_listeners *listeners,
                        struct shed_listener *listener);

/* Remove a listener; it may be one that was never added, all zero where the
 * registry uses it. */
void shed_listeners_remove(struct shed_listeners *listeners,
                           struct shed_listener *listener);

/* Tell the listeners of this key. */
void shed_listeners_change(struct shed_listeners *listeners,
                           struct shed_bytes key);

/* Tell all listeners of an epoch. */
void shed_listeners_epoch(struct shed_listeners *listeners);

#endif
