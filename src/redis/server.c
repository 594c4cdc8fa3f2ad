/* A server. Its invariant: a server that is handed out is complete. */
#include "redis/server.h"

#include <assert.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/error.h"
#include "wire/address.h"

static enum shed_standing standing_of(const struct shed_error *why)
{
    if (why == NULL)
        return SHED_STANDING_UP;
    return why->code == SHED_EDENIED ? SHED_STANDING_REFUSED
                                     : SHED_STANDING_DOWN;
}

static void on_standing(void *arg, const struct shed_error *why)
{
    struct shed_server *server = arg;
    enum shed_standing standing = standing_of(why);
    uint64_t now_us = shed_now_us(), before_us;
    bool was_up, has_changed;

    assert(shed_reactor_is_current(server->reactor));
    shed_mutex_lock(&server->mu);
    was_up = server->standing == SHED_STANDING_UP;
    has_changed = server->standing != standing;
    before_us = now_us - server->standing_since_us;
    if (was_up != (why == NULL))
        server->standing_since_us = now_us;
    server->standing = standing;
    if (why != NULL)
        server->last = *why;
    shed_mutex_unlock(&server->mu);
    if (why != NULL && shed_gate_is_silent(server->gate))
        shed_links_cut(server->links);
    if (has_changed)
        server->on_standing(server, why, was_up || why == NULL ? before_us : 0);
}

static void on_tick(void *arg)
{
    const struct shed_server *server = arg;

    shed_links_close_idle(server->links);
}

void shed_server_read(struct shed_server *server,
                      struct shed_server_status *out)
{
    shed_mutex_lock(&server->mu);
    *out = (struct shed_server_status){.is_up =
                                           server->standing == SHED_STANDING_UP,
                                       .since_us = server->standing_since_us,
                                       .last = server->last};
    shed_mutex_unlock(&server->mu);
    shed_gate_read(server->gate, &out->gate);
}

enum shed_code shed_server_create(struct shed_reactor *reactor,
                                  struct shed_address *address,
                                  const struct shed_client_options *options,
                                  const char *process, _Atomic uint32_t *epochs,
                                  const struct shed_server_hooks *hooks,
                                  void *owner, struct shed_server **out,
                                  struct shed_error *err)
{
    struct shed_server *server = calloc(1, sizeof(*server));
    const struct shed_session_hooks on_session = {
        server,  hooks->on_change, hooks->on_epoch,    on_standing,
        on_tick, hooks->on_lack,   hooks->on_elsewhere};
    enum shed_code code;

    *out = NULL;
    if (server == NULL || shed_mutex_init(&server->mu, SHED_RANK_SERVER) != 0) {
        free(server);
        return shed_fail_nomem(err, "a client");
    }
    server->reactor = reactor;
    server->address = shed_address_ref(address);
    server->on_standing = hooks->on_standing;
    server->owner = owner;
    server->standing_since_us = shed_now_us();
    code = shed_gate_create(address, options, hooks->on_breaker, server,
                            &server->gate, err);
    if (code == SHED_OK)
        code = shed_links_create(server->gate, options, &server->links, err);
    if (code == SHED_OK)
        code = shed_session_create(reactor, server->gate, options, process,
                                   epochs, &on_session, &server->session, err);
    if (code == SHED_OK)
        *out = server;
    else
        shed_server_destroy(server);
    return code;
}

void shed_server_close(struct shed_server *server)
{
    shed_session_close(server->session);
    server->session = NULL;
}

void shed_server_destroy(struct shed_server *server)
{
    if (server == NULL)
        return;
    assert(server->session == NULL);
    shed_links_destroy(server->links);
    shed_gate_destroy(server->gate);
    shed_address_unref(server->address);
    shed_mutex_destroy(&server->mu);
    free(server);
}

void shed_server_forget(struct shed_server *server)
{
    if (server == NULL)
        return;
    shed_session_forget(server->session);
    server->session = NULL;
    shed_server_destroy(server);
}
