/*
 * A walk over keys by SCAN, at a bounded rate. SCAN looks at every key of the
 * database, including those of others; it never blocks the server for longer
 * than one page takes. A key that exists all the time is found at least once,
 * and may be found twice. The primaries of a cluster are walked over one after
 * another: a key whose slot moves meanwhile can be missed.
 *
 *     cli_walk_begin(&walk, redis, "item", call->rate);
 *     walk.ask[0] = "STRLEN KEY";
 *     while (cli_walk_next(&walk))
 *         for (size_t i = 0; i < walk.count; i++)
 *             if (walk.found[i].is_entry)
 *                 use(walk.found[i].name, walk.found[i].answer[0]);
 */
#ifndef CLI_WALK_H
#define CLI_WALK_H

#include "cli/key.h"
#include "cli/rate.h"
#include "cli/redis.h"

#define CLI_PATTERN_BYTES (2 * SHED_NAME_MAX_BYTES + 8)
#define CLI_WALK_ASKS 3

/* A key of a page, until the next page. */
struct cli_found {
    struct shed_bytes name;
    bool is_entry;      /* at name, or at the key of its refresh */
    bool is_refresh;    /* the key of its refresh */
    struct cli_key key; /* if is_entry */
    struct shed_reply *answer[CLI_WALK_ASKS]; /* if is_entry, and not
                                                 is_refresh; it may be an error
                                                               about the key */
};

struct cli_walk {
    /* may be set after begin: what is asked about each entry, as by
     * cli_redis_send_key; NULL: nothing more. Answers that are no right to the
     * key are passed on, too, if passes_denied. */
    const char *ask[CLI_WALK_ASKS];
    bool passes_denied;
    /* the present page */
    struct cli_found *found;
    size_t count;
    uint64_t now_ms; /* by the server's clock, before its answers */
    uint64_t looked; /* keys of the database, approximately */
    /* private */
    struct cli_redis *redis;
    const char *cache;    /* NULL: any */
    struct cli_rate rate; /* of the keys that SCAN looks at */
    size_t page;          /* keys per call */
    char pattern[CLI_PATTERN_BYTES];
    size_t server; /* of which the keys are looked at */
    char cursor[32];
    struct shed_reply *keys; /* of the page */
};

/* Begin a walk over the keys of a cache, which must outlive it, or of all
 * caches (NULL), at this many per second. From then on reads by this
 * connection do not count as uses of a key, if the server can do that (Redis
 * 7.2). */
void cli_walk_begin(struct cli_walk *walk, struct cli_redis *redis,
                    const char *cache, uint64_t rate);

/* Begin a walk over all keys that match a pattern of less than
 * CLI_PATTERN_BYTES. */
void cli_walk_begin_pattern(struct cli_walk *walk, struct cli_redis *redis,
                            const char *pattern, uint64_t rate);

/* Get the next page, with its answers. Waits first, to keep the rate. Returns:
 * false: the walk has ended. */
bool cli_walk_next(struct cli_walk *walk);

/* End a walk before that. */
void cli_walk_end(struct cli_walk *walk);

#endif
