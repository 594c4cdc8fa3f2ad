/* What a key is called in Redis: NAME:{KEY}, where NAME is the cache. Pure. */
#ifndef SHED_ENTRY_KEY_H
#define SHED_ENTRY_KEY_H

#include <snowshed/snowshed.h>

#include "entry/entry.h"

/* NAME:{KEY}, one byte for an escape. */
#define SHED_REDIS_KEY_MAX_BYTES (SHED_NAME_MAX_BYTES + SHED_KEY_MAX_BYTES + 4)

/* A key as Redis has it, NAME:{KEY}, and where KEY begins in it. */
struct shed_key {
    struct shed_bytes redis;
    unsigned at;
    unsigned size;
};

/* A key with the bytes of its name; key points into the struct, so it must not
 * be copied. */
struct shed_named_key {
    struct shed_key key;
    char bytes[SHED_REDIS_KEY_MAX_BYTES];
};

/* Check a name that is to be part of keys in Redis; what names it in the
 * reason. Returns: SHED_OK; SHED_EINVAL. */
SHED_MUST_CHECK enum shed_code
shed_key_check_cache_name(const char *name, const char *what,
                          struct shed_error *err);

/* Name a key of the cache; both names must have been checked. */
void shed_key_name(const char *cache_name, struct shed_bytes key,
                   struct shed_named_key *out);

/* The KEY in it. */
static inline struct shed_bytes shed_key_bytes(const struct shed_key *key)
{
    return shed_bytes((const char *)key->redis.data + key->at, key->size);
}

/* The same of a name alone, NAME:{KEY}; none of what is no such name. */
struct shed_bytes shed_key_of_name(struct shed_bytes redis);

#endif
