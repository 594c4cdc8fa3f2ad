/* A blocking hiredis connection from a URI, as backends open it without a
 * library. */
#ifndef DEMO_REDIS_H
#define DEMO_REDIS_H

#include <hiredis/hiredis.h>
#include <stddef.h>
#include <stdint.h>

#define DEMO_REDIS_PATIENT_MS 3600000 /* where a server may be stopped */

/*
 * Connect. timeout_ms (1 or more) is the limit for connecting and for each
 * reply, also later ones (see redisSetTimeout). Where the uri names sentinels
 * they are asked for the primary, each time.
 *
 * Returns NULL on failure, with the reason in why.
 */
redisContext *demo_redis_open(const char *uri, uint64_t timeout_ms, char *why,
                              size_t size);

#endif
