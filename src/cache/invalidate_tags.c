/*
 * Invalidations of tags. Its invariants: when a call has returned, this
 * process finds the entries of its tags to be misses, unless it says that it
 * was dropped; and callers that come later get no row that a flight
 * began to load before, nor one of its tags that was kept before.
 */
#include "base/container.h"
#include "base/error.h"
#include "cache/write.h"

_Static_assert(SHED_TAG_MAX_BYTES == SHED_ENTRY_TAG_MAX_BYTES &&
                   SHED_TAGS_MAX == SHED_ENTRY_TAGS_MAX,
               "an entry has room for every tag");

struct sweep {
    struct shed_sweep sweep;
    const struct shed_bytes *tags;
    char mark[SHED_DIGITS];
    struct shed_delivery_write write;
};

static struct sweep *sweep_of(struct shed_sweep *sweep)
{
    return shed_container_of(sweep, struct sweep, sweep);
}

static void begin(struct shed_sweep *sweep, size_t i, struct shed_args *out)
{
    const struct sweep *s = sweep_of(sweep);

    shed_tag_log_write(sweep->cache->tag_log, s->tags[i], s->mark, out);
}

static bool follow_up(struct shed_sweep *sweep, size_t i,
                      const struct shed_reply *reply, struct shed_error *why)
{
    const struct sweep *s = sweep_of(sweep);
    struct shed_cache *cache = sweep->cache;
    struct shed_bytes tag = s->tags[i];
    char room[SHED_TAG_NAME_MAX_BYTES];
    struct shed_key key = shed_tag_log_key(cache->tag_log, tag, room);

    shed_write_count_invalidation(
        cache, tag, tag.size > 0 ? "the key is a tag" : "all entries",
        why->code);
    if (why->code == SHED_OK)
        shed_tag_log_note(cache->tag_log, tag,
                          (uint64_t)shed_reply_integer(reply));
    return shed_delivery_follow_up(cache->delivery, &key, s->write, why);
}

/* array: what the tags are called; NULL: it is that of all entries. */
static enum shed_code invalidate(struct shed_cache *cache,
                                 const struct shed_bytes *tags, size_t count,
                                 const char *array, uint64_t timeout_ms,
                                 struct shed_error *err)
{
    struct sweep s = {
        {cache, count, array, "to invalidate a tag", begin, follow_up},
        .tags = tags,
        .write = shed_delivery_mark(cache->delivery, SHED_WISH_TAG)};
    enum shed_code code;

    shed_tag_log_mark(cache->tag_log, s.mark);
    code = shed_sweep_run(&s.sweep, timeout_ms, err);
    shed_tag_log_add_news(cache->tag_log); /* also if none has a position */
    if (code != SHED_OK) /* no position tells old rows from new ones yet */
        shed_local_drop_all(cache->local);
    return code;
}

enum shed_code shed_cache_check_has_tags(const struct shed_cache *cache,
                                         struct shed_error *err)
{
    if (cache->tag_log != NULL)
        return SHED_OK;
    return shed_fail(
        err, SHED_EINVAL,
        "the cache has no tags: open it with the option tags_limit");
}

static enum shed_code check_call(const struct shed_cache *cache,
                                 uint64_t timeout_ms, struct shed_error *err)
{
    enum shed_code code = shed_cache_check_call(cache, timeout_ms, false, err);

    return code == SHED_OK ? shed_cache_check_has_tags(cache, err) : code;
}

enum shed_code shed_invalidate_all(struct shed_cache *cache,
                                   uint64_t timeout_ms, struct shed_error *err)
{
    const struct shed_bytes everything = {"", 0};
    enum shed_code code = check_call(cache, timeout_ms, err);

    if (code != SHED_OK)
        return code;
    return invalidate(cache, &everything, 1, NULL, timeout_ms, err);
}

enum shed_code shed_invalidate_tags(struct shed_cache *cache,
                                    const struct shed_bytes *tags, size_t count,
                                    uint64_t timeout_ms, struct shed_error *err)
{
    static const struct shed_array_rule rule = {
        "shed_invalidate_tags", "tags",       "", SHED_MANY_MAX,
        SHED_TAG_MAX_BYTES,     sizeof(*tags)};
    enum shed_code code = check_call(cache, timeout_ms, err);

    if (code == SHED_OK)
        code = shed_cache_check_array(&rule, tags, count, err);
    if (code != SHED_OK || count == 0)
        return code;
    return invalidate(cache, tags, count, "tags", timeout_ms, err);
}
