/*
 * Values: one allocation with the payload behind the struct, or both in memory
 * that another object owns. Its one invariant: after a value was handed
 * out, only its count changes.
 */
#include "base/value.h"

#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"

struct shed_value *shed_value_init(struct shed_value_block *block,
                                   enum shed_kind kind, enum shed_origin origin,
                                   const void *header, const void *data,
                                   size_t size, void *owner,
                                   void (*free_owner)(void *owner))
{
    *block = (struct shed_value_block){.value = {.kind = kind,
                                                 .origin = origin,
                                                 .data = size > 0 ? data : NULL,
                                                 .size = size},
                                       .header = header,
                                       .owner = owner,
                                       .free_owner = free_owner};
    atomic_init(&block->refs, 1);
    return &block->value;
}

struct shed_value *shed_value_create(enum shed_kind kind,
                                     enum shed_origin origin, const void *data,
                                     size_t size)
{
    struct shed_value_block *block;

    if (size > SIZE_MAX - sizeof(*block))
        return NULL;
    block = malloc(sizeof(*block) + size);
    if (block == NULL)
        return NULL;
    if (size > 0)
        memcpy(block + 1, data, size);
    return shed_value_init(block, kind, origin, NULL, block + 1, size, NULL,
                           NULL);
}

struct split {
    struct shed_value_block block;
    struct shed_value *whole;
};

static void free_split(void *owner)
{
    struct split *split = owner;

    shed_value_unref(split->whole);
    free(split);
}

_Static_assert(sizeof(struct split) <= SHED_VALUE_SPLIT_BYTES, "a handle fits");

struct shed_value *shed_value_split(struct shed_value *value)
{
    struct split *split =
        aligned_alloc(SHED_CPU_LINE_BYTES, SHED_VALUE_SPLIT_BYTES);

    if (split == NULL)
        return NULL;
    split->whole = shed_value_ref(value);
    split->block = (struct shed_value_block){.value = *value,
                                             .header = shed_value_header(value),
                                             .owner = split,
                                             .free_owner = free_split};
    atomic_init(&split->block.refs, 1);
    return &split->block.value;
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
    else
        free(block);
}
