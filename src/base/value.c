/*
 * Values: one allocation with the payload behind the struct, or a payload in
 * memory that another object owns. Its one invariant: after a value was handed
 * out, only its count changes.
 */
#include "base/value.h"

#include <stdlib.h>
#include <string.h>

static void init(struct shed_value *value, enum shed_kind kind,
                 enum shed_origin origin, size_t size)
{
    atomic_init(&value->refs, 1);
    value->kind = kind;
    value->origin = origin;
    value->age_ms = 0;
    value->fresh_ms = 0;
    value->header = NULL;
    value->data = NULL;
    value->size = size;
    value->owner = NULL;
    value->free_owner = NULL;
}

struct shed_value *shed_value_create(enum shed_kind kind,
                                     enum shed_origin origin, const void *data,
                                     size_t size)
{
    struct shed_value *value;

    if (size > SIZE_MAX - sizeof(*value))
        return NULL;
    value = malloc(sizeof(*value) + size);
    if (value == NULL)
        return NULL;
    init(value, kind, origin, size);
    if (size > 0)
        value->data = memcpy(value + 1, data, size);
    return value;
}

struct shed_value *shed_value_wrap(enum shed_kind kind, enum shed_origin origin,
                                   const void *data, size_t size, void *owner,
                                   void (*free_owner)(void *owner))
{
    struct shed_value *value = malloc(sizeof(*value));

    if (value == NULL)
        return NULL;
    init(value, kind, origin, size);
    value->data = size > 0 ? data : NULL;
    value->owner = owner;
    value->free_owner = free_owner;
    return value;
}

enum shed_kind shed_value_kind(const struct shed_value *value)
{
    return value != NULL ? value->kind : SHED_KIND_ABSENT;
}

const void *shed_value_data(const struct shed_value *value)
{
    return value != NULL ? value->data : NULL;
}

size_t shed_value_size(const struct shed_value *value)
{
    return value != NULL ? value->size : 0;
}

uint64_t shed_value_age_ms(const struct shed_value *value)
{
    return value != NULL ? value->age_ms : 0;
}

uint64_t shed_value_fresh_ms(const struct shed_value *value)
{
    return value != NULL ? value->fresh_ms : 0;
}

enum shed_origin shed_value_origin(const struct shed_value *value)
{
    return value != NULL ? value->origin : SHED_ORIGIN_UNPUBLISHED;
}

struct shed_value *shed_value_ref(struct shed_value *value)
{
    /* relaxed: the caller already has a reference, so there is nothing to
     * order */
    atomic_fetch_add_explicit(&value->refs, 1, memory_order_relaxed);
    return value;
}

void shed_value_unref(struct shed_value *value)
{
    /* acq_rel: all reads by others happen before the memory is freed */
    if (value == NULL ||
        atomic_fetch_sub_explicit(&value->refs, 1, memory_order_acq_rel) > 1)
        return;
    if (value->free_owner != NULL)
        value->free_owner(value->owner);
    free(value);
}
