/* Whether Redis accepts writes now. A server that is full, could not save its
 * data or lacks replicas still answers reads as if nothing were wrong. */
#ifndef CLI_WRITES_H
#define CLI_WRITES_H

#include "cli/cli.h"

struct cli_writes {
    char error[256]; /* why not; "": it does, or we have no right to try */
    bool is_silent;  /* no answer to the write, so it was not refused either */
    const char *means, *advice;
};

/* Try a write that changes nothing, on a connection of its own to uri, or to
 * --redis if that is NULL. */
void cli_writes_read(const struct cli_call *call, const char *uri,
                     const char *cache, struct cli_writes *out);

#endif
