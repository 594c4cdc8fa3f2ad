/*
 * A walk over keys by SCAN, at a bounded rate, with a progress bar on a
 * terminal. SCAN looks at every key of the database, including those of others;
 * it never blocks the server for longer than one page takes. A key that exists
 * all the time is found at least once, and may be found twice.
 */
#ifndef CLI_WALK_H
#define CLI_WALK_H

#include "cli/entry_view.h"
#include "cli/rate.h"

#define CLI_PATTERN_BYTES (2 * SHED_NAME_MAX_BYTES + 8)

struct cli_walk {
    struct cli_redis *redis;
    struct cli_rate rate; /* of the keys that SCAN looks at */
    size_t page;          /* keys per call */
    char pattern[CLI_PATTERN_BYTES];
    char cursor[32];
    bool is_over;
    bool is_shown;
    uint64_t looked, total; /* keys of the database, approximately */
    uint64_t shown_ms;
};

/* Begin a walk over the keys of a cache at this many per second; 0: 20000. From
 * then on reads by this connection do not count as uses of a key, if the server
 * can do that (Redis 7.2). */
void cli_walk_begin(struct cli_walk *walk, struct cli_redis *redis,
                    const char *cache, uint64_t rate);

/* Begin a walk over all keys that match a pattern of less than
 * CLI_PATTERN_BYTES. */
void cli_walk_begin_pattern(struct cli_walk *walk, struct cli_redis *redis,
                            const char *pattern, uint64_t rate);

/* Get the next page: an array of keys, which may be empty, to be freed; NULL at
 * the end. Waits first, to keep the rate. */
struct shed_reply *cli_walk_next(struct cli_walk *walk);

/* Remove the progress bar. */
void cli_walk_end(struct cli_walk *walk);

#endif
