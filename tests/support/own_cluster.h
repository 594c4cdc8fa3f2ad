/* A Redis Cluster on ports of 127.0.0.1: primaries that share the slots, and
 * replicas of them. Single nodes are killed, stopped, continued and asked by
 * the functions of server.h. */
#ifndef OWN_CLUSTER_H
#define OWN_CLUSTER_H

#include "support/server.h"

#define CLUSTER_SLOTS 16384
#define CLUSTER_NODES_MAX 8
/* The shortest that does not often take a busy node for a dead one. */
#define OWN_CLUSTER_TIMEOUT_MS 1500

struct own_cluster {
    /* set before the start */
    size_t primaries;         /* these are the first nodes */
    size_t replicas;          /* of each primary; replica r of primary p is node
                                 primaries + p * replicas + r */
    unsigned node_timeout_ms; /* how long a primary is away before it is
                                 replaced; 0: OWN_CLUSTER_TIMEOUT_MS */
    const char *certificates; /* see server.h; its nodes then speak only TLS */
    const char *password;
    bool has_bus_proxies; /* nodes reach each other by way of proxies */

    struct server node[CLUSTER_NODES_MAX];
    size_t count; /* of the nodes */
    unsigned port[CLUSTER_NODES_MAX];
    char port_text[CLUSTER_NODES_MAX][8], timeout_text[16];
    char id[CLUSTER_NODES_MAX][48];
    struct server bus[CLUSTER_NODES_MAX]; /* where a node listens to others */
    struct proxy proxy[CLUSTER_NODES_MAX];
    char bus_text[CLUSTER_NODES_MAX][8];
    char uri[256]; /* with all nodes of the start */
};

/* Start it, and wait until all nodes know each other and take commands, which
 * takes 2 s: Redis wants it (CLUSTER_WRITABLE_DELAY). */
void own_cluster_start(struct own_cluster *c);
void own_cluster_stop(struct own_cluster *c);

/* Wait until all nodes that run say that the cluster is up, and replicas that
 * they follow their primaries. No node may be stopped by SIGSTOP. */
void own_cluster_await(const struct own_cluster *c);

/* The URI that names these nodes, such as "20": the third, then the first. */
void own_cluster_uri(const struct own_cluster *c, const char *seeds, char *uri,
                     size_t size);

/* -------------------------------------------------------- slots and owners */

unsigned own_cluster_slot(const char *key);

/* Wait until a node says of itself that it has a slot. Returns: which. One can
 * be excepted, for example because it is stopped; CLUSTER_NODES_MAX: none. */
size_t own_cluster_owner(const struct own_cluster *c, unsigned slot,
                         size_t except);

/* The n-th of the keys "k0", "k1" ... of which node has the slots. */
void own_cluster_key(const struct own_cluster *c, size_t node, unsigned n,
                     char key[16]);

/* Whether a node calls itself a primary. */
bool own_cluster_is_primary(const struct own_cluster *c, size_t node);

/* Slots that move from one primary to another. redis-cli does the same. */
struct own_move {
    size_t from, to;
    unsigned first, last; /* slots */
};

/* The steps of a move: the slots become MIGRATING and IMPORTING; one key is
 * moved, if there is one (returns whether there was); the slots belong to
 * the other node, which all primaries are told. */
void own_cluster_begin_move(const struct own_cluster *c,
                            const struct own_move *move);
bool own_cluster_move_key(const struct own_cluster *c,
                          const struct own_move *move);
void own_cluster_end_move(const struct own_cluster *c,
                          const struct own_move *move);

/* All of that. */
void own_cluster_move(const struct own_cluster *c, const struct own_move *move);

/* A further primary without slots. Returns: which node it is. */
size_t own_cluster_add(struct own_cluster *c);

/* Let all others forget the last node, which has no slots, and stop it. */
void own_cluster_remove(struct own_cluster *c);

/* --------------------------------------------------------------- failovers */

/* CLUSTER FAILOVER at a replica, how: "" (its primary cooperates), "FORCE" or
 * "TAKEOVER". Returns when it is the primary. */
void own_cluster_fail_over(const struct own_cluster *c, size_t replica,
                           const char *how);

/* Cut a node off from all others, but not from clients, and end that; needs
 * has_bus_proxies. */
void own_cluster_part(struct own_cluster *c, size_t node);
void own_cluster_join(struct own_cluster *c);

/* Wait until a replica has become a primary. */
void own_cluster_await_primary(const struct own_cluster *c, size_t replica);

#endif
