/* The flight table: a hash table in shards, each with a lock of its own. Its
 * invariants: at most one flight of a key can be joined, and at most one works
 * in the background; no more callers wait than the source allows. */
#include "flight/table.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/error.h"

/* A key has a flight only while it is missing, so chains stay short even with
 * tens of thousands of flights. */
#define SHARDS ((size_t)16)
#define CHAINS ((size_t)256)

struct shard {
    pthread_mutex_t mu;
    /* under mu */
    struct shed_waiters *chain[CHAINS];
};

struct shed_table {
    struct shed_callers *callers; /* set at creation */
    atomic_size_t flights;        /* read without a lock by each hit */
    struct shard shard[SHARDS];
};

static struct shard *find_shard(struct shed_table *t, const char *key,
                                size_t size, struct shed_waiters ***chain)
{
    uint64_t hash = XXH3_64bits(key, size);
    struct shard *shard = &t->shard[hash % SHARDS];

    *chain = &shard->chain[hash / SHARDS % CHAINS];
    return shard;
}

static bool is_of(const struct shed_waiters *waiters, const char *key,
                  size_t size)
{
    return waiters->key_size == size && memcmp(waiters->key, key, size) == 0;
}

static struct shed_waiters *find_locked(struct shed_waiters *waiters,
                                        const char *key, size_t size)
{
    while (waiters != NULL &&
           (waiters->is_detached || !is_of(waiters, key, size)))
        waiters = waiters->next;
    return waiters;
}

static bool is_busy_locked(const struct shed_waiters *waiters, const char *key,
                           size_t size)
{
    for (; waiters != NULL; waiters = waiters->next)
        if ((!waiters->is_detached || waiters->is_background) &&
            is_of(waiters, key, size))
            return true;
    return false;
}

static void add_flight_locked(struct shed_table *t, struct shed_waiters **chain,
                              struct shed_waiters *waiters)
{
    waiters->next = *chain;
    *chain = waiters;
    atomic_fetch_add(&t->flights, 1);
}

static size_t shard_number(const struct shed_table *t,
                           const struct shard *shard)
{
    return (size_t)(shard - t->shard);
}

/* Count one more caller that waits, unless there are as many as may. */
static bool admit(struct shed_callers *callers)
{
    size_t waiting = atomic_load(&callers->waiting);

    do
        if (callers->limit > 0 && waiting >= callers->limit)
            return false;
    while (!atomic_compare_exchange_weak(&callers->waiting, &waiting,
                                         waiting + 1));
    return true;
}

static enum shed_join add_waiter_locked(struct shed_table *t,
                                        struct shed_waiters *waiters,
                                        struct shed_caller *caller,
                                        const struct shard *shard)
{
    assert(!waiters->is_detached);
    if (!admit(t->callers))
        return SHED_JOIN_FULL;
    waiters->count++;
    caller->shard = shard_number(t, shard);
    caller->waiters = waiters;
    caller->load_began_ms = atomic_load(&waiters->load_began_ms);
    caller->number = ++waiters->last_number;
    caller->next = NULL;
    *waiters->last = caller;
    waiters->last = &caller->next;
    return SHED_JOIN_JOINED;
}

struct shed_table *shed_table_create(struct shed_callers *callers)
{
    struct shed_table *t = calloc(1, sizeof(*t));

    if (t != NULL)
        t->callers = callers;
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
    struct shed_waiters **chain;
    struct shard *shard;
    const struct shed_waiters *waiters;
    bool has;

    if (atomic_load(&t->flights) == 0)
        return false;
    shard = find_shard(t, key, size, &chain);
    pthread_mutex_lock(&shard->mu);
    waiters = find_locked(*chain, key, size);
    has = waiters != NULL && !waiters->is_forced;
    pthread_mutex_unlock(&shard->mu);
    return has;
}

enum shed_join shed_table_join(struct shed_table *t, const char *key,
                               size_t size, struct shed_caller *caller)
{
    struct shed_waiters **chain, *waiters;
    enum shed_join join = SHED_JOIN_NONE;
    struct shard *shard;

    if (atomic_load(&t->flights) == 0)
        return SHED_JOIN_NONE;
    shard = find_shard(t, key, size, &chain);
    pthread_mutex_lock(&shard->mu);
    waiters = find_locked(*chain, key, size);
    if (waiters != NULL)
        join = add_waiter_locked(t, waiters, caller, shard);
    pthread_mutex_unlock(&shard->mu);
    return join;
}

enum shed_join shed_table_insert(struct shed_table *t,
                                 struct shed_waiters *waiters,
                                 struct shed_caller *caller)
{
    struct shed_waiters **chain, *there;
    enum shed_join join;
    struct shard *shard =
        find_shard(t, waiters->key, waiters->key_size, &chain);

    waiters->last = &waiters->first;
    atomic_store(&waiters->load_began_ms, UINT64_MAX);
    pthread_mutex_lock(&shard->mu);
    there = find_locked(*chain, waiters->key, waiters->key_size);
    join = add_waiter_locked(t, there != NULL ? there : waiters, caller, shard);
    if (there == NULL && join == SHED_JOIN_JOINED) {
        add_flight_locked(t, chain, waiters);
        join = SHED_JOIN_ADDED;
    }
    pthread_mutex_unlock(&shard->mu);
    return join;
}

enum shed_code shed_table_code(enum shed_join join, struct shed_error *err)
{
    if (join == SHED_JOIN_FULL)
        return shed_fail(err, SHED_EBUSY,
                         "too many callers wait already (see the source's "
                         "callers_limit)");
    return SHED_OK;
}

bool shed_table_is_busy(struct shed_table *t, const char *key, size_t size)
{
    struct shed_waiters **chain;
    struct shard *shard;
    bool is_busy;

    if (atomic_load(&t->flights) == 0)
        return false;
    shard = find_shard(t, key, size, &chain);
    pthread_mutex_lock(&shard->mu);
    is_busy = is_busy_locked(*chain, key, size);
    pthread_mutex_unlock(&shard->mu);
    return is_busy;
}

bool shed_table_insert_background(struct shed_table *t,
                                  struct shed_waiters *waiters)
{
    struct shed_waiters **chain;
    struct shard *shard =
        find_shard(t, waiters->key, waiters->key_size, &chain);
    bool is_busy;

    waiters->last = &waiters->first;
    waiters->is_detached = true;
    waiters->is_background = true;
    pthread_mutex_lock(&shard->mu);
    is_busy = is_busy_locked(*chain, waiters->key, waiters->key_size);
    if (!is_busy)
        add_flight_locked(t, chain, waiters);
    pthread_mutex_unlock(&shard->mu);
    return !is_busy;
}

bool shed_table_leave(struct shed_table *t, struct shed_caller *caller,
                      enum shed_leave how)
{
    /* by number, because the waiters may have been freed */
    struct shard *shard = &t->shard[caller->shard];
    struct shed_waiters *waiters;

    pthread_mutex_lock(&shard->mu);
    waiters = caller->waiters;
    if (waiters != NULL) {
        struct shed_caller **at = &waiters->first;
        while (*at != caller)
            at = &(*at)->next;
        *at = caller->next;
        if (caller->next == NULL)
            waiters->last = at;
        waiters->count--;
        atomic_fetch_sub(&t->callers->waiting, 1);
        caller->awaited = atomic_load(&waiters->awaited);
        caller->waiters = NULL;
        if (how == SHED_LEAVE_GOES_ON && caller->number > waiters->left_number)
            waiters->left_number = caller->number;
    }
    pthread_mutex_unlock(&shard->mu);
    return waiters != NULL;
}

void shed_table_forget(struct shed_table *t, struct shed_waiters *waiters)
{
    struct shed_waiters **chain;
    struct shard *shard =
        find_shard(t, waiters->key, waiters->key_size, &chain);

    pthread_mutex_lock(&shard->mu);
    waiters->left_number = 0;
    pthread_mutex_unlock(&shard->mu);
}

uint64_t shed_table_newest(struct shed_table *t, struct shed_waiters *waiters)
{
    struct shed_waiters **chain;
    struct shard *shard =
        find_shard(t, waiters->key, waiters->key_size, &chain);
    uint64_t newest;

    pthread_mutex_lock(&shard->mu);
    /* if the newest caller has left, its number is still higher than those of
     * all who remain */
    newest =
        waiters->first != NULL ? waiters->last_number : waiters->left_number;
    pthread_mutex_unlock(&shard->mu);
    return newest;
}

/* Take out the callers up to a number: a list linked by next. */
static struct shed_caller *take(struct shed_table *t,
                                struct shed_waiters *waiters, uint64_t upto)
{
    struct shed_waiters **chain;
    struct shard *shard =
        find_shard(t, waiters->key, waiters->key_size, &chain);
    struct shed_caller *taken, **at;
    size_t count = 0;

    pthread_mutex_lock(&shard->mu);
    taken = waiters->first;
    at = &taken;
    while (*at != NULL && (*at)->number <= upto) {
        (*at)->waiters = NULL;
        at = &(*at)->next;
        count++;
    }
    waiters->count -= count;
    atomic_fetch_sub(&t->callers->waiting, count);
    waiters->first = *at;
    *at = NULL;
    if (waiters->left_number <= upto)
        waiters->left_number = 0;
    if (waiters->first == NULL)
        waiters->last = &waiters->first;
    pthread_mutex_unlock(&shard->mu);
    return taken;
}

static void give(struct shed_caller *caller, struct shed_value *value,
                 const struct shed_error *error)
{
    if (value != NULL) {
        caller->code = SHED_OK;
        caller->value = shed_value_ref(value);
    } else {
        caller->code = error->code;
        caller->error = *error;
    }
    shed_latch_count_down(caller->latch, 1); /* caller is gone now */
}

bool shed_table_answer(struct shed_table *t, struct shed_waiters *waiters,
                       uint64_t upto, struct shed_value *value,
                       const struct shed_error *error)
{
    struct shed_caller *taken = take(t, waiters, upto), *next;
    bool is_anybody = taken != NULL;

    for (; taken != NULL; taken = next) {
        next = taken->next;
        give(taken, value, error);
    }
    return is_anybody;
}

void shed_table_detach(struct shed_table *t, const char *key, size_t size)
{
    struct shed_waiters **chain, *waiters;
    struct shard *shard;

    if (atomic_load(&t->flights) == 0)
        return;
    shard = find_shard(t, key, size, &chain);
    pthread_mutex_lock(&shard->mu);
    waiters = find_locked(*chain, key, size);
    if (waiters != NULL)
        waiters->is_detached = true;
    pthread_mutex_unlock(&shard->mu);
}

void shed_table_detach_waiters(struct shed_table *t,
                               struct shed_waiters *waiters)
{
    struct shed_waiters **chain;
    struct shard *shard =
        find_shard(t, waiters->key, waiters->key_size, &chain);

    pthread_mutex_lock(&shard->mu);
    waiters->is_detached = true;
    waiters->is_background = false;
    pthread_mutex_unlock(&shard->mu);
}

bool shed_table_remove(struct shed_table *t, struct shed_waiters *waiters)
{
    struct shed_waiters **at;
    struct shard *shard = find_shard(t, waiters->key, waiters->key_size, &at);
    bool is_empty;

    pthread_mutex_lock(&shard->mu);
    is_empty = waiters->first == NULL && waiters->left_number == 0;
    if (is_empty) {
        while (*at != waiters)
            at = &(*at)->next;
        *at = waiters->next;
        atomic_fetch_sub(&t->flights, 1);
    }
    pthread_mutex_unlock(&shard->mu);
    return is_empty;
}

struct shed_waiters *shed_table_next_of(struct shed_table *t,
                                        struct shed_waiters *previous,
                                        const char *key, size_t size)
{
    struct shed_waiters **chain, *waiters;
    struct shard *shard = find_shard(t, key, size, &chain);

    pthread_mutex_lock(&shard->mu);
    waiters = previous == NULL ? *chain : previous->next;
    while (waiters != NULL && !is_of(waiters, key, size))
        waiters = waiters->next;
    pthread_mutex_unlock(&shard->mu);
    return waiters;
}

void shed_table_each(struct shed_table *t,
                     void (*visit)(struct shed_waiters *waiters))
{
    for (size_t i = 0; i < SHARDS * CHAINS; i++) {
        struct shard *shard = &t->shard[i / CHAINS];
        struct shed_waiters *waiters, *next;

        if (atomic_load(&t->flights) == 0)
            return;
        pthread_mutex_lock(&shard->mu);
        waiters = shard->chain[i % CHAINS];
        pthread_mutex_unlock(&shard->mu);
        for (; waiters != NULL; waiters = next) {
            pthread_mutex_lock(&shard->mu);
            next = waiters->next;
            pthread_mutex_unlock(&shard->mu);
            visit(waiters);
        }
    }
}
