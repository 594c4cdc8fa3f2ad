/* The part of a key that a Redis Cluster hashes: what is between the first '{'
 * and the next '}', or the whole key if there is nothing between them. Pure. */
#ifndef SHED_HASH_TAG_H
#define SHED_HASH_TAG_H

#include <stddef.h>

#include <snowshed/snowshed.h>

enum { SHED_HASH_TAG_NUMBER_BYTES = 12 };

/* A tag, without braces, that puts another key into the same slot. */
struct shed_hash_tag {
    const char *at; /* in the key, or number */
    size_t size;
    char number[SHED_HASH_TAG_NUMBER_BYTES];
};

/* Set *out to a tag for key's slot: key's own, or, if that contains a '}' and
 * would end too early between braces, the smallest number of the same slot.
 * Finding the number takes a few milliseconds, but such names are rare. */
void shed_hash_tag_set(struct shed_hash_tag *out, struct shed_bytes key);

#define SHED_HASH_SLOTS 16384

/* The slot of a key. */
unsigned shed_hash_slot(struct shed_bytes key);

#endif
