/*
 * Which entries of a cache are misses because a tag of theirs was
 * invalidated: what the log of the cache says, NAME:tags, where there is one.
 */
#ifndef CLI_TAGS_H
#define CLI_TAGS_H

#include "known/tags.h"
#include "cli/redis.h"

struct cli_tags;

/* The tags of a cache. Nothing is known of them before they are read. */
struct cli_tags *cli_tags_open(struct cli_redis *redis, const char *cache);
void cli_tags_close(struct cli_tags *tags);

/* Read what was added to the log since the last time: one command if that is
 * little. No answer may be outstanding. */
void cli_tags_read(struct cli_tags *tags);

/* Why an entry is a miss. */
struct cli_miss {
    uint64_t position;     /* of the invalidation; 0: it is no miss */
    struct shed_bytes tag; /* of the entry; of no bytes: all entries */
    bool is_above; /* no miss as yet: its position is above all that the log
                      had when it was read */
};

/* Judge an entry that was decoded. */
struct cli_miss cli_tags_judge(const struct cli_tags *tags,
                               const struct shed_entry *entry);

#endif
