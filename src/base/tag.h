/* The part of a key that a Redis Cluster hashes: what is between the first '{'
 * and the next '}', or all of it if there is nothing. Pure. */
#ifndef SHED_TAG_H
#define SHED_TAG_H

#include <stddef.h>

enum { SHED_TAG_NUMBER_BYTES = 12 };

/* The tag of another key that is to be in the same slot, without its braces. */
struct shed_tag {
    const char *at; /* in the key, or number */
    size_t size;
    char number[SHED_TAG_NUMBER_BYTES];
};

/* Set *out to what key's tag is. One that holds a '}', and so would end too
 * soon between braces, is replaced by the smallest number of the same slot:
 * to find it takes some milliseconds, for names that are rare. */
void shed_tag_set(struct shed_tag *out, const char *key, size_t size);

#endif
