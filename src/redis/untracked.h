/*
 * The session's connections for commands that read what need not be announced:
 * tracking a key costs Redis more than a GET. The first is made by the first of
 * them, and further ones while hundreds are under way, because Redis works for
 * one while this process reads what came by another.
 *
 * Reactor thread only, except create.
 */
#ifndef SHED_REDIS_UNTRACKED_H
#define SHED_REDIS_UNTRACKED_H

#include <stdbool.h>

#include "redis/pipe.h"

struct shed_untracked;

/* Nothing is connected yet. hooks are those of each connection. Returns:
 * SHED_OK, SHED_ENOMEM. */
SHED_MUST_CHECK enum shed_code
shed_untracked_create(struct shed_reactor *reactor, struct shed_gate *gate,
                      const struct shed_client_options *options,
                      const struct shed_pipe_hooks *hooks,
                      struct shed_untracked **out, struct shed_error *err);

/* The connection for the next command, to be opened before it. */
struct shed_pipe *shed_untracked_choose(struct shed_untracked *untracked);

/* Each of these does what the function of a pipe does, to all connections. */
void shed_untracked_follow(struct shed_untracked *untracked, bool is_reached);
void shed_untracked_drop(struct shed_untracked *untracked, const char *why);
bool shed_untracked_is_idle(const struct shed_untracked *untracked);
void shed_untracked_forget(struct shed_untracked *untracked);

/* NULL is allowed. */
void shed_untracked_close(struct shed_untracked *untracked);

#endif
