/*
 * Untracked connections. Its invariant: a command goes over one that is not set
 * up only if it is the first, so it waits for none while another could answer.
 */
#include "redis/untracked.h"

#include <stdlib.h>

#include "base/error.h"

#define CONNECTIONS 4
/* Another is made when those before it owe so many more replies. */
#define MANY_OWED 64

struct shed_untracked {
    struct shed_pipe *pipe[CONNECTIONS];
};

enum shed_code shed_untracked_create(struct shed_reactor *reactor,
                                     struct shed_gate *gate,
                                     const struct shed_client_options *options,
                                     const struct shed_pipe_hooks *hooks,
                                     struct shed_untracked **out,
                                     struct shed_error *err)
{
    struct shed_untracked *u = calloc(1, sizeof(*u));
    enum shed_code code = SHED_OK;

    *out = NULL;
    if (u == NULL)
        return shed_fail_nomem(err, "the untracked connections");
    for (size_t i = 0; i < CONNECTIONS && code == SHED_OK; i++)
        code = shed_pipe_create(reactor, gate, SHED_HEALTH_PUSHES, options,
                                hooks, &u->pipe[i], err);
    if (code != SHED_OK)
        shed_untracked_close(u);
    else
        *out = u;
    return code;
}

struct shed_pipe *shed_untracked_choose(struct shed_untracked *u)
{
    struct shed_pipe *best = u->pipe[0];

    for (size_t i = 1; i < CONNECTIONS; i++) {
        struct shed_pipe *other = u->pipe[i];
        if (shed_pipe_owed(best) <= shed_pipe_owed(other) + MANY_OWED)
            continue;
        shed_pipe_open(other);
        if (!shed_pipe_is_open(other))
            break; /* soon; a call on it would wait until it is set up */
        best = other;
    }
    return best;
}

void shed_untracked_follow(struct shed_untracked *u, bool is_reached)
{
    for (size_t i = 0; i < CONNECTIONS; i++)
        shed_pipe_follow(u->pipe[i], is_reached);
}

void shed_untracked_drop(struct shed_untracked *u, const char *why)
{
    for (size_t i = 0; i < CONNECTIONS; i++)
        shed_pipe_drop(u->pipe[i], why);
}

bool shed_untracked_is_idle(const struct shed_untracked *u)
{
    for (size_t i = 0; i < CONNECTIONS; i++)
        if (!shed_pipe_is_idle(u->pipe[i]))
            return false;
    return true;
}

void shed_untracked_forget(struct shed_untracked *u)
{
    for (size_t i = 0; i < CONNECTIONS; i++)
        shed_pipe_forget(u->pipe[i]);
}

void shed_untracked_close(struct shed_untracked *u)
{
    if (u == NULL)
        return;
    for (size_t i = 0; i < CONNECTIONS; i++)
        shed_pipe_close(u->pipe[i]);
    free(u);
}
