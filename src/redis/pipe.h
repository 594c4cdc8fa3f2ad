/*
 * A connection of the reactor's: commands go down it without waiting, replies
 * come back in order to the function that was named with each. It connects by
 * itself, and again after a failure, with a growing pause between.
 *
 * Reactor thread only, but for create.
 */
#ifndef SHED_REDIS_PIPE_H
#define SHED_REDIS_PIPE_H

#include <stdbool.h>

#include <snowshed/snowshed.h>

#include "redis/reactor.h"
#include "redis/wire.h"

struct shed_pipe;

/* How a command ended. reply is borrowed (shed_reply_take keeps parts of it);
 * NULL if none came: then trouble is PASSING (the connection was lost, perhaps
 * after the command was executed), DOWN or DENIED (it never went), and err
 * tells more. An error reply is a reply. */
typedef void shed_pipe_fn(void *arg, struct shed_reply *reply,
                          enum shed_trouble trouble,
                          const struct shed_error *err);

/* A call under way; the caller's memory until fn is called, so that a call
 * cannot fail for want of it. fn is NULL when none is under way. */
struct shed_call {
    struct shed_call *next;
    shed_pipe_fn *fn;
    void *arg;
    struct shed_args *kept;    /* what to send if it is a script that the server
                                  does not know; NULL: nothing */
    enum shed_trouble trouble; /* of one that has failed */
};

struct shed_pipe_hooks {
    void *arg;
    /* The connection is set up: add what else it begins with. */
    void (*on_open)(void *arg);
    /* The connection is gone (before its commands hear of it). */
    void (*on_lost)(void *arg, const struct shed_error *why);
    /* None could be made; it is tried again. */
    void (*on_unreached)(void *arg, const struct shed_error *why);
    /* A reply that no command asked for: a push. */
    void (*on_push)(void *arg, struct shed_reply *reply);
};

/* Returns: SHED_OK, SHED_ENOMEM. Connects when opened. */
SHED_MUST_CHECK enum shed_code
shed_pipe_create(struct shed_reactor *reactor, struct shed_address *address,
                 const struct shed_client_options *options,
                 const struct shed_pipe_hooks *hooks, struct shed_pipe **out,
                 struct shed_error *err);

/* Begin to connect, and stay connected. */
void shed_pipe_open(struct shed_pipe *pipe);

/* Send a command; fn is called exactly once, never before the return. call
 * must not be under way. A script that the server has lost is sent once more,
 * by its text, behind what has been sent meanwhile. */
void shed_pipe_call(struct shed_pipe *pipe, struct shed_call *call,
                    const struct shed_args *args, shed_pipe_fn *fn, void *arg);

/* Send one whose replies come as pushes (SUBSCRIBE, PING after it). */
void shed_pipe_tell(struct shed_pipe *pipe, const struct shed_args *args);

/* Drop the connection, as if the server had; it comes back by itself. */
void shed_pipe_drop(struct shed_pipe *pipe, const char *why);

/* The server has turned out not to be a primary: all connections to it are of
 * no use. This one is dropped here, others by what the address calls. */
void shed_pipe_leave(struct shed_pipe *pipe);

/* Drop the connection if it was made before the address was last left. */
void shed_pipe_follow(struct shed_pipe *pipe);

/* Close for good, with no call under way; the loop frees it. NULL is allowed.
 * address is not touched afterwards. */
void shed_pipe_close(struct shed_pipe *pipe);

/* In a forked child: close its copy of the socket, by which the parent would
 * seem to live on after its end. */
void shed_pipe_forget(struct shed_pipe *pipe);

#endif
