/* The flight table: a hash table in shards, each with a lock of its own. Its
 * invariants: at most one flight of a key can be joined, and at most one works
 * in the background; no more callers wait than the source allows. */
#include "flight/table.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/container.h"
#include "base/error.h"
#include "base/mutex.h"

/* A key has a flight only while it is missing, so chains stay short even with
 * tens of thousands of flights. */
#define SHARDS ((size_t)16)
#define CHAINS ((size_t)256)

struct shard {
    struct shed_mutex mu;
    /* under mu */
    struct shed_map flights;
    struct shed_map_node *chains[CHAINS];
};

struct shed_table {
    struct shed_callers *callers; /* set at creation */
    atomic_size_t flights;        /* read without a lock by each hit */
    struct shard shard[SHARDS];
};

/* The shard of a key, locked. */
static struct shard *lock(struct shed_table *t, struct shed_map_key key)
{
    struct shard *shard = &t->shard[key.hash % SHARDS];

    shed_mutex_lock(&shard->mu);
    return shard;
}

/* node may be NULL. */
static struct shed_waiters *waiters_of(struct shed_map_node *node)
{
    return node != NULL ? shed_container_of(node, struct shed_waiters, node)
                        : NULL;
}

static struct shed_caller *caller_of(struct shed_node *node)
{
    return shed_container_of(node, struct shed_caller, node);
}

/* A flight of the key that has this role, or is joinable. */
static struct shed_waiters *find_locked(const struct shard *shard,
                                        struct shed_map_key key,
                                        enum shed_flight_role least)
{
    struct shed_map_node *node = shed_map_find(&shard->flights, key);

    while (node != NULL && waiters_of(node)->role < least)
        node = shed_map_find_next(node);
    return waiters_of(node);
}

static void add_flight_locked(struct shed_table *t, struct shard *shard,
                              struct shed_waiters *waiters)
{
    shed_map_insert(&shard->flights, &waiters->node);
    atomic_fetch_add(&t->flights, 1);
}

/* A caller without a thread that waits has a bound of its own (async_limit). */
static bool is_counted(const struct shed_caller *caller)
{
    return caller->has_thread;
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

static enum shed_join add_caller_locked(struct shed_table *t,
                                        const struct shard *shard,
                                        struct shed_waiters *waiters,
                                        struct shed_caller *caller)
{
    assert(waiters->role == SHED_FLIGHT_JOINABLE);
    if (is_counted(caller) && !admit(t->callers))
        return SHED_JOIN_FULL;
    caller->shard = (unsigned short)(shard - t->shard);
    caller->waiters = waiters;
    caller->load_began_ms = atomic_load(&waiters->load_began_ms);
    caller->number = ++waiters->last_number;
    shed_list_append(&waiters->callers, &caller->node);
    return SHED_JOIN_JOINED;
}

static void remove_caller_locked(struct shed_table *t,
                                 struct shed_caller *caller)
{
    shed_list_remove(&caller->waiters->callers, &caller->node);
    caller->waiters = NULL;
    if (is_counted(caller))
        atomic_fetch_sub(&t->callers->waiting, 1);
}

struct shed_table *shed_table_create(struct shed_callers *callers)
{
    struct shed_table *t = calloc(1, sizeof(*t));

    if (t != NULL)
        t->callers = callers;
    for (size_t i = 0; t != NULL && i < SHARDS; i++) {
        struct shard *shard = &t->shard[i];
        shed_map_init(&shard->flights, shard->chains, CHAINS);
        if (shed_mutex_init(&shard->mu, SHED_RANK_TABLE) == 0)
            continue;
        while (i-- > 0)
            shed_mutex_destroy(&t->shard[i].mu);
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
        shed_mutex_destroy(&t->shard[i].mu);
    free(t);
}

bool shed_table_has(struct shed_table *t, const char *key, size_t size,
                    enum shed_flight_role least)
{
    const struct shed_waiters *waiters;
    struct shed_map_key wanted;
    struct shard *shard;
    bool has;

    if (atomic_load(&t->flights) == 0)
        return false;
    wanted = shed_map_key(key, size);
    shard = lock(t, wanted);
    waiters = find_locked(shard, wanted, least);
    has = waiters != NULL &&
          !(least == SHED_FLIGHT_JOINABLE && waiters->is_forced);
    shed_mutex_unlock(&shard->mu);
    return has;
}

enum shed_join shed_table_join(struct shed_table *t, const char *key,
                               size_t size, struct shed_waiters *waiters,
                               struct shed_caller *caller)
{
    enum shed_join join = SHED_JOIN_NONE;
    struct shed_map_key wanted;
    struct shed_waiters *there;
    struct shard *shard;

    if (waiters == NULL && atomic_load(&t->flights) == 0)
        return SHED_JOIN_NONE;
    wanted = shed_map_key(key, size);
    shard = lock(t, wanted);
    there = find_locked(shard, wanted, SHED_FLIGHT_JOINABLE);
    if (there != NULL) {
        join = add_caller_locked(t, shard, there, caller);
    } else if (waiters != NULL) {
        join = add_caller_locked(t, shard, waiters, caller);
        if (join == SHED_JOIN_JOINED) {
            add_flight_locked(t, shard, waiters);
            join = SHED_JOIN_ADDED;
        }
    }
    shed_mutex_unlock(&shard->mu);
    return join;
}

bool shed_table_insert_background(struct shed_table *t,
                                  struct shed_waiters *waiters)
{
    struct shard *shard = lock(t, waiters->node.key);
    bool is_busy =
        find_locked(shard, waiters->node.key, SHED_FLIGHT_BACKGROUND) != NULL;

    waiters->role = SHED_FLIGHT_BACKGROUND;
    if (!is_busy)
        add_flight_locked(t, shard, waiters);
    shed_mutex_unlock(&shard->mu);
    return !is_busy;
}

bool shed_table_leave(struct shed_table *t, struct shed_caller *caller,
                      enum shed_leave how)
{
    /* by number, because the waiters may have been freed */
    struct shard *shard = &t->shard[caller->shard];
    struct shed_waiters *waiters;

    shed_mutex_lock(&shard->mu);
    waiters = caller->waiters;
    if (waiters != NULL) {
        remove_caller_locked(t, caller);
        caller->awaited = (unsigned char)atomic_load(&waiters->awaited);
        if (how == SHED_LEAVE_GOES_ON && caller->number > waiters->left_number)
            waiters->left_number = caller->number;
    }
    shed_mutex_unlock(&shard->mu);
    return waiters != NULL;
}

uint64_t shed_table_newest(struct shed_table *t, struct shed_waiters *waiters,
                           bool forgets)
{
    struct shard *shard = lock(t, waiters->node.key);
    uint64_t newest;

    if (forgets)
        waiters->left_number = 0;
    /* if the newest caller has left, its number is still higher than those of
     * all who remain */
    newest = waiters->callers.first != NULL ? waiters->last_number
                                            : waiters->left_number;
    shed_mutex_unlock(&shard->mu);
    return newest;
}

/* Take out the callers up to a number. */
static struct shed_list take(struct shed_table *t, struct shed_waiters *waiters,
                             uint64_t upto)
{
    struct shard *shard = lock(t, waiters->node.key);
    struct shed_list taken = {NULL, NULL};
    struct shed_node *node = waiters->callers.first, *next;

    for (; node != NULL && caller_of(node)->number <= upto; node = next) {
        next = node->after;
        remove_caller_locked(t, caller_of(node));
        shed_list_append(&taken, node);
    }
    if (waiters->left_number <= upto)
        waiters->left_number = 0;
    shed_mutex_unlock(&shard->mu);
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
        caller->why = shed_error_keep(error);
    }
    shed_caller_tell(caller); /* it is gone now */
}

bool shed_table_answer(struct shed_table *t, struct shed_waiters *waiters,
                       uint64_t upto, struct shed_value *value,
                       const struct shed_error *error)
{
    struct shed_list taken = take(t, waiters, upto);
    bool is_anybody = taken.first != NULL;
    struct shed_node *node;

    while ((node = shed_list_pop(&taken)) != NULL)
        give(caller_of(node), value, error);
    return is_anybody;
}

void shed_table_detach(struct shed_table *t, const char *key, size_t size)
{
    struct shed_waiters *waiters;
    struct shed_map_key wanted;
    struct shard *shard;

    if (atomic_load(&t->flights) == 0)
        return;
    wanted = shed_map_key(key, size);
    shard = lock(t, wanted);
    waiters = find_locked(shard, wanted, SHED_FLIGHT_JOINABLE);
    if (waiters != NULL)
        waiters->role = SHED_FLIGHT_DETACHED;
    shed_mutex_unlock(&shard->mu);
}

void shed_table_detach_waiters(struct shed_table *t,
                               struct shed_waiters *waiters)
{
    struct shard *shard = lock(t, waiters->node.key);

    waiters->role = SHED_FLIGHT_DETACHED;
    shed_mutex_unlock(&shard->mu);
}

bool shed_table_remove(struct shed_table *t, struct shed_waiters *waiters)
{
    struct shard *shard = lock(t, waiters->node.key);
    bool is_empty;

    is_empty = waiters->callers.first == NULL && waiters->left_number == 0;
    if (is_empty) {
        shed_map_remove(&shard->flights, &waiters->node);
        atomic_fetch_sub(&t->flights, 1);
    }
    shed_mutex_unlock(&shard->mu);
    return is_empty;
}

/* The first node of a shard, or the one behind previous; key: NULL, or what it
 * is to have. */
static struct shed_map_node *next_in(struct shard *shard,
                                     const struct shed_map_key *key,
                                     const struct shed_map_node *previous)
{
    struct shed_map_node *next;

    shed_mutex_lock(&shard->mu);
    if (key == NULL)
        next = shed_map_next(&shard->flights, previous);
    else if (previous == NULL)
        next = shed_map_find(&shard->flights, *key);
    else
        next = shed_map_find_next(previous);
    shed_mutex_unlock(&shard->mu);
    return next;
}

static void visit_shard(struct shard *shard, const struct shed_map_key *key,
                        void (*visit)(struct shed_waiters *waiters))
{
    struct shed_map_node *node = next_in(shard, key, NULL), *next;

    for (; node != NULL; node = next) {
        next = next_in(shard, key, node);
        visit(waiters_of(node));
    }
}

void shed_table_each(struct shed_table *t,
                     void (*visit)(struct shed_waiters *waiters))
{
    for (size_t i = 0; i < SHARDS && atomic_load(&t->flights) > 0; i++)
        visit_shard(&t->shard[i], NULL, visit);
}

void shed_table_each_of(struct shed_table *t, const char *key, size_t size,
                        void (*visit)(struct shed_waiters *waiters))
{
    struct shed_map_key wanted = shed_map_key(key, size);

    visit_shard(&t->shard[wanted.hash % SHARDS], &wanted, visit);
}
