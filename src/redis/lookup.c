/*
 * A lookup of a host name, or of a primary. Its invariant: its thread touches
 * nothing but the lookup itself, unless the reactor still wants the answer.
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
#include "base/error.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "wire/sentinel.h"

struct shed_lookup {
    /* set at creation */
    struct shed_reactor *reactor;
    struct shed_post post;
    unsigned term;
    /* copies, in text */
    char *host, *port;
    struct shed_sentinels sentinels; /* list NULL: none */
    /* reactor thread only */
    shed_lookup_fn *fn; /* NULL: nobody wants the answer */
    void *arg;
    /* its thread's, and after the post the reactor's */
    struct addrinfo *list;
    struct shed_sentinel_answer primary;
    struct shed_error failure;
    /* atomic */
    atomic_uint refs; /* the thread's and the reactor's */

    struct shed_mutex mu;
    /* under mu */
    bool is_abandoned; /* the reactor may be gone */
    bool is_posted;

    size_t text_size;
    char text[]; /* wiped at the end, for the password in it */
};

static void unref(struct shed_lookup *lookup)
{
    if (atomic_fetch_sub(&lookup->refs, 1) > 1)
        return;
    if (lookup->list != NULL)
        freeaddrinfo(lookup->list);
    shed_mutex_destroy(&lookup->mu);
    explicit_bzero(lookup->text, lookup->text_size);
    free(lookup);
}

static void on_resolved(struct shed_post *post)
{
    struct shed_lookup *lookup =
        shed_container_of(post, struct shed_lookup, post);

    if (lookup->fn != NULL)
        lookup->fn(lookup->arg, lookup->term, lookup->list,
                   lookup->list != NULL ? NULL : lookup->failure.reason);
    unref(lookup);
}

/* Returns: NULL, and lookup->failure says why. */
static struct addrinfo *find_host(struct shed_lookup *lookup, const char *host,
                                  const char *port)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC,
                                   .ai_socktype = SOCK_STREAM};
    struct addrinfo *list = NULL;
    int failure = getaddrinfo(host, port, &hints, &list);

    if (failure == 0)
        return list;
    (void)shed_fail(&lookup->failure, SHED_EREDIS, "%s", gai_strerror(failure));
    return NULL;
}

static struct addrinfo *find_primary(struct shed_lookup *lookup)
{
    if (shed_sentinels_ask(lookup->host, &lookup->sentinels, &lookup->primary,
                           &lookup->failure) != SHED_OK)
        return NULL;
    return find_host(lookup, lookup->primary.host, lookup->primary.port);
}

static void find(struct shed_lookup *lookup)
{
    lookup->list = lookup->sentinels.list != NULL
                       ? find_primary(lookup)
                       : find_host(lookup, lookup->host, lookup->port);
}

/* The post is made under mu, so that the reactor is still there when it has
 * been made. */
static void *resolve(void *arg)
{
    struct shed_lookup *lookup = arg;

    find(lookup);
    shed_mutex_lock(&lookup->mu);
    lookup->is_posted = !lookup->is_abandoned;
    if (lookup->is_posted)
        shed_reactor_post(lookup->reactor, &lookup->post);
    shed_mutex_unlock(&lookup->mu);
    unref(lookup);
    return NULL;
}

enum { TEXTS = 8 };

/* Returns: NULL when out of memory. */
static struct shed_lookup *create(const struct shed_address *address)
{
    const char *const from[TEXTS] = {address->host,
                                     address->port,
                                     address->sentinels,
                                     address->sentinel_user,
                                     address->sentinel_password,
                                     address->tls_ca,
                                     address->tls_cert,
                                     address->tls_key};
    char *to[TEXTS] = {NULL}, *at;
    struct shed_lookup *lookup;
    size_t size = 0;

    for (size_t i = 0; i < TEXTS; i++)
        size += from[i] != NULL ? strlen(from[i]) + 1 : 0;
    lookup = calloc(1, sizeof(*lookup) + size);
    if (lookup == NULL)
        return NULL;
    if (shed_mutex_init(&lookup->mu, SHED_RANK_LOOKUP) != 0) {
        free(lookup);
        return NULL;
    }
    lookup->text_size = size;
    at = lookup->text;
    for (size_t i = 0; i < TEXTS; i++) {
        if (from[i] == NULL)
            continue;
        to[i] = memcpy(at, from[i], strlen(from[i]) + 1);
        at += strlen(at) + 1;
    }
    lookup->host = to[0];
    lookup->port = to[1];
    lookup->sentinels = (struct shed_sentinels){.list = to[2],
                                                .user = to[3],
                                                .password = to[4],
                                                .is_tls = address->is_tls,
                                                .tls_ca = to[5],
                                                .tls_cert = to[6],
                                                .tls_key = to[7]};
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

const char *shed_lookup_primary(const struct shed_lookup *lookup)
{
    return lookup->primary.host[0] != '\0' ? lookup->primary.host : NULL;
}

void shed_lookup_wait(struct shed_address *address)
{
    struct shed_lookup *lookup = create(address);

    if (lookup == NULL) {
        shed_address_set(address, 0, NULL, "out of memory");
        return;
    }
    find(lookup);
    shed_address_set_primary(address, shed_lookup_primary(lookup));
    shed_address_set(address, 0, lookup->list, lookup->failure.reason);
    atomic_init(&lookup->refs, 1);
    unref(lookup);
}

void shed_lookup_abandon(struct shed_lookup *lookup)
{
    bool is_posted;

    if (lookup == NULL)
        return;
    lookup->fn = NULL;
    shed_mutex_lock(&lookup->mu);
    lookup->is_abandoned = true;
    is_posted = lookup->is_posted;
    shed_mutex_unlock(&lookup->mu);
    if (!is_posted) /* else the post will */
        unref(lookup);
}
