/*
 * A connection of the reactor: commands are sent without waiting, and each
 * reply is passed to the function that was given with its command. It connects
 * by itself, and again after a failure, when the gate lets it.
 *
 * Reactor thread only, except create. A pipe that is not needed is NULL: to
 * open, follow, close or forget it does nothing, and it is idle.
 */
#ifndef SHED_REDIS_PIPE_H
#define SHED_REDIS_PIPE_H

#include <stdbool.h>

#include <snowshed/snowshed.h>

#include "redis/call.h"
#include "redis/reactor.h"
#include "wire/wire.h"

struct shed_pipe;

struct shed_pipe_hooks {
    void *arg;
    /* The connection is set up: send the session's first commands. May be NULL,
     * as the next one. */
    void (*on_open)(void *arg);
    /* The connection is gone, or, unless it was_open, could not be made; it
     * will be tried again. Called before its commands hear of it. */
    void (*on_lost)(void *arg, bool was_open, const struct shed_error *why);
    /* A reply that answers no command: a push. NULL: there are none, so the
     * connection is dropped. */
    void (*on_push)(void *arg, struct shed_reply *reply);
    /* A script's call, or one that is followed, was not executed, because its
     * key is elsewhere (shed_reply_is_elsewhere). Returns: whether it was taken
     * over with shed_call_leave; else it ends with the reply. NULL: it does. */
    bool (*on_elsewhere)(void *arg, struct shed_call *call,
                         const struct shed_reply *reply);
};

/* user is SHED_HEALTH_COMMANDS or SHED_HEALTH_PUSHES. Returns: SHED_OK,
 * SHED_ENOMEM. Connects when opened. */
SHED_MUST_CHECK enum shed_code
shed_pipe_create(struct shed_reactor *reactor, struct shed_gate *gate,
                 enum shed_health_user user,
                 const struct shed_client_options *options,
                 const struct shed_pipe_hooks *hooks, struct shed_pipe **out,
                 struct shed_error *err);

/* Create a pipe to a server that is only asked where others are (is_guide). It
 * is at one of the places that base names, and has a gate of its own. Returns:
 * as shed_pipe_create. */
SHED_MUST_CHECK enum shed_code shed_pipe_create_guide(
    struct shed_reactor *reactor, const struct shed_address *base,
    const struct shed_place *at, const struct shed_client_options *options,
    const struct shed_pipe_hooks *hooks, struct shed_pipe **out,
    struct shed_error *err);

/* Ask the sentinels, if there are any, whether the primary is elsewhere by now,
 * and follow it: one that is cut off from them does not say so itself. If they
 * are being asked, they are asked once more after that. */
void shed_pipe_check_address(struct shed_pipe *pipe);

/* Begin to connect, and stay connected. */
void shed_pipe_open(struct shed_pipe *pipe);

/* Send a command; fn is called exactly once, never before this returns. call
 * must not be under way. If the server does not know a script it is sent again
 * with its text, behind the commands sent meanwhile. One that the gate
 * refuses is DOWN. */
void shed_pipe_call(struct shed_pipe *pipe, struct shed_call *call,
                    const struct shed_args *args, shed_pipe_fn *fn, void *arg);

/* Whether it is connected and set up. */
bool shed_pipe_is_open(const struct shed_pipe *pipe);

/* How many replies Redis owes. */
size_t shed_pipe_owed(const struct shed_pipe *pipe);

/* Whether no call is under way. */
bool shed_pipe_is_idle(const struct shed_pipe *pipe);

/* Send a command whose replies come as pushes (SUBSCRIBE, and PING after
 * it). */
void shed_pipe_tell(struct shed_pipe *pipe, const struct shed_args *args);

/* Every few seconds, on a connection that is subscribed: send PING. If nothing
 * has come since the last one, the connection has died silently, and is
 * dropped. */
void shed_pipe_ping(struct shed_pipe *pipe);

/* Drop the connection, as if the server had closed it; a new one follows. */
void shed_pipe_drop(struct shed_pipe *pipe, const char *why);

/* Leave the server, because it is not a primary. This connection is dropped
 * here, the others when the gate tells. */
void shed_pipe_leave(struct shed_pipe *pipe);

/* Drop the connection if it was made before the server was last left, or, that
 * for commands, if another one has found that the server is silent; then try
 * whether a new one is answered. End the pause after a failure if another
 * connection has reached the server. */
void shed_pipe_follow(struct shed_pipe *pipe, bool is_reached);

/* Connect now, if it pauses after a failure. */
void shed_pipe_hurry(struct shed_pipe *pipe);

/* Close for good; no call may be under way. The loop frees the pipe. gate is
 * not used afterwards. */
void shed_pipe_close(struct shed_pipe *pipe);

/* In a forked child: close its copy of the socket, because an open copy would
 * make the parent seem alive after its end. */
void shed_pipe_forget(struct shed_pipe *pipe);

#endif
