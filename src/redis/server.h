/*
 * One server: whether it may be used, and the connections to it. It knows
 * nothing of keys, nor of other servers.
 */
#ifndef SHED_REDIS_SERVER_H
#define SHED_REDIS_SERVER_H

#include <stdint.h>

#include <snowshed/snowshed.h>

#include "redis/session.h"

/* Borrows reactor, holds address, and calls hooks with itself. Its session is
 * to be opened. process and epochs are as of shed_session_create. Any thread.
 * Returns: SHED_OK, SHED_ENOMEM. */
SHED_MUST_CHECK enum shed_code
shed_server_create(struct shed_reactor *reactor, struct shed_address *address,
                   const struct shed_client_options *options,
                   const char *process, _Atomic uint32_t *epochs,
                   const struct shed_server_hooks *hooks, void *owner,
                   struct shed_server **out, struct shed_error *err);

/* Close the session: afterwards it must not be used. Reactor thread. */
void shed_server_close(struct shed_server *server);

/* Destroy it after close, when no call is under way. In a forked child, instead
 * of close and destroy: shed_server_forget. NULL is allowed. */
void shed_server_destroy(struct shed_server *server);
void shed_server_forget(struct shed_server *server);

#endif
