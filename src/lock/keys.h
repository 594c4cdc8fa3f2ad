/*
 * The names of a lock's keys in Redis. Pure.
 *
 * With the name as the exact key, the side keys are lock:={TAG}KEY and a
 * suffix. TAG is the part of KEY that a cluster hashes, so all keys of a lock
 * are in one slot; where that part holds a brace that would end the tag, it is
 * the smallest number of the same slot. No lock has a side key of another: the
 * '=' tells them from those of lock:{NAME}, and KEY follows as a whole.
 */
#ifndef SHED_LOCK_KEYS_H
#define SHED_LOCK_KEYS_H

#include "lock/protocol.h"

/* The room that shed_lock_keys_name needs for a name. */
size_t shed_lock_keys_bytes(size_t name_size);

/* Set the spec's keys, which are written to room; with options->exact_key the
 * first is the name. Without has_sides there are no others, and the first is
 * always the name. Returns: the name, in the first key. */
const char *shed_lock_keys_name(struct shed_lock_spec *spec, bool has_sides,
                                const void *name, size_t name_size, char *room);

#endif
