/*
 * A walk over the keys of a cache by SCAN, at a bounded rate, with a progress
 * bar where somebody watches. SCAN looks at every key of the database, those of
 * others too; it never blocks the server for longer than a page takes. A key
 * that is there all the time is met at least once, and can be met twice.
 */
#ifndef CLI_WALK_H
#define CLI_WALK_H

#include "cli/entry_view.h"

struct cli_walk {
    struct cli_redis *redis;
    const char *cache;
    uint64_t rate; /* keys per second that SCAN looks at */
    size_t page;   /* of them in a call */
    char pattern[2 * SHED_NAME_MAX_BYTES + 8];
    char cursor[32];
    bool is_over;
    bool is_shown;
    uint64_t looked, total; /* keys of the database, about */
    uint64_t begun_ms, shown_ms;
};

/* At 20000 keys a second. Reads by this connection do not count as uses of
 * a key from then on, where the server can do that (Redis 7.2). */
void cli_walk_begin(struct cli_walk *walk, struct cli_redis *redis,
                    const char *cache);

/* Another rate; 0 leaves it. */
void cli_walk_set_rate(struct cli_walk *walk, uint64_t rate);

/* The next page: an array of keys, which may be empty, to be freed; NULL at the
 * end. Waits first, so that the rate is kept. */
struct shed_reply *cli_walk_next(struct cli_walk *walk);

/* Remove the progress bar. */
void cli_walk_end(struct cli_walk *walk);

/* Wait for so many ms. */
void cli_sleep_ms(uint64_t ms);

#endif
