/*
 * The names of a lock's keys in Redis. Pure.
 *
 * With the name as the exact key, the side keys are lock:={TAG}KEY and a
 * suffix. TAG is the part of KEY that a cluster hashes, so all keys of a lock
 * are in one slot; if that part contains a brace that would end the tag, TAG is
 * the smallest number that hashes to the same slot. No two locks share a side
 * key: the '=' distinguishes them from those of lock:{NAME}, and the whole KEY
 * follows.
 */
#ifndef SHED_LOCK_KEYS_H
#define SHED_LOCK_KEYS_H

#include "lock/protocol.h"

/* How many bytes shed_lock_keys_name writes for a name, at most. */
size_t shed_lock_keys_bytes(size_t name_size);

/* Write the spec's keys to room. With options->exact_key the first key is the
 * name. Without has_sides the first is always the name, and there are no
 * others. Returns: the name, inside the first key. */
const char *shed_lock_keys_name(struct shed_lock_spec *spec, bool has_sides,
                                const void *name, size_t name_size, char *room);

#endif
