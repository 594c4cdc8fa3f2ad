/* The flight table: a hash table in shards, each with a lock of its own. Its
 * invariant: at most one flight of a key can be joined. */
#include "cache/table.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/* Flights are as many as keys that are being looked for, hits are none: chains
 * stay short with tens of thousands of them. */
#define SHARDS ((size_t)16)
#define CHAINS ((size_t)1024)

struct shard {
    pthread_mutex_t mu;
    /* under mu */
    struct shed_seats *chain[CHAINS];
};

struct shed_table {
    atomic_size_t flights; /* a look without a lock, on the way of each hit */
    struct shard shard[SHARDS];
};

static struct shard *find_shard(struct shed_table *t, const char *key,
                                size_t size, struct shed_seats ***chain)
{
    uint64_t hash = XXH3_64bits(key, size);
    struct shard *shard = &t->shard[hash % SHARDS];

    *chain = &shard->chain[hash / SHARDS % CHAINS];
    return shard;
}

static bool is_of(const struct shed_seats *seats, const char *key, size_t size)
{
    return seats->key_size == size && memcmp(seats->key, key, size) == 0;
}

static struct shed_seats *find_locked(struct shed_seats *seats, const char *key,
                                      size_t size)
{
    while (seats != NULL && (seats->is_detached || !is_of(seats, key, size)))
        seats = seats->next;
    return seats;
}

static size_t shard_number(const struct shed_table *t,
                           const struct shard *shard)
{
    return (size_t)(shard - t->shard);
}

static void sit_locked(struct shed_seats *seats, struct shed_caller *caller,
                       size_t shard)
{
    caller->shard = shard;
    caller->seats = seats;
    caller->number = ++seats->last_number;
    caller->next = NULL;
    *seats->last = caller;
    seats->last = &caller->next;
}

struct shed_table *shed_table_create(void)
{
    struct shed_table *t = calloc(1, sizeof(*t));

    for (size_t i = 0; t != NULL && i < SHARDS; i++) {
        if (pthread_mutex_init(&t->shard[i].mu, NULL) == 0)
            continue;
        while (i-- > 0)
            pthread_mutex_destroy(&t->shard[i].mu);
        free(t);
        return NULL;
    }
    return t;
}

void shed_table_destroy(struct shed_table *t)
{
    if (t == NULL)
        return;
    for (size_t i = 0; i < SHARDS; i++)
        pthread_mutex_destroy(&t->shard[i].mu);
    free(t);
}

bool shed_table_has(struct shed_table *t, const char *key, size_t size)
{
    struct shed_seats **chain;
    struct shard *shard;
    bool has;

    if (atomic_load(&t->flights) == 0)
        return false;
    shard = find_shard(t, key, size, &chain);
    pthread_mutex_lock(&shard->mu);
    has = find_locked(*chain, key, size) != NULL;
    pthread_mutex_unlock(&shard->mu);
    return has;
}

bool shed_table_join(struct shed_table *t, const char *key, size_t size,
                     struct shed_caller *caller)
{
    struct shed_seats **chain, *seats;
    struct shard *shard;

    if (atomic_load(&t->flights) == 0)
        return false;
    shard = find_shard(t, key, size, &chain);
    pthread_mutex_lock(&shard->mu);
    seats = find_locked(*chain, key, size);
    if (seats != NULL)
        sit_locked(seats, caller, shard_number(t, shard));
    pthread_mutex_unlock(&shard->mu);
    return seats != NULL;
}

bool shed_table_insert(struct shed_table *t, struct shed_seats *seats,
                       struct shed_caller *caller)
{
    struct shed_seats **chain, *there;
    struct shard *shard = find_shard(t, seats->key, seats->key_size, &chain);

    seats->last = &seats->first;
    pthread_mutex_lock(&shard->mu);
    there = find_locked(*chain, seats->key, seats->key_size);
    if (there == NULL) {
        seats->next = *chain;
        *chain = there = seats;
        atomic_fetch_add(&t->flights, 1);
    }
    sit_locked(there, caller, shard_number(t, shard));
    pthread_mutex_unlock(&shard->mu);
    return there == seats;
}

bool shed_table_leave(struct shed_table *t, struct shed_caller *caller)
{
    /* by number: the seats may be gone, the shard is not */
    struct shard *shard = &t->shard[caller->shard];
    struct shed_seats *seats;

    pthread_mutex_lock(&shard->mu);
    seats = caller->seats;
    if (seats != NULL) {
        struct shed_caller **at = &seats->first;
        while (*at != caller)
            at = &(*at)->next;
        *at = caller->next;
        if (caller->next == NULL)
            seats->last = at;
    }
    pthread_mutex_unlock(&shard->mu);
    return seats != NULL;
}

uint64_t shed_table_newest(struct shed_table *t, struct shed_seats *seats)
{
    struct shed_seats **chain;
    struct shard *shard = find_shard(t, seats->key, seats->key_size, &chain);
    uint64_t newest;

    pthread_mutex_lock(&shard->mu);
    /* who joined last may have left: then a number that nobody has does no
       harm, because it is at least that of whoever is left */
    newest = seats->first != NULL ? seats->last_number : 0;
    pthread_mutex_unlock(&shard->mu);
    return newest;
}

struct shed_caller *shed_table_take(struct shed_table *t,
                                    struct shed_seats *seats, uint64_t upto)
{
    struct shed_seats **chain;
    struct shard *shard = find_shard(t, seats->key, seats->key_size, &chain);
    struct shed_caller *taken, **at;

    pthread_mutex_lock(&shard->mu);
    taken = seats->first;
    at = &taken;
    while (*at != NULL && (*at)->number <= upto) {
        (*at)->seats = NULL;
        at = &(*at)->next;
    }
    seats->first = *at;
    *at = NULL;
    if (seats->first == NULL)
        seats->last = &seats->first;
    pthread_mutex_unlock(&shard->mu);
    return taken;
}

void shed_table_detach(struct shed_table *t, const char *key, size_t size)
{
    struct shed_seats **chain, *seats;
    struct shard *shard;

    if (atomic_load(&t->flights) == 0)
        return;
    shard = find_shard(t, key, size, &chain);
    pthread_mutex_lock(&shard->mu);
    seats = find_locked(*chain, key, size);
    if (seats != NULL)
        seats->is_detached = true;
    pthread_mutex_unlock(&shard->mu);
}

void shed_table_detach_seats(struct shed_table *t, struct shed_seats *seats)
{
    struct shed_seats **chain;
    struct shard *shard = find_shard(t, seats->key, seats->key_size, &chain);

    pthread_mutex_lock(&shard->mu);
    seats->is_detached = true;
    pthread_mutex_unlock(&shard->mu);
}

bool shed_table_remove(struct shed_table *t, struct shed_seats *seats)
{
    struct shed_seats **at;
    struct shard *shard = find_shard(t, seats->key, seats->key_size, &at);
    bool is_empty;

    pthread_mutex_lock(&shard->mu);
    is_empty = seats->first == NULL;
    if (is_empty) {
        while (*at != seats)
            at = &(*at)->next;
        *at = seats->next;
        atomic_fetch_sub(&t->flights, 1);
    }
    pthread_mutex_unlock(&shard->mu);
    return is_empty;
}

struct shed_seats *shed_table_next_of(struct shed_table *t,
                                      struct shed_seats *previous,
                                      const char *key, size_t size)
{
    struct shed_seats **chain, *seats;
    struct shard *shard = find_shard(t, key, size, &chain);

    pthread_mutex_lock(&shard->mu);
    seats = previous == NULL ? *chain : previous->next;
    while (seats != NULL && !is_of(seats, key, size))
        seats = seats->next;
    pthread_mutex_unlock(&shard->mu);
    return seats;
}

void shed_table_each(struct shed_table *t,
                     void (*visit)(struct shed_seats *seats))
{
    for (size_t i = 0; i < SHARDS * CHAINS; i++) {
        struct shard *shard = &t->shard[i / CHAINS];
        struct shed_seats *seats, *next;

        if (atomic_load(&t->flights) == 0)
            return;
        pthread_mutex_lock(&shard->mu);
        seats = shard->chain[i % CHAINS];
        pthread_mutex_unlock(&shard->mu);
        for (; seats != NULL; seats = next) {
            pthread_mutex_lock(&shard->mu);
            next = seats->next;
            pthread_mutex_unlock(&shard->mu);
            visit(seats);
        }
    }
}
