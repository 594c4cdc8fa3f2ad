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

/* Check what a call that blocks is given, and that its thread may block.
 * Returns: SHED_OK; SHED_EINVAL, SHED_EFORKED. */
SHED_MUST_CHECK enum shed_code
shed_cache_check_call(const struct shed_cache *cache, uint64_t timeout_ms,
                      struct shed_error *err);

/* As shed_cache_check_call, for a call that does not block: any thread may make
 * it. */
SHED_MUST_CHECK enum shed_code
shed_cache_check_async(const struct shed_cache *cache, uint64_t timeout_ms,
                       struct shed_error *err);

/* Check a key; what names it in the reason. Returns: SHED_OK; SHED_EINVAL. */
SHED_MUST_CHECK enum shed_code shed_cache_check_key(struct shed_bytes key,
                                                    const char *what,
                                                    struct shed_error *err);

/* The same for what is at array[i]member, and may have limit bytes. */
SHED_MUST_CHECK enum shed_code
shed_cache_check_at(struct shed_bytes bytes, size_t limit, const char *array,
                    size_t i, const char *member, struct shed_error *err);

/* Check an array that a call is given, and which may have limit elements; name
 * is what it is called. Returns: SHED_OK; SHED_EINVAL. */
SHED_MUST_CHECK enum shed_code
shed_cache_check_array(const void *array, size_t count, size_t limit,
                       const char *call, const char *name,
                       struct shed_error *err);

/* Check that a cache has tags. Returns: SHED_OK; SHED_EINVAL. */
SHED_MUST_CHECK enum shed_code
shed_cache_check_has_tags(const struct shed_cache *cache,
                          struct shed_error *err);

/* Check the tags that a call is given. Returns: SHED_OK; SHED_EINVAL. */
SHED_MUST_CHECK enum shed_code
shed_cache_check_tags(const struct shed_bytes *tags, size_t count, size_t limit,
                      const char *call, struct shed_error *err);

/* When a call that begins now has to end; timeout_ms 0: the cache's own. */
uint64_t shed_cache_deadline_ms(const struct shed_cache *cache,
                                uint64_t timeout_ms);

#endif
