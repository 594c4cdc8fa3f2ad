/* The inside of a shed_value: a payload and the memory that contains it. */
#ifndef SHED_VALUE_H
#define SHED_VALUE_H

#include <stdatomic.h>

#include <snowshed/snowshed.h>

struct shed_value {
    atomic_uint refs;
    enum shed_kind kind;
    enum shed_origin origin;
    uint64_t age_ms;
    uint64_t fresh_ms;
    const void *header; /* of the entry in Redis that it was read from, in its
                           owner's memory; NULL: it was loaded */
    const void *data;
    size_t size;
    /* owner holds data and is freed with free_owner; NULL if the payload
     * follows this struct */
    void *owner;
    void (*free_owner)(void *owner);
};

/* Create a value with a copy of data. Returns NULL when out of memory. */
struct shed_value *shed_value_create(enum shed_kind kind,
                                     enum shed_origin origin, const void *data,
                                     size_t size);

/* Create a value whose data is part of owner, and which owns owner on success.
 * Returns NULL when out of memory; then owner remains the caller's. */
struct shed_value *shed_value_wrap(enum shed_kind kind, enum shed_origin origin,
                                   const void *data, size_t size, void *owner,
                                   void (*free_owner)(void *owner));

#endif
