/* A call over a pipe, in the memory of whoever makes it: how it enters the
 * gate, and how it ends. Reactor thread only. */
#ifndef SHED_REDIS_CALL_H
#define SHED_REDIS_CALL_H

#include <stdbool.h>
#include <stdint.h>

#include <snowshed/snowshed.h>

#include "base/list.h"
#include "redis/gate.h"

struct shed_args;

/* How a command ended. An error reply is a reply. */
struct shed_call_result {
    struct shed_reply *reply; /* borrowed (shed_reply_take keeps parts of it);
                                 NULL: none came, though if the call's was_tried
                                 is set and is_unsent is not, the command may
                                 have been executed */
    uint64_t came_ms;         /* with a reply */
    bool *is_taken; /* with a reply: set it to keep that, for shed_reply_free */
    /* without a reply */
    enum shed_trouble trouble; /* PASSING: the connection was lost; DOWN: the
                                  server is silent, or cannot be reached;
                                  DENIED */
    const struct shed_error *why;
};

/* Why a call has failed: the error that is its reply, or why none came. */
enum shed_trouble shed_call_failure(const struct shed_call_result *result,
                                    struct shed_error *why);

/* How often one command is sent again, and how much later: about as long as it
 * takes to connect again, or to move a key. */
#define SHED_CALL_REPEATS 16
#define SHED_CALL_PAUSE_MS 20

/* Whether a command that ended like this goes once more, as one of a call that
 * blocks does: the connection was lost, or it was not executed because its
 * server is a replica by now, or its slot is being moved. */
bool shed_call_may_repeat(const struct shed_call_result *result,
                          unsigned repeats);

typedef void shed_pipe_fn(void *arg, const struct shed_call_result *result);

/* For a call whose end does not matter. */
void shed_call_ignore(void *arg, const struct shed_call_result *result);

/* A call under way, in the caller's memory until fn is called, so that a call
 * cannot fail for lack of memory. fn is NULL when no call is under way. */
struct shed_call {
    struct shed_node node; /* in the list of failed calls */
    shed_pipe_fn *fn;
    void *arg;
    struct shed_args *kept;    /* a copy to send by text if the server does not
                                  know the script, or elsewhere; NULL: none */
    enum shed_trouble trouble; /* of a call that has failed */
    bool was_tried;            /* it was queued, and perhaps sent */
    bool is_unsent;            /* but the connection was not set up */
    bool is_repeated;          /* as its arguments */
    unsigned redirects;        /* that a cluster has followed */
    /* of a guarded one */
    struct shed_gate *gate; /* NULL: it is not to leave it */
    struct shed_health_pass pass;
    uint64_t began_ms;
    bool is_refused; /* by the gate */
};

/* Enter the gate. If it refuses, is_refused is set and *refusal says why. */
void shed_call_enter(struct shed_call *call, struct shed_gate *gate,
                     uint64_t now_ms, struct shed_error *refusal);

/* Leave the gate, because the server has sent the call elsewhere. Returns: its
 * arguments, for free(). The call can be made again. */
struct shed_args *shed_call_leave(struct shed_call *call);

/* Leave the gate, and call fn. The call belongs to its owner again before that,
 * so fn may reuse it. */
void shed_call_end(struct shed_call *call,
                   const struct shed_call_result *result);

#endif
