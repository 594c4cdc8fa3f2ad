/*
 * One small object per thread, created when the thread first wants a lock and
 * marked when the thread ends. Its invariant: while a reference exists, no
 * other thread is taken for its owner.
 */
#include "lock/owner.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

struct shed_owner {
    atomic_uint refs;
    atomic_bool has_ended;
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static bool has_key;

static void end_thread(void *arg)
{
    struct shed_owner *owner = arg;

    atomic_store(&owner->has_ended, true);
    shed_owner_unref(owner);
}

static void make_key(void)
{
    has_key = pthread_key_create(&key, end_thread) == 0;
}

struct shed_owner *shed_owner_self(void)
{
    struct shed_owner *owner;

    if (pthread_once(&once, make_key) != 0 || !has_key)
        return NULL;
    owner = pthread_getspecific(key);
    if (owner != NULL)
        return owner;
    owner = calloc(1, sizeof(*owner));
    if (owner == NULL)
        return NULL;
    atomic_init(&owner->refs, 1);
    if (pthread_setspecific(key, owner) != 0) {
        free(owner);
        return NULL;
    }
    return owner;
}

struct shed_owner *shed_owner_ref(struct shed_owner *owner)
{
    if (owner != NULL)
        atomic_fetch_add(&owner->refs, 1);
    return owner;
}

void shed_owner_unref(struct shed_owner *owner)
{
    if (owner != NULL && atomic_fetch_sub(&owner->refs, 1) == 1)
        free(owner);
}

bool shed_owner_has_ended(const struct shed_owner *owner)
{
    return owner != NULL && atomic_load(&owner->has_ended);
}
