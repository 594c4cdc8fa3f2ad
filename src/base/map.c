/* The hash table. Its one invariant: a node is in the chain of its hash. */
#include "base/map.h"

#include <string.h>

static size_t chain_of(const struct shed_map *map, uint64_t hash)
{
    return (size_t)(hash >> 32) % map->count;
}

/* Returns: this node or the first behind it that has the key; or NULL. */
static struct shed_map_node *find_from(struct shed_map_node *node,
                                       struct shed_map_key key)
{
    while (node != NULL &&
           (node->key.hash != key.hash || node->key.size != key.size ||
            (key.size > 0 && memcmp(node->key.at, key.at, key.size) != 0)))
        node = node->next;
    return node;
}

void shed_map_init(struct shed_map *map, struct shed_map_node **chains,
                   size_t count)
{
    *map = (struct shed_map){chains, count};
    memset(chains, 0, count * sizeof(struct shed_map_node *));
}

void shed_map_insert(struct shed_map *map, struct shed_map_node *node)
{
    struct shed_map_node **chain = &map->chains[chain_of(map, node->key.hash)];

    node->next = *chain;
    *chain = node;
}

void shed_map_remove(struct shed_map *map, struct shed_map_node *node)
{
    struct shed_map_node **at = &map->chains[chain_of(map, node->key.hash)];

    while (*at != node)
        at = &(*at)->next;
    *at = node->next;
}

struct shed_map_node *shed_map_find(const struct shed_map *map,
                                    struct shed_map_key key)
{
    return find_from(map->chains[chain_of(map, key.hash)], key);
}

struct shed_map_node *shed_map_find_next(const struct shed_map_node *node)
{
    return find_from(node->next, node->key);
}

struct shed_map_node *shed_map_next(const struct shed_map *map,
                                    const struct shed_map_node *previous)
{
    size_t chain = 0;

    if (previous != NULL && previous->next != NULL)
        return previous->next;
    if (previous != NULL)
        chain = chain_of(map, previous->key.hash) + 1;
    while (chain < map->count && map->chains[chain] == NULL)
        chain++;
    return chain < map->count ? map->chains[chain] : NULL;
}
