/* A call over a pipe. Its invariant: a call that has entered the gate leaves it
 * once, before its owner hears how it ended. */
#include "redis/call.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/error.h"

void shed_call_enter(struct shed_call *call, struct shed_gate *gate,
                     uint64_t now_ms, struct shed_error *refusal)
{
    call->began_ms = now_ms;
    call->is_refused = !shed_gate_enter(gate, &call->pass, refusal);
    call->gate = call->is_refused ? NULL : gate;
}

void shed_call_ignore(void *arg, const struct shed_call_result *result)
{
    (void)arg;
    (void)result;
}

enum shed_trouble shed_call_failure(const struct shed_call_result *result,
                                    struct shed_error *why)
{
    const char *text = shed_reply_error(result->reply);

    if (result->reply == NULL) {
        *why = *result->why;
        return result->trouble;
    }
    (void)shed_fail(why, shed_reply_code(result->reply), "Redis: %s",
                    text != NULL ? text : "a reply of an unknown form");
    return shed_reply_trouble(result->reply);
}

bool shed_call_may_repeat(const struct shed_call_result *result,
                          unsigned repeats)
{
    const struct shed_reply *reply = result->reply;

    if (repeats >= SHED_CALL_REPEATS)
        return false;
    if (reply == NULL)
        return result->trouble == SHED_TROUBLE_PASSING &&
               result->why->code == SHED_EREDIS;
    return shed_reply_is_no_primary(reply) ||
           (shed_reply_is_elsewhere(reply) &&
            !shed_reply_begins(reply, "CLUSTERDOWN"));
}

static void leave_gate(const struct shed_call *call,
                       const struct shed_call_result *result)
{
    const struct shed_reply *reply = result->reply;
    bool goes_on = call->is_repeated && reply == NULL &&
                   result->trouble == SHED_TROUBLE_PASSING;
    const struct shed_health_end end = {
        .was_tried = call->was_tried && !goes_on,
        .began_ms = call->began_ms,
        .ended_ms = reply != NULL ? result->came_ms : shed_now_ms(),
        .why = reply != NULL ? NULL : result->why,
        .refusal = shed_reply_is_unfit(reply) ? reply : NULL};

    shed_gate_leave(call->gate, &call->pass, &end);
}

struct shed_args *shed_call_leave(struct shed_call *call)
{
    const struct shed_health_end end = {.was_tried = true,
                                        .began_ms = call->began_ms,
                                        .ended_ms = shed_now_ms()};
    struct shed_args *kept = call->kept;

    if (call->gate != NULL)
        shed_gate_leave(call->gate, &call->pass, &end);
    call->kept = NULL;
    return kept;
}

void shed_call_end(struct shed_call *call,
                   const struct shed_call_result *result)
{
    shed_pipe_fn *fn = call->fn;

    if (call->gate != NULL)
        leave_gate(call, result);
    free(call->kept);
    call->kept = NULL;
    call->fn = NULL;
    fn(call->arg, result);
}
