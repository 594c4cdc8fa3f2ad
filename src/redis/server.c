/* A server. Its invariant: a server that is handed out is complete. */
#include "redis/server.h"

#include <assert.h>
#include <stdlib.h>

#include "base/error.h"
#include "wire/address.h"

enum shed_code shed_server_create(struct shed_reactor *reactor,
                                  struct shed_address *address,
                                  const struct shed_client_options *options,
                                  const char *process, _Atomic uint32_t *epochs,
                                  const struct shed_server_hooks *hooks,
                                  void *owner, struct shed_server **out,
                                  struct shed_error *err)
{
    struct shed_server *server = calloc(1, sizeof(*server));
    enum shed_code code;

    *out = NULL;
    if (server == NULL)
        return shed_fail_nomem(err, "a client");
    server->reactor = reactor;
    server->address = shed_address_ref(address);
    server->hooks = *hooks;
    server->owner = owner;
    code = shed_gate_create(address, options, hooks->on_breaker, server,
                            &server->gate, err);
    if (code == SHED_OK)
        code = shed_links_create(server->gate, options, &server->links, err);
    if (code == SHED_OK)
        code = shed_session_create(server, options, process, epochs,
                                   &server->session, err);
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
    free(server);
}

void shed_server_forget(struct shed_server *server)
{
    if (server == NULL)
        return;
    shed_session_forget(server->session);
    shed_links_forget(server->links);
    server->session = NULL;
    server->links = NULL;
    shed_server_destroy(server);
}
