/* A lookup of a host name. Its invariant: the loop frees it when the thread of
 * the pool is done with it, and not before, because that thread uses its
 * memory. */
#include "redis/lookup.h"

#include <stdlib.h>
#include <uv.h>

struct shed_lookup {
    uv_getaddrinfo_t req;
    shed_lookup_fn *fn; /* NULL: nobody wants the answer any more */
    void *arg;
    unsigned term;
};

static void on_resolved(uv_getaddrinfo_t *req, int status,
                        struct addrinfo *list)
{
    struct shed_lookup *lookup = req->data;

    if (lookup->fn != NULL)
        lookup->fn(lookup->arg, lookup->term, status == 0 ? list : NULL,
                   status == 0 ? NULL : uv_strerror(status));
    if (status == 0)
        uv_freeaddrinfo(list);
    free(lookup);
}

struct shed_lookup *shed_lookup_start(struct shed_reactor *reactor,
                                      const struct shed_address *address,
                                      unsigned term, shed_lookup_fn *fn,
                                      void *arg)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC,
                                   .ai_socktype = SOCK_STREAM};
    struct shed_lookup *lookup = calloc(1, sizeof(*lookup));

    if (lookup == NULL)
        return NULL;
    lookup->req.data = lookup;
    lookup->fn = fn;
    lookup->arg = arg;
    lookup->term = term;
    if (uv_getaddrinfo(shed_reactor_loop(reactor), &lookup->req, on_resolved,
                       address->host, address->port, &hints) == 0)
        return lookup;
    free(lookup);
    return NULL;
}

void shed_lookup_abandon(struct shed_lookup *lookup)
{
    if (lookup != NULL)
        lookup->fn = NULL;
}
