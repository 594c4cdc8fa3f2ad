/* Whether Redis accepts writes now. A server that is full, could not save its
 * data or lacks replicas still answers reads as if nothing were wrong. */
#ifndef CLI_WRITES_H
#define CLI_WRITES_H

#include "cli/redis.h"

struct cli_writes {
    char error[256]; /* why not; "": it does, or we have no right to try */
    bool is_silent;  /* no answer to the write, so it was not refused either */
    const char *means, *advice;
};

/* Try a write that changes nothing, of a key. */
void cli_writes_read(struct cli_redis *redis, struct shed_bytes key,
                     struct cli_writes *out);

#endif
