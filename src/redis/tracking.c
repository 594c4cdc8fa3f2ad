/* See tracking.h. */
#include "redis/tracking.h"

#include <string.h>

static void on_on(void *arg, const struct shed_call_result *result)
{
    struct shed_tracking *t = arg;

    if (strcmp(t->asked, t->listener) != 0)
        shed_tracking_ask(t);
    else
        t->on_answer(t->arg, result->reply);
}

void shed_tracking_ask(struct shed_tracking *t)
{
    const struct shed_args off =
        shed_args_of("CLIENT", "TRACKING", "OFF", NULL);
    struct shed_args on;

    /* the answer of on shows that it is out of date; off is alone under way if
     * there was no memory for on */
    if (t->on.fn != NULL || t->off.fn != NULL)
        return;
    memcpy(t->asked, t->listener, sizeof(t->asked));
    on = shed_args_of("CLIENT", "TRACKING", "ON", "REDIRECT", t->asked, NULL);
    if (t->prefix != NULL) {
        /* a connection cannot name a prefix twice; what counts is whether
           tracking can be switched on */
        shed_pipe_call(t->pipe, &t->off, &off, shed_call_ignore, NULL);
        shed_args_add_text(&on, "BCAST");
        shed_args_add_text(&on, "PREFIX");
        shed_args_add_text(&on, t->prefix);
    }
    shed_pipe_call(t->pipe, &t->on, &on, on_on, t);
}
