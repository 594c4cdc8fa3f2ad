/* The log of a cache's tags, as this connection has read it. */
#include "cli/tags.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "known/tag_log.h"

struct cli_tags {
    struct cli_redis *redis;
    struct cli_text key;
    uint64_t position; /* the log has been read up to here */
    struct shed_tags known;
};

struct cli_tags *cli_tags_open(struct cli_redis *redis, const char *cache)
{
    struct cli_tags *tags = cli_alloc(1, sizeof(*tags));

    tags->redis = redis;
    tags->key = cli_format("%s" SHED_TAG_LOG_SUFFIX, cache);
    /* who writes the log bounds it */
    shed_tags_init(&tags->known, SIZE_MAX);
    return tags;
}

void cli_tags_close(struct cli_tags *tags)
{
    shed_tags_fini(&tags->known);
    free(tags);
}

void cli_tags_read(struct cli_tags *tags)
{
    enum shed_tag_heard heard = SHED_TAG_HEARD_PART;

    while (heard == SHED_TAG_HEARD_PART) {
        char digits[SHED_DIGITS];
        struct shed_args args;
        struct shed_reply *reply;
        shed_tag_log_ask(shed_str(tags->key.at), tags->position, digits, &args);
        /* the key can be another program's, and a sorted set whose scores are
           no positions, where the cache has no tags */
        cli_redis_about(tags->redis, shed_str(tags->key.at));
        cli_redis_send_args(tags->redis, &args);
        reply = cli_redis_hear_key(tags->redis, "ZRANGEBYSCORE", false);
        heard = shed_tag_log_hear(&tags->known, &tags->position, 0, reply);
        shed_reply_free(reply);
    }
}

struct cli_miss cli_tags_judge(const struct cli_tags *tags,
                               const struct shed_entry *entry)
{
    const struct shed_entry_tags of = {.position = entry->position,
                                       .tags = entry->tags,
                                       .tags_size = entry->tags_size};
    struct cli_miss miss = {.position = 0};
    const unsigned char *tag;
    size_t at = 0, size;

    /* from a process without the option tags_limit, which heeds no log */
    if ((entry->flags & SHED_ENTRY_POSITION) == 0)
        return miss;
    miss.is_above = entry->position > shed_tags_horizon(&tags->known);
    if (shed_tags_admit(&tags->known, &of))
        return miss;
    miss.position = shed_tags_position(&tags->known, shed_str(""));
    while ((tag = shed_entry_next_tag(of.tags, of.tags_size, &at, &size)) !=
           NULL) {
        uint64_t position =
            shed_tags_position(&tags->known, shed_bytes(tag, size));
        if (position > miss.position) {
            miss.position = position;
            miss.tag = shed_bytes(tag, size);
        }
    }
    return miss;
}
