/* A connection to one node of a cluster, over which the map is asked for. The
 * node may be a primary or a replica. Reactor thread. */
#ifndef SHED_CLIENT_SCOUT_H
#define SHED_CLIENT_SCOUT_H

#include <stdbool.h>

#include <snowshed/snowshed.h>

#include "redis/reactor.h"
#include "wire/reply.h"

struct shed_address;
struct shed_scout;

/* An answer to CLUSTER SLOTS, borrowed; NULL: none came, and none will.
 * is_cut_off: the node says that it misses most of the cluster, so that others
 * may know better. It must not destroy the scout. */
typedef void shed_scout_fn(void *arg, const struct shed_reply *reply,
                           bool is_cut_off);

/* Connect to a place, and ask. That it is lost may be told before this returns.
 * Returns: SHED_OK; SHED_ENOMEM. */
SHED_MUST_CHECK enum shed_code
shed_scout_send(struct shed_reactor *reactor,
                const struct shed_address *cluster, const char *host,
                const char *port, const struct shed_client_options *options,
                shed_scout_fn *fn, void *arg, struct shed_scout **out,
                struct shed_error *err);

/* Ask again, after an answer. */
void shed_scout_ask(struct shed_scout *scout);

/* The host to which it was sent. */
const char *shed_scout_host(const struct shed_scout *scout);

/* NULL is allowed. */
void shed_scout_destroy(struct shed_scout *scout);

/* In a forked child: close its copy of the socket. */
void shed_scout_forget(struct shed_scout *scout);

#endif
