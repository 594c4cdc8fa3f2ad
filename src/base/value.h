/* How the library makes values, and what else it knows of one. */
#ifndef SHED_VALUE_H
#define SHED_VALUE_H

#include <stdatomic.h>

#include <snowshed/snowshed.h>

/* A value, and what the program does not see of it. */
struct shed_value_block {
    struct shed_value value; /* first: a pointer to it is one to the block */
    atomic_uint refs;
    const void *header; /* of the entry in Redis that it was read from, in its
                           owner's memory; NULL: it was loaded */
    void *owner;        /* holds this struct and the payload, and is freed with
                           free_owner; NULL: the payload follows this struct */
    void (*free_owner)(void *owner);
};

/* Create a value with a copy of data. Returns NULL when out of memory. */
struct shed_value *shed_value_create(enum shed_kind kind,
                                     enum shed_origin origin, const void *data,
                                     size_t size);

/* Make a value in memory that is part of owner, as data is. Its last reference
 * frees owner. */
struct shed_value *shed_value_init(struct shed_value_block *block,
                                   enum shed_kind kind, enum shed_origin origin,
                                   const void *header, const void *data,
                                   size_t size, void *owner,
                                   void (*free_owner)(void *owner));

/* Create another handle of a value: the same payload, counted on its own, in
 * memory that shares no cache line. So threads that hold it do not write where
 * holders of the first one do. It takes a reference of value.
 * Returns NULL when out of memory. */
struct shed_value *shed_value_split(struct shed_value *value);

/* The memory of a handle that was split off. */
#define SHED_VALUE_SPLIT_BYTES ((size_t)128)

static inline const struct shed_value_block *
shed_value_block(const struct shed_value *value)
{
    return (const struct shed_value_block *)value;
}

static inline const void *shed_value_header(const struct shed_value *value)
{
    return shed_value_block(value)->header;
}

#endif
