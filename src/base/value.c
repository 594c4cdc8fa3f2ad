/*
 * Values: one allocation with the payload behind the struct, or a payload in
 * memory that another object owns. Its one invariant: after a value was handed
 * out, only its count changes.
 */
#include "base/value.h"

#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"

static struct shed_value_block *
create(enum shed_kind kind, enum shed_origin origin, size_t size, size_t room)
{
    struct shed_value_block *block = malloc(sizeof(*block) + room);

    if (block == NULL)
        return NULL;
    *block = (struct shed_value_block){
        .value = {.kind = kind, .origin = origin, .size = size}};
    atomic_init(&block->refs, 1);
    return block;
}

struct shed_value *shed_value_create(enum shed_kind kind,
                                     enum shed_origin origin, const void *data,
                                     size_t size)
{
    struct shed_value_block *block;

    if (size > SIZE_MAX - sizeof(*block))
        return NULL;
    block = create(kind, origin, size, size);
    if (block == NULL)
        return NULL;
    if (size > 0)
        block->value.data = memcpy(block + 1, data, size);
    return &block->value;
}

struct shed_value *shed_value_wrap(enum shed_kind kind, enum shed_origin origin,
                                   const void *header, const void *data,
                                   size_t size, void *owner,
                                   void (*free_owner)(void *owner))
{
    struct shed_value_block *block = create(kind, origin, size, 0);

    if (block == NULL)
        return NULL;
    block->value.data = size > 0 ? data : NULL;
    block->header = header;
    block->owner = owner;
    block->free_owner = free_owner;
    return &block->value;
}

static void free_split(void *value)
{
    shed_value_unref(value);
}

_Static_assert(sizeof(struct shed_value_block) <= SHED_VALUE_SPLIT_BYTES,
               "a handle fits");

struct shed_value *shed_value_split(struct shed_value *value)
{
    struct shed_value_block *block =
        aligned_alloc(SHED_CPU_LINE_BYTES, SHED_VALUE_SPLIT_BYTES);

    if (block == NULL)
        return NULL;
    *block = (struct shed_value_block){.value = *value,
                                       .header = shed_value_header(value),
                                       .owner = shed_value_ref(value),
                                       .free_owner = free_split};
    atomic_init(&block->refs, 1);
    return &block->value;
}

struct shed_value *shed_value_ref(struct shed_value *value)
{
    /* relaxed: the caller already has a reference, so there is nothing to
     * order */
    atomic_fetch_add_explicit(&((struct shed_value_block *)value)->refs, 1,
                              memory_order_relaxed);
    return value;
}

void shed_value_unref(struct shed_value *value)
{
    struct shed_value_block *block = (struct shed_value_block *)value;

    /* acq_rel: all reads by others happen before the memory is freed */
    if (block == NULL ||
        atomic_fetch_sub_explicit(&block->refs, 1, memory_order_acq_rel) > 1)
        return;
    if (block->free_owner != NULL)
        block->free_owner(block->owner);
    free(block);
}
