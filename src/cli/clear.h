/*
 * The rows of a cache that a note in its log of tags does not reach: those of
 * processes without the option tags_limit carry no position.
 */
#ifndef CLI_CLEAR_H
#define CLI_CLEAR_H

#include "cli/redis.h"

struct cli_clear {
    uint64_t reached; /* rows with a position, as far as was looked */
    uint64_t others;  /* rows without one */
    uint64_t removed; /* keys */
};

/* Look at the entries of the cache, at the call's rate, until a hundred rows
 * have a position and none lacks it; and remove meanwhile what the log does not
 * reach: rows without one, leases and failure markers. Only keys with an entry
 * of the library are removed. */
void cli_clear_rows(struct cli_redis *redis, const struct cli_call *call,
                    struct cli_clear *out);

/* Look until it is known whether some row has a position, at no more than about
 * keys_max keys of the database. */
void cli_clear_look(struct cli_redis *redis, const struct cli_call *call,
                    uint64_t keys_max, struct cli_clear *out);

#endif
