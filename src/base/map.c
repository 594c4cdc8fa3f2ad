/* The hash table. Its one invariant: a node is in the chain of its hash. */
#include "base/map.h"

#include <string.h>

void shed_map_init(struct shed_map *map, struct shed_map_node **chains,
                   size_t count)
{
    *map = (struct shed_map){chains, count};
    memset(chains, 0, count * sizeof(struct shed_map_node *));
}

void shed_map_insert(struct shed_map *map, struct shed_map_node *node)
{
    struct shed_map_node **chain =
        &map->chains[shed_map_chain(map, node->key.hash)];

    node->next = *chain;
    *chain = node;
}

void shed_map_remove(struct shed_map *map, struct shed_map_node *node)
{
    struct shed_map_node **at =
        &map->chains[shed_map_chain(map, node->key.hash)];

    while (*at != node)
        at = &(*at)->next;
    *at = node->next;
}

struct shed_map_node *shed_map_next(const struct shed_map *map,
                                    const struct shed_map_node *previous)
{
    size_t chain = 0;

    if (previous != NULL && previous->next != NULL)
        return previous->next;
    if (previous != NULL)
        chain = shed_map_chain(map, previous->key.hash) + 1;
    while (chain < map->count && map->chains[chain] == NULL)
        chain++;
    return chain < map->count ? map->chains[chain] : NULL;
}
