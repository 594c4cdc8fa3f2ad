/*
 * Whether the process that holds a lease, a lock or a turn is there, and where
 * it runs: what its channels tell (redis/session.h).
 */
#ifndef CLI_PRESENCE_H
#define CLI_PRESENCE_H

#include "cli/out.h"
#include "cli/redis.h"
#include "redis/session.h"

enum cli_life { CLI_LIFE_UNKNOWN, CLI_ALIVE, CLI_GONE };

#define CLI_HOST_BYTES 128

struct cli_presence {
    const char *process; /* its id, SHED_PROCESS_BYTES; NULL: not known */
    enum cli_life life;
    char host[CLI_HOST_BYTES]; /* escaped; empty: not known */
    unsigned long long pid;
};

/* Ask about a process, whose id must stay (NULL or blanks: it is not known);
 * unless epoch is 0, about that epoch of its session. Without the rights to
 * PUBSUB NUMSUB and PUBSUB CHANNELS its life, or its place, is unknown. */
void cli_presence_read(struct cli_redis *redis, const char *process,
                       uint32_t epoch, struct cli_presence *out);

/* Set the members process, is_alive, host and pid; null: not known. */
void cli_presence_members(json_t *out, const struct cli_presence *of);

#endif
