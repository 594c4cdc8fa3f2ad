/*
 * A lookup of a host name, or of a primary. Its invariant: its thread touches
 * nothing but the lookup and its address, unless the reactor still wants the
 * answer.
 *
 * A resolver that gets no answer holds its thread for many seconds, and cannot
 * be stopped. So the thread is detached, and frees the lookup if that was
 * abandoned by then; else the reactor does, to which it is posted. A client can
 * be closed meanwhile, and the process may exit.
 */
#include "redis/lookup.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/container.h"
#include "base/error.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "wire/sentinel.h"

struct shed_lookup {
    /* set at creation */
    struct shed_reactor *reactor;
    struct shed_address *address; /* a reference */
    struct shed_post post;
    unsigned term;
    /* reactor thread only */
    shed_lookup_fn *fn; /* NULL: nobody wants the answer */
    void *arg;
    /* its thread's, and after the post the reactor's */
    struct addrinfo *found; /* NULL: failure says why */
    struct shed_error failure;

    struct shed_mutex mu;
    bool is_abandoned; /* under mu: the reactor may be gone */
};

static struct addrinfo *find(struct shed_address *a, struct shed_error *err)
{
    struct shed_place primary;

    if (a->sentinels == NULL)
        return shed_address_find(a, NULL, err);
    return shed_sentinels_ask(a, &primary, err) == SHED_OK
               ? shed_address_find(a, &primary, err)
               : NULL;
}

static void destroy(struct shed_lookup *lookup)
{
    if (lookup->found != NULL)
        freeaddrinfo(lookup->found);
    shed_mutex_destroy(&lookup->mu);
    shed_address_unref(lookup->address);
    free(lookup);
}

static void on_resolved(struct shed_post *post)
{
    struct shed_lookup *lookup =
        shed_container_of(post, struct shed_lookup, post);

    shed_mutex_lock(&lookup->mu); /* its thread is done with it */
    shed_mutex_unlock(&lookup->mu);
    if (lookup->fn != NULL)
        lookup->fn(lookup->arg, lookup->term, lookup->found,
                   lookup->failure.reason);
    destroy(lookup);
}

/* The post is made under mu, so that the reactor is still there when it has
 * been made. */
static void *resolve(void *arg)
{
    struct shed_lookup *lookup = arg;
    bool is_abandoned;

    lookup->found = find(lookup->address, &lookup->failure);
    shed_mutex_lock(&lookup->mu);
    is_abandoned = lookup->is_abandoned;
    if (!is_abandoned)
        shed_reactor_post(lookup->reactor, &lookup->post);
    shed_mutex_unlock(&lookup->mu);
    if (is_abandoned)
        destroy(lookup);
    return NULL;
}

struct shed_lookup *shed_lookup_start(struct shed_reactor *reactor,
                                      struct shed_address *address,
                                      unsigned term, shed_lookup_fn *fn,
                                      void *arg)
{
    struct shed_lookup *lookup = calloc(1, sizeof(*lookup));
    pthread_t thread;

    if (lookup == NULL || shed_mutex_init(&lookup->mu, SHED_RANK_LOOKUP) != 0) {
        free(lookup);
        return NULL;
    }
    lookup->reactor = reactor;
    lookup->address = shed_address_ref(address);
    lookup->post.run = on_resolved;
    lookup->term = term;
    lookup->fn = fn;
    lookup->arg = arg;
    if (shed_thread_start(&thread, resolve, lookup) == 0) {
        (void)pthread_detach(thread);
        return lookup;
    }
    destroy(lookup);
    return NULL;
}

void shed_lookup_wait(struct shed_address *address)
{
    struct shed_error why = {SHED_OK, ""};
    struct addrinfo *list = find(address, &why);

    shed_address_set(address, 0, list, why.reason);
    if (list != NULL)
        freeaddrinfo(list);
}

void shed_lookup_abandon(struct shed_lookup *lookup)
{
    if (lookup == NULL)
        return;
    lookup->fn = NULL; /* for a post that is on its way */
    shed_mutex_lock(&lookup->mu);
    lookup->is_abandoned = true;
    shed_mutex_unlock(&lookup->mu);
}
