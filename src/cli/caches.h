/* Which caches have entries in a Redis. */
#ifndef CLI_CACHES_H
#define CLI_CACHES_H

#include "cli/out.h"
#include "cli/redis.h"

/* What to say where a cache has no entries: "did you mean 'item'?", or how to
 * find its name. */
struct cli_text cli_cache_advice(struct cli_redis *redis, const char *name);

/* Print, without JSON, that it has none, and the advice. */
void cli_cache_print_none(struct cli_redis *redis, const char *name,
                          const char *before, const json_t *out);

#endif
