/* Announcements of sentinels. Its invariant: each sentinel is listened to by a
 * connection of its own, because the one that leads a failover announces it in
 * other words, and earlier or later, than the others. */
#include "redis/announcements.h"

#include <stdlib.h>

#include "base/error.h"
#include "redis/pipe.h"
#include "wire/address.h"

/* To one sentinel. */
struct listener {
    struct shed_pipe *primary;
    struct shed_pipe *pipe;
};

struct shed_announcements {
    size_t count;
    struct listener at[SHED_SENTINELS_MAX];
};

/* The sentinel that leads a failover names the new primary as soon as it has
 * promoted it, but announces the switch only when the replicas follow it. */
static void on_open(void *arg)
{
    struct listener *l = arg;
    const struct shed_args args =
        shed_args_of("SUBSCRIBE", "+switch-master", "+promoted-slave", NULL);

    shed_pipe_tell(l->pipe, &args);
}

/* What was announced before it was subscribed is unknown. The primary may be
 * elsewhere: no pause after a failure is of use any more. */
static void on_push(void *arg, struct shed_reply *reply)
{
    const struct listener *l = arg;

    if (!shed_reply_begins(shed_reply_at(reply, 0), "message") &&
        !shed_reply_begins(shed_reply_at(reply, 0), "subscribe"))
        return;
    shed_pipe_check_address(l->primary);
    shed_pipe_hurry(l->primary);
}

void shed_announcements_check(struct shed_announcements *all)
{
    for (size_t i = 0; all != NULL && i < all->count; i++)
        shed_pipe_ping(all->at[i].pipe);
}

/* -------------------------------------------------------- begin and end */

enum shed_code shed_announcements_create(
    struct shed_reactor *reactor, const struct shed_address *address,
    const struct shed_client_options *options, struct shed_pipe *pipe,
    struct shed_announcements **out, struct shed_error *err)
{
    struct shed_announcements *all = calloc(1, sizeof(*all));
    enum shed_code code = SHED_OK;

    if (all == NULL)
        return shed_fail_nomem(err, "a client");
    while (all->count < address->count && code == SHED_OK) {
        struct listener *l = &all->at[all->count];
        /* a lookup that fails says which sentinels do not answer */
        const struct shed_pipe_hooks hooks = {
            .arg = l, .on_open = on_open, .on_push = on_push};
        l->primary = pipe;
        code = shed_pipe_create_guide(reactor, address,
                                      &address->sentinels[all->count++],
                                      options, &hooks, &l->pipe, err);
    }
    if (code == SHED_OK)
        *out = all;
    else
        shed_announcements_close(all);
    return code;
}

void shed_announcements_open(struct shed_announcements *all)
{
    for (size_t i = 0; all != NULL && i < all->count; i++)
        shed_pipe_open(all->at[i].pipe);
}

void shed_announcements_close(struct shed_announcements *all)
{
    if (all == NULL)
        return;
    for (size_t i = 0; i < all->count; i++)
        shed_pipe_close(all->at[i].pipe);
    free(all);
}

void shed_announcements_forget(struct shed_announcements *all)
{
    for (size_t i = 0; all != NULL && i < all->count; i++)
        shed_pipe_forget(all->at[i].pipe);
}
