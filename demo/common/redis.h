/* A blocking hiredis connection from a URI, as backends open it without a
 * library. */
#ifndef DEMO_REDIS_H
#define DEMO_REDIS_H

#include <hiredis/hiredis.h>
#include <stddef.h>
#include <stdint.h>

/* Returns NULL on failure, with the reason in why. */
redisContext *demo_redis_open(const char *uri, char *why, size_t size);

/* The same, with a limit for connecting and for each reply, also later ones
 * (see redisSetTimeout). */
redisContext *demo_redis_open_within(const char *uri, uint64_t timeout_ms,
                                     char *why, size_t size);

#endif
