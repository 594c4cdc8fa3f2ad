/*
 * The servers of a Redis Cluster, of which each has the keys of some slots. Its
 * map (cluster_map.h) is asked for over one connection of its own, the scout:
 * to whichever node answers, every few seconds, and at once when a call was
 * redirected or a node was lost.
 */
#ifndef SHED_CLIENT_CLUSTER_H
#define SHED_CLIENT_CLUSTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <snowshed/snowshed.h>

#include "wire/reply.h"
#include "redis/server.h"

struct shed_cluster;

/* Borrows reactor and address, whose seeds are asked first, and to which
 * shed_address_use_tls has given these options. The others are copied.
 * process, epochs and hooks are as of shed_server_create, without on_elsewhere.
 * Nothing is connected yet. Any thread. Returns: SHED_OK; SHED_ENOMEM,
 * SHED_EINVAL (TLS files). */
SHED_MUST_CHECK enum shed_code shed_cluster_create(
    struct shed_reactor *reactor, const struct shed_address *address,
    const struct shed_client_options *options, const char *process,
    _Atomic uint32_t *epochs, const struct shed_server_hooks *hooks,
    struct shed_cluster **out, struct shed_error *err);

/* As of a server. NULL is allowed in destroy and forget. */
void shed_cluster_open(struct shed_cluster *cluster);
void shed_cluster_close(struct shed_cluster *cluster);
void shed_cluster_destroy(struct shed_cluster *cluster);
void shed_cluster_forget(struct shed_cluster *cluster);

/* The server that has the slot of a key, held until it is given back. Any
 * thread. */
struct shed_server *shed_cluster_hold(struct shed_cluster *cluster,
                                      const char *key, size_t size);
void shed_cluster_give_back(struct shed_cluster *cluster,
                            struct shed_server *server);

/* The server that a redirection names, held. Returns: NULL: there is no memory
 * for it, or there are too many. Any thread. */
struct shed_server *shed_cluster_hold_at(struct shed_cluster *cluster,
                                         const struct shed_redirect *redirect);

/* The map is old: a call was redirected; or, redirect being NULL, the cluster
 * says that it is down. Any thread. */
void shed_cluster_hurry(struct shed_cluster *cluster,
                        const struct shed_redirect *redirect);

/* Whether the map is known, or it has turned out that nobody tells it for now.
 * Any thread. */
bool shed_cluster_is_settled(struct shed_cluster *cluster);

/* Wait for that, until deadline_ms (shed_now_ms); or have post run then, which
 * is for the reactor thread, and only before. */
void shed_cluster_wait(struct shed_cluster *cluster, uint64_t deadline_ms);
void shed_cluster_await(struct shed_cluster *cluster, struct shed_post *post);

/* How often a server was found to be another run, or to have been replaced. Any
 * thread. */
unsigned shed_cluster_changes(const struct shed_cluster *cluster);

/* All servers as one: up if all are up, with the worst of their breakers. Any
 * thread. */
void shed_cluster_read(struct shed_cluster *cluster,
                       struct shed_server_status *out);

/* The key that decides which server a command goes to. */
struct shed_bytes shed_cluster_key(const struct shed_args *args);

#endif
