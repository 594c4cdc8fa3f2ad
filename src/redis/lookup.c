/*
 * A lookup of a host name. Its invariant: its thread touches nothing but the
 * lookup itself, unless the reactor still wants the answer.
 *
 * A resolver that gets no answer holds its thread for many seconds, and cannot
 * be stopped. So the thread is detached, and shares the lookup with the
 * reactor: the last of the two frees it. A client can be closed meanwhile, and
 * the process may exit.
 */
#include "redis/lookup.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/container.h"
#include "base/thread.h"

struct shed_lookup {
    /* set at creation */
    struct shed_reactor *reactor;
    struct shed_post post;
    unsigned term;
    const char *port; /* in host */
    /* reactor thread only */
    shed_lookup_fn *fn; /* NULL: nobody wants the answer */
    void *arg;
    /* its thread's, and after the post the reactor's */
    struct addrinfo *list;
    int failure;
    /* atomic */
    atomic_uint refs; /* the thread's and the reactor's */

    pthread_mutex_t mu;
    /* under mu */
    bool is_abandoned; /* the reactor may be gone */
    bool is_posted;

    char host[];
};

static void unref(struct shed_lookup *lookup)
{
    if (atomic_fetch_sub(&lookup->refs, 1) > 1)
        return;
    if (lookup->list != NULL)
        freeaddrinfo(lookup->list);
    pthread_mutex_destroy(&lookup->mu);
    free(lookup);
}

static void on_resolved(struct shed_post *post)
{
    struct shed_lookup *lookup =
        shed_container_of(post, struct shed_lookup, post);

    if (lookup->fn != NULL)
        lookup->fn(lookup->arg, lookup->term, lookup->list,
                   lookup->failure != 0 ? gai_strerror(lookup->failure) : NULL);
    unref(lookup);
}

/* The post is made under mu, so that the reactor is still there when it has
 * been made. */
static void *resolve(void *arg)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC,
                                   .ai_socktype = SOCK_STREAM};
    struct shed_lookup *lookup = arg;
    struct addrinfo *list = NULL;

    lookup->failure = getaddrinfo(lookup->host, lookup->port, &hints, &list);
    lookup->list = lookup->failure == 0 ? list : NULL;
    pthread_mutex_lock(&lookup->mu);
    lookup->is_posted = !lookup->is_abandoned;
    if (lookup->is_posted)
        shed_reactor_post(lookup->reactor, &lookup->post);
    pthread_mutex_unlock(&lookup->mu);
    unref(lookup);
    return NULL;
}

/* Returns: NULL when out of memory. */
static struct shed_lookup *create(const struct shed_address *address)
{
    size_t host_size = strlen(address->host) + 1;
    size_t port_size = strlen(address->port) + 1;
    struct shed_lookup *lookup =
        calloc(1, sizeof(*lookup) + host_size + port_size);

    if (lookup == NULL)
        return NULL;
    if (pthread_mutex_init(&lookup->mu, NULL) != 0) {
        free(lookup);
        return NULL;
    }
    memcpy(lookup->host, address->host, host_size);
    lookup->port = memcpy(lookup->host + host_size, address->port, port_size);
    return lookup;
}

struct shed_lookup *shed_lookup_start(struct shed_reactor *reactor,
                                      const struct shed_address *address,
                                      unsigned term, shed_lookup_fn *fn,
                                      void *arg)
{
    struct shed_lookup *lookup = create(address);
    pthread_t thread;

    if (lookup == NULL)
        return NULL;
    lookup->reactor = reactor;
    lookup->post.run = on_resolved;
    lookup->term = term;
    lookup->fn = fn;
    lookup->arg = arg;
    atomic_init(&lookup->refs, 2);
    if (shed_thread_start(&thread, resolve, lookup) == 0) {
        (void)pthread_detach(thread);
        return lookup;
    }
    atomic_store(&lookup->refs, 1);
    unref(lookup);
    return NULL;
}

void shed_lookup_abandon(struct shed_lookup *lookup)
{
    bool is_posted;

    if (lookup == NULL)
        return;
    lookup->fn = NULL;
    pthread_mutex_lock(&lookup->mu);
    lookup->is_abandoned = true;
    is_posted = lookup->is_posted;
    pthread_mutex_unlock(&lookup->mu);
    if (!is_posted) /* else the post will */
        unref(lookup);
}
