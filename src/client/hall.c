/* The hall. Its invariant: who has left is not called any more. */
#include "client/hall.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/* Locks of a process that are open at a time are some, or some thousands. */
#define CHAINS 1024

struct shed_hall {
    /* reactor thread only */
    struct shed_watch *chain[CHAINS];
    /* under mu */
    pthread_mutex_t mu;
    struct shed_guest *guests;
};

struct shed_hall *shed_hall_create(void)
{
    struct shed_hall *h = calloc(1, sizeof(*h));

    if (h != NULL && pthread_mutex_init(&h->mu, NULL) != 0) {
        free(h);
        return NULL;
    }
    return h;
}

void shed_hall_destroy(struct shed_hall *h)
{
    if (h == NULL)
        return;
    pthread_mutex_destroy(&h->mu);
    free(h);
}

static struct shed_watch **chain_of(struct shed_hall *h, const char *key,
                                    size_t size)
{
    return &h->chain[XXH3_64bits(key, size) % CHAINS];
}

void shed_hall_watch(struct shed_hall *h, struct shed_watch *w)
{
    struct shed_watch **chain = chain_of(h, w->key, w->key_size);

    w->next = *chain;
    *chain = w;
}

void shed_hall_unwatch(struct shed_hall *h, struct shed_watch *w)
{
    struct shed_watch **at = chain_of(h, w->key, w->key_size);

    while (*at != NULL && *at != w)
        at = &(*at)->next;
    if (*at != NULL)
        *at = w->next;
}

void shed_hall_change(struct shed_hall *h, const char *key, size_t size)
{
    for (struct shed_watch *w = *chain_of(h, key, size), *next; w != NULL;
         w = next) {
        next = w->next;
        if (w->key_size == size && memcmp(w->key, key, size) == 0)
            w->on_change(w);
    }
}

void shed_hall_epoch(struct shed_hall *h)
{
    for (size_t i = 0; i < CHAINS; i++)
        for (struct shed_watch *w = h->chain[i], *next; w != NULL; w = next) {
            next = w->next;
            w->on_epoch(w);
        }
}

void shed_hall_enter(struct shed_hall *h, struct shed_guest *g)
{
    pthread_mutex_lock(&h->mu);
    g->next = h->guests;
    g->link = &h->guests;
    if (g->next != NULL)
        g->next->link = &g->next;
    h->guests = g;
    pthread_mutex_unlock(&h->mu);
}

void shed_hall_leave(struct shed_hall *h, struct shed_guest *g)
{
    pthread_mutex_lock(&h->mu);
    *g->link = g->next;
    if (g->next != NULL)
        g->next->link = g->link;
    pthread_mutex_unlock(&h->mu);
}

static struct shed_guest *first_guest(struct shed_hall *h)
{
    struct shed_guest *g;

    pthread_mutex_lock(&h->mu);
    g = h->guests;
    pthread_mutex_unlock(&h->mu);
    return g;
}

void shed_hall_close_guests(struct shed_hall *h)
{
    for (struct shed_guest *g; (g = first_guest(h)) != NULL;)
        g->close(g);
}
