/*
 * A hash table whose keys are bytes. The owners of a map provide the memory of
 * its nodes and of its array of chains. The array keeps its size, because each
 * user knows how many keys it has at most. A key may have several nodes. Pure.
 */
#ifndef SHED_MAP_H
#define SHED_MAP_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <snowshed/snowshed.h>

#include "base/hash.h"

struct shed_map_key {
    const void *at; /* borrowed */
    size_t size;
    uint64_t hash; /* the map uses the upper 32 bits; the others are for a user
                      with several maps, to choose one of them */
};

struct shed_map_node {
    struct shed_map_key key; /* set by the owner, before it is inserted */
    struct shed_map_node *next;
};

struct shed_map {
    struct shed_map_node **chains;
    size_t count; /* of the chains */
};

static inline struct shed_map_key shed_map_key(struct shed_bytes key)
{
    return (struct shed_map_key){key.data, key.size,
                                 shed_hash(key.data, key.size, 0)};
}

/* Make an empty map, with this array of chains. */
void shed_map_init(struct shed_map *map, struct shed_map_node **chains,
                   size_t count);

void shed_map_insert(struct shed_map *map, struct shed_map_node *node);

/* Take out a node of this map. */
void shed_map_remove(struct shed_map *map, struct shed_map_node *node);

/* The number of the hash's chain: a product, because a remainder takes longer
 * than all else in a find. */
static inline size_t shed_map_chain(const struct shed_map *map, uint64_t hash)
{
    return (size_t)((hash >> 32) * map->count >> 32);
}

/* Returns: this node or the first behind it that has the key; or NULL. */
static inline struct shed_map_node *
shed_map_find_from(struct shed_map_node *node, struct shed_map_key key)
{
    while (node != NULL &&
           (node->key.hash != key.hash || node->key.size != key.size ||
            (key.size > 0 && memcmp(node->key.at, key.at, key.size) != 0)))
        node = node->next;
    return node;
}

/* Returns: a node of the key, the newest first; NULL: there is none. Inline,
 * because to pass a key on the stack takes as long as to compare it. */
static inline struct shed_map_node *shed_map_find(const struct shed_map *map,
                                                  struct shed_map_key key)
{
    return shed_map_find_from(map->chains[shed_map_chain(map, key.hash)], key);
}

/* Returns: the next node with the key of this one; NULL: there is none. */
static inline struct shed_map_node *
shed_map_find_next(const struct shed_map_node *node)
{
    return shed_map_find_from(node->next, node->key);
}

/* Iterate over all nodes: previous is NULL for the first. Returns: NULL after
 * the last. */
struct shed_map_node *shed_map_next(const struct shed_map *map,
                                    const struct shed_map_node *previous);

#endif
