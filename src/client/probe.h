/* Asks Redis what it grants to the client's user. */
#ifndef SHED_PROBE_H
#define SHED_PROBE_H

#include <snowshed/snowshed.h>

/* What a name in Redis is used for. */
enum shed_use {
    SHED_USE_CACHE,      /* a cache of this name */
    SHED_USE_LOCK,       /* a lock of this name, LEASE or QUORUM */
    SHED_USE_TEXT_LOCK,  /* a lock of this name, SETNX, EXPIRE or TIMESTAMP */
    SHED_USE_EXACT_LOCK, /* a lock of this name, with exact_key */
    SHED_USE_TAGS,       /* the log of a cache of this name, besides CACHE */
    SHED_USE_FLEET,      /* a budget of loads of this name, besides CACHE */
    SHED_USE_REPLICAS    /* a lock's wait for replicas, besides LOCK */
};

/* Check that Redis can be reached until deadline_ms, and grants what this use
 * of the name needs; name has 1 to SHED_KEY_MAX_BYTES. Blocks: one round trip.
 * Returns: as shed_cache_probe. */
SHED_MUST_CHECK enum shed_code shed_probe(struct shed_client *client,
                                          enum shed_use use,
                                          struct shed_bytes name,
                                          uint64_t deadline_ms,
                                          struct shed_error *err);

#endif
