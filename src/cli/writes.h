/* Whether Redis takes writes now: a full one, one that could not save its data
 * or lacks replicas answers reads as if nothing were wrong. */
#ifndef CLI_WRITES_H
#define CLI_WRITES_H

#include "cli/redis.h"
#include "redis/wire.h"

struct cli_writes {
    char error[256]; /* why not; "": it does, or we may not try */
    bool is_silent;  /* it gives no answer, so it has not refused either */
    const char *means, *advice;
};

/* Ask by a write that changes nothing. It may leave an answer under way, so
 * nothing more is to be asked on this connection. */
void cli_writes_read(struct cli_redis *redis, const struct cli_call *call,
                     const char *cache, struct cli_writes *out);

#endif
