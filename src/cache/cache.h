/* What the calls of a cache share: checks and deadlines. */
#ifndef SHED_CACHE_H
#define SHED_CACHE_H

#include <snowshed/snowshed.h>

#include "entry/entry.h"
#include "flight/flights.h"
#include "known/tag_log.h"
#include "known/local.h"
#include "known/delivery.h"
#include "client/client.h"
#include "entry/key.h"
#include "entry/parts.h"
#include "source/load.h"

/* Check what a call is given, and, unless it is_async, that its thread may
 * block. Returns: SHED_OK; SHED_EINVAL, SHED_EFORKED. */
SHED_MUST_CHECK enum shed_code
shed_cache_check_call(const struct shed_cache *cache, uint64_t timeout_ms,
                      bool is_async, struct shed_error *err);

/* As shed_cache_check_call; and check the key of the call. */
SHED_MUST_CHECK enum shed_code
shed_cache_check_key_call(const struct shed_cache *cache, struct shed_bytes key,
                          uint64_t timeout_ms, bool is_async,
                          struct shed_error *err);

/* An array that a call is given, and whose elements begin with bytes. */
struct shed_array_rule {
    const char *call, *name, *member; /* what they are called */
    size_t limit, bytes_limit;        /* elements, and bytes in each */
    size_t element_size;
};

/* Check such an array. Returns: SHED_OK; SHED_EINVAL. */
SHED_MUST_CHECK enum shed_code
shed_cache_check_array(const struct shed_array_rule *rule, const void *array,
                       size_t count, struct shed_error *err);

/* Check that a cache has tags. Returns: SHED_OK; SHED_EINVAL. */
SHED_MUST_CHECK enum shed_code
shed_cache_check_has_tags(const struct shed_cache *cache,
                          struct shed_error *err);

/* When a call that begins now has to end; timeout_ms 0: the cache's own. */
uint64_t shed_cache_deadline_ms(const struct shed_cache *cache,
                                uint64_t timeout_ms);

#endif
