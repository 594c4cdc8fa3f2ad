/*
 * Whether the process that holds a lease, a lock or a turn is there, and where
 * it runs: what its channels tell (redis/session.h).
 */
#ifndef CLI_PRESENCE_H
#define CLI_PRESENCE_H

#include "cli/redis.h"

enum cli_life { CLI_LIFE_UNKNOWN, CLI_ALIVE, CLI_GONE };

#define CLI_HOST_BYTES 128

struct cli_presence {
    enum cli_life life;
    char host[CLI_HOST_BYTES]; /* escaped; empty: not known */
    unsigned long long pid;
};

/* Write the name of the channel of a process of SHED_PROCESS_BYTES. */
#define CLI_CHANNEL_BYTES 48
const char *cli_process_channel(char channel[CLI_CHANNEL_BYTES],
                                const char *process);

/* Ask about a process. Without the rights to PUBSUB NUMSUB and PUBSUB CHANNELS
 * its life, or its place, is unknown. */
void cli_presence_read(struct cli_redis *redis, const char *process,
                       struct cli_presence *out);

/* Print the process, where it runs, and whether it is alive:
 * "39c0e3c8d8b01b26 (alive, host web-3, pid 4711)". */
void cli_presence_print(const char *process, const struct cli_presence *of);

/* Set the members process, is_alive, host and pid; null: not known. */
void cli_presence_json(json_t *object, const char *process,
                       const struct cli_presence *of);

#endif
