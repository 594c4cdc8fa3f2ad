/*
 * Who waits for which flight: a hash table of the flights of a cache. Its
 * invariants: at most one flight of a key can be joined, and at most one works
 * in the background; no more callers wait than the source allows; a flight is
 * in the table before it is started.
 */
#include "flight/flights.h"

#include <assert.h>

#include "base/container.h"
#include "base/error.h"
#include "flight/flight_task.h"

/* node may be NULL. */
static struct shed_flight_task *task_of(struct shed_map_node *node)
{
    return node != NULL
               ? shed_container_of(node, struct shed_flight_task, in_table)
               : NULL;
}

static struct shed_caller *caller_of(struct shed_node *node)
{
    return shed_container_of(node, struct shed_caller, node);
}

/* A flight of the key that has this role, or is joinable. */
static struct shed_flight_task *find_locked(const struct shed_flights *fs,
                                            struct shed_map_key key,
                                            enum shed_flight_role least)
{
    struct shed_map_node *node = shed_map_find(&fs->table, key);

    while (node != NULL && task_of(node)->role < least)
        node = shed_map_find_next(node);
    return task_of(node);
}

/* ----------------------------------------------------------------- callers */

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

static void discount(struct shed_flights *fs, const struct shed_caller *caller)
{
    if (caller->is_counted)
        atomic_fetch_sub(&fs->callers->waiting, 1);
}

static void add_caller(struct shed_flight_task *t, struct shed_caller *caller)
{
    caller->task = t;
    caller->load_began_ms = shed_flight_task_load_began_ms(t);
    caller->number = ++t->last_number;
    shed_list_append(&t->callers, &caller->node);
}

static void remove_caller(struct shed_caller *caller)
{
    shed_list_remove(&caller->task->callers, &caller->node);
    discount(caller->task->flights, caller);
    caller->task = NULL;
}

enum shed_code shed_flights_join(struct shed_flights *fs,
                                 const struct shed_key *key,
                                 struct shed_seen seen,
                                 struct shed_caller *caller,
                                 struct shed_error *err)
{
    struct shed_flight_task *t;

    assert(shed_reactor_is_current(fs->cache->client->reactor));
    if (caller->is_counted && !admit(fs->callers)) {
        shed_count(&fs->cache->counters.callers_refused, 1);
        return shed_fail(err, SHED_EBUSY,
                         "too many callers wait already (see the source's "
                         "callers_limit)");
    }
    shed_mutex_lock(&fs->mu);
    t = find_locked(fs, shed_map_key(key->redis), SHED_FLIGHT_JOINABLE);
    if (t != NULL)
        shed_count(&fs->cache->counters.joins, 1);
    else
        t = shed_flight_task_create_locked(fs, key, &seen,
                                           SHED_FLIGHT_JOINABLE);
    shed_mutex_unlock(&fs->mu);
    if (t == NULL) {
        discount(fs, caller);
        return shed_fail_nomem(err, "a flight");
    }
    add_caller(t, caller);
    return SHED_OK;
}

bool shed_flights_leave(struct shed_caller *caller, enum shed_leave how)
{
    struct shed_flight_task *t = caller->task;

    if (t == NULL)
        return false;
    assert(shed_reactor_is_current(t->flights->cache->client->reactor));
    remove_caller(caller);
    caller->awaited = (unsigned char)shed_flight_task_awaited(t);
    if (how == SHED_LEAVE_GOES_ON && caller->number > t->left_number)
        t->left_number = caller->number;
    return true;
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
    caller->on_answer(caller); /* it is gone now */
}

bool shed_table_answer(struct shed_flight_task *t, uint64_t upto,
                       struct shed_value *value, const struct shed_error *error)
{
    struct shed_node *node;
    bool is_anybody = false;

    while ((node = t->callers.first) != NULL &&
           caller_of(node)->number <= upto) {
        remove_caller(caller_of(node));
        give(caller_of(node), value, error);
        is_anybody = true;
    }
    if (t->left_number <= upto)
        t->left_number = 0;
    return is_anybody;
}

uint64_t shed_table_newest(const struct shed_flight_task *t)
{
    /* if the newest caller has left, its number is still higher than those of
     * all who remain */
    return t->callers.first != NULL ? t->last_number : t->left_number;
}

/* ------------------------------------------------------------ ends of rows */

/* A key that nobody has read for so long is no hot one, and another process may
 * have loaded it. */
#define HOT_MS 1000

static size_t place_of(struct shed_map_key key)
{
    return (size_t)(key.hash % SHED_ROW_ENDS);
}

static uint64_t end_of(struct shed_map_key key, uint64_t end_ms)
{
    return (key.hash >> SHED_ROW_END_BITS << SHED_ROW_END_BITS) | end_ms;
}

void shed_table_note_end(struct shed_flight_task *t, uint64_t end_ms)
{
    struct shed_map_key key = t->in_table.key;

    if (end_ms >> SHED_ROW_END_BITS != 0)
        end_ms = 0;
    atomic_store_explicit(&t->flights->row_end[place_of(key)],
                          end_ms > 0 ? end_of(key, end_ms) : 0,
                          memory_order_relaxed);
}

bool shed_flights_is_over(const struct shed_flights *fs,
                          const struct shed_key *key, uint64_t now_ms)
{
    struct shed_map_key wanted = shed_map_key(key->redis);
    uint64_t end = atomic_load_explicit(&fs->row_end[place_of(wanted)],
                                        memory_order_relaxed);

    /* that of another key is far away */
    return end_of(wanted, now_ms) - end < HOT_MS;
}

/* ----------------------------------------------------------------- flights */

bool shed_flights_has(struct shed_flights *fs, const struct shed_key *key)
{
    struct shed_map_key wanted;
    const struct shed_flight_task *t;
    bool has;

    if (atomic_load(&fs->count) == 0)
        return false;
    wanted = shed_map_key(key->redis);
    shed_mutex_lock(&fs->mu);
    t = find_locked(fs, wanted, SHED_FLIGHT_JOINABLE);
    has = t != NULL && !t->is_forced;
    shed_mutex_unlock(&fs->mu);
    return has;
}

void shed_flights_refresh(struct shed_flights *fs, const struct shed_key *key,
                          const unsigned char *identity)
{
    const struct shed_seen seen = {.aged = identity};
    struct shed_map_key wanted = shed_map_key(key->redis);

    shed_mutex_lock(&fs->mu);
    if (find_locked(fs, wanted, SHED_FLIGHT_BACKGROUND) == NULL &&
        shed_source_ask_breaker(fs->cache->source, NULL) == SHED_OK)
        (void)shed_flight_task_create_locked(fs, key, &seen,
                                             SHED_FLIGHT_BACKGROUND);
    shed_mutex_unlock(&fs->mu);
}

void shed_flights_detach(struct shed_flights *fs, const struct shed_key *key)
{
    struct shed_map_key wanted;
    struct shed_flight_task *t;

    if (atomic_load(&fs->count) == 0)
        return;
    wanted = shed_map_key(key->redis);
    shed_mutex_lock(&fs->mu);
    t = find_locked(fs, wanted, SHED_FLIGHT_JOINABLE);
    if (t != NULL)
        t->role = SHED_FLIGHT_DETACHED;
    shed_mutex_unlock(&fs->mu);
}

void shed_table_detach(struct shed_flight_task *t)
{
    shed_mutex_lock(&t->flights->mu);
    t->role = SHED_FLIGHT_DETACHED;
    shed_mutex_unlock(&t->flights->mu);
}

void shed_table_remove(struct shed_flight_task *t)
{
    assert(shed_table_newest(t) == 0);
    shed_mutex_lock(&t->flights->mu);
    shed_map_remove(&t->flights->table, &t->in_table);
    atomic_fetch_sub(&t->flights->count, 1);
    shed_mutex_unlock(&t->flights->mu);
}

/* The first flight that is to be visited, or the one behind previous. */
static struct shed_flight_task *next_of(struct shed_flights *fs,
                                        const struct shed_map_key *key,
                                        const struct shed_flight_task *previous)
{
    struct shed_map_node *next;

    shed_mutex_lock(&fs->mu);
    if (key == NULL)
        next = shed_map_next(&fs->table,
                             previous != NULL ? &previous->in_table : NULL);
    else if (previous == NULL)
        next = shed_map_find(&fs->table, *key);
    else
        next = shed_map_find_next(&previous->in_table);
    shed_mutex_unlock(&fs->mu);
    return task_of(next);
}

void shed_table_each(struct shed_flights *fs, const struct shed_map_key *key,
                     void (*visit)(struct shed_flight_task *t))
{
    struct shed_flight_task *t = next_of(fs, key, NULL), *next;

    for (; t != NULL; t = next) {
        next = next_of(fs, key, t);
        visit(t);
    }
}
