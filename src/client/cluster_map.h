/*
 * Which node of a Redis Cluster has which slot, as CLUSTER SLOTS has told it.
 * Pure, but that owners are read by any thread.
 *
 * An answer is one node's opinion, and other nodes may know better. So the map
 * says after each answer whether to believe its node. A node that contradicts a
 * newer redirection, or says that the cluster is down, is left for another one.
 *
 * Redis Cluster specification, https://redis.io/docs/reference/cluster-spec/
 */
#ifndef SHED_CLUSTER_MAP_H
#define SHED_CLUSTER_MAP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/hash_tag.h"
#include "wire/reply.h"

/* At a time. */
#define SHED_CLUSTER_NODES_MAX ((size_t)512)

/* How often the map is asked for, without a reason and with one. */
#define SHED_MAP_EVERY_MS 3000
#define SHED_MAP_SOON_MS 250

struct shed_cluster_node {
    bool is_used;
    struct shed_place at;
    size_t slots;     /* that it has */
    uint64_t idle_ms; /* since when it has none; shed_now_ms */
    bool has_gained;  /* slots, since the map's user cleared this */
};

struct shed_cluster_map {
    _Atomic uint16_t owner[SHED_HASH_SLOTS]; /* of the nodes */
    struct shed_cluster_node node[SHED_CLUSTER_NODES_MAX];
    bool is_known;      /* an answer has been taken */
    bool is_doubted;    /* ask another node next time */
    uint64_t asked_ms;  /* when it was asked last */
    uint64_t ask_ms;    /* when to ask next */
    bool is_hurried;    /* there is a reason to ask, since it was asked last */
    bool is_redirected; /* since it was asked last, here: */
    struct shed_redirect redirect;
};

/* What an answer has changed. */
struct shed_cluster_change {
    bool is_valid;     /* false: it is no map, and nothing has changed */
    bool has_moved;    /* a slot has another node */
    bool was_replaced; /* a node that had slots has lost all of them: if it was
                          replaced after a failure, what it was told last may be
                          lost */
};

/* Begin with a map that is all zero: before the first answer all slots belong
 * to this place. */
void shed_cluster_map_init(struct shed_cluster_map *map,
                           const struct shed_place *at, uint64_t now_ms);

/* The node at a place; a new one if none is there. Returns:
 * SHED_CLUSTER_NODES_MAX: there are too many. */
size_t shed_cluster_map_find(struct shed_cluster_map *map,
                             const struct shed_place *at, uint64_t now_ms);

/* Take an answer to CLUSTER SLOTS, from a node whose own host is this; reply
 * NULL: it has not answered. After what is no map another node is to be asked.
 * may_own(arg, i) is asked whether node i can be used; if not, its slots stay
 * where they were. NULL: all can. */
struct shed_cluster_change
shed_cluster_map_take(struct shed_cluster_map *map,
                      const struct shed_reply *reply, const char *host,
                      uint64_t now_ms, bool (*may_own)(void *arg, size_t i),
                      void *arg);

/* The map is being asked for. */
void shed_cluster_map_ask(struct shed_cluster_map *map, uint64_t now_ms);

/* The map may be old: a call was redirected, a node was lost (redirect is
 * NULL), or the cluster says that it is down (is_down). Returns: whether ask_ms
 * is earlier now. */
bool shed_cluster_map_hurry(struct shed_cluster_map *map,
                            const struct shed_redirect *redirect, bool is_down,
                            uint64_t now_ms);

/* Forget a node that has no slots. */
void shed_cluster_map_forget(struct shed_cluster_map *map, size_t i);

#endif
