/* The log of a cache's groups, as this connection has read it. */
#include "cli/groups.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "known/group_log.h"

#define US_PER_MS 1000

struct cli_groups {
    struct cli_redis *redis;
    char key[SHED_NAME_MAX_BYTES + sizeof(SHED_GROUP_LOG_SUFFIX)];
    uint64_t position; /* the log has been read up to here */
    struct shed_groups known;
};

struct cli_groups *cli_groups_open(struct cli_redis *redis, const char *cache)
{
    struct cli_groups *groups = cli_alloc(1, sizeof(*groups));

    groups->redis = redis;
    (void)snprintf(groups->key, sizeof(groups->key), "%s" SHED_GROUP_LOG_SUFFIX,
                   cache);
    /* who writes the log bounds it */
    shed_groups_init(&groups->known, SIZE_MAX);
    return groups;
}

void cli_groups_close(struct cli_groups *groups)
{
    shed_groups_fini(&groups->known);
    free(groups);
}

void cli_groups_read(struct cli_groups *groups)
{
    enum shed_group_heard heard = SHED_GROUP_HEARD_PART;

    while (heard == SHED_GROUP_HEARD_PART) {
        struct shed_group_from from;
        struct shed_args args;
        struct shed_reply *reply;
        shed_group_log_ask(shed_bytes(groups->key, strlen(groups->key)),
                           groups->position, &from, &args);
        /* the key can be another program's, and a sorted set whose scores are
           no positions, where the cache has no groups */
        reply = cli_redis_check_key(groups->redis,
                                    cli_redis_call(groups->redis, &args),
                                    "ZRANGEBYSCORE");
        heard =
            shed_group_log_hear(&groups->known, &groups->position, 0, reply);
        shed_reply_free(reply);
    }
}

static struct shed_entry_groups groups_of(const struct shed_entry *entry)
{
    return (struct shed_entry_groups){
        .position = entry->position,
        .tags = entry->tags,
        .tags_size = entry->tags != NULL ? entry->tags_size : 0};
}

void cli_groups_judge(const struct cli_groups *groups,
                      const struct shed_entry *entry, struct cli_miss *out)
{
    struct shed_entry_groups of = groups_of(entry);
    const unsigned char *tag;
    size_t at = 0, size;

    *out = (struct cli_miss){.position = 0};
    /* from a process without the option groups, which heeds no log */
    if ((entry->flags & SHED_ENTRY_POSITION) == 0)
        return;
    out->is_above = entry->position > shed_groups_horizon(&groups->known);
    if (shed_groups_admit(&groups->known, &of))
        return;
    out->position = shed_groups_position(&groups->known, shed_str(""));
    while ((tag = shed_entry_next_tag(of.tags, of.tags_size, &at, &size)) !=
           NULL) {
        uint64_t position =
            shed_groups_position(&groups->known, shed_bytes(tag, size));
        if (position > out->position)
            *out = (struct cli_miss){.position = position,
                                     .tag = shed_bytes(tag, size)};
    }
}

bool cli_groups_want_tags(const struct cli_groups *groups,
                          const struct shed_entry *entry)
{
    return (entry->flags & SHED_ENTRY_POSITION) != 0 &&
           (entry->flags & SHED_ENTRY_TAGS) != 0 &&
           entry->position < shed_groups_horizon(&groups->known);
}

uint64_t cli_miss_ms(const struct cli_miss *miss)
{
    return miss->position / US_PER_MS;
}
