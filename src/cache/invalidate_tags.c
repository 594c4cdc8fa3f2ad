/*
 * Invalidations of tags. Its invariants: when a call has returned, this
 * process finds the entries of its tags to be misses, unless it says that it
 * was dropped; and callers that come later get no row that a flight
 * began to load before, nor one of its tags that was kept before.
 */
#include "base/error.h"
#include "cache/write.h"

_Static_assert(SHED_TAG_MAX_BYTES == SHED_ENTRY_TAG_MAX_BYTES &&
                   SHED_TAGS_MAX == SHED_ENTRY_TAGS_MAX,
               "an entry has room for every tag");

/* Invalidations of tags, which go in one pipeline. */
struct sweep {
    struct shed_write_batch batch;
    const struct shed_bytes *tags;
    struct shed_tag_mark mark;
    uint64_t number; /* of the failures that it makes up for */
};

static void fill_sweep(struct shed_cache *cache, struct sweep *s)
{
    s->number = shed_delivery_mark(cache->delivery, SHED_WISH_TAG).number;
    shed_tag_log_mark(cache->tag_log, &s->mark);
    for (size_t i = 0; i < s->batch.count; i++)
        shed_tag_log_write(cache->tag_log, s->tags[i], &s->mark,
                           &s->batch.args[i]);
}

/* Follow the end of one call, which why describes, and afterwards what becomes
 * of it. Returns: false if it was dropped. */
static bool follow_up(struct shed_cache *cache, const struct sweep *s, size_t i,
                      struct shed_error *why)
{
    struct shed_bytes tag = s->tags[i];

    shed_write_count_invalidation(
        cache, tag, tag.size > 0 ? "the key is a tag" : "all entries",
        why->code);
    if (why->code == SHED_OK) {
        shed_tag_log_note(cache->tag_log, tag,
                          (uint64_t)shed_reply_integer(s->batch.replies[i]));
        shed_delivery_settle_tag(cache->delivery, tag, s->number);
        return true;
    }
    return why->code != SHED_ENOMEM &&
           shed_delivery_add_tag(cache->delivery, tag, why);
}

/* Follow the end of each call. Returns: see shed_write_sum. */
static enum shed_code conclude(struct shed_cache *cache, const struct sweep *s,
                               struct shed_error *err)
{
    struct shed_write_sum sum = {SHED_OK, true, err};

    for (size_t i = 0; i < s->batch.count; i++) {
        struct shed_error why =
            shed_write_batch_judge(&s->batch, i, "to invalidate a tag");
        bool is_safe = follow_up(cache, s, i, &why);
        shed_write_sum_up(&sum, s->tags[i].size > 0 ? "tags" : NULL, i, &why,
                          is_safe);
    }
    shed_tag_log_add_news(cache->tag_log); /* also if none has a position */
    if (sum.code != SHED_OK) /* no position tells old rows from new ones yet */
        shed_local_drop_all(cache->local);
    shed_count_code(&cache->counters, sum.code);
    return sum.code;
}

static enum shed_code invalidate(struct shed_cache *cache,
                                 const struct shed_bytes *tags, size_t count,
                                 uint64_t timeout_ms, struct shed_error *err)
{
    struct sweep s = {.tags = tags};
    enum shed_code code = shed_write_batch_create(&s.batch, count, err);

    if (code != SHED_OK)
        return code;
    fill_sweep(cache, &s);
    shed_write_batch_send(&s.batch, cache,
                          shed_cache_deadline_ms(cache, timeout_ms));
    code = conclude(cache, &s, err);
    shed_write_batch_destroy(&s.batch);
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
    enum shed_code code = shed_cache_check_call(cache, timeout_ms, err);

    return code == SHED_OK ? shed_cache_check_has_tags(cache, err) : code;
}

enum shed_code shed_cache_check_tags(const struct shed_bytes *tags,
                                     size_t count, size_t limit,
                                     const char *call, struct shed_error *err)
{
    enum shed_code code =
        shed_cache_check_array(tags, count, limit, call, "tags", err);

    for (size_t i = 0; i < count && code == SHED_OK; i++)
        code = shed_cache_check_at(tags[i], SHED_TAG_MAX_BYTES, "tags", i, "",
                                   err);
    return code;
}

enum shed_code shed_invalidate_all(struct shed_cache *cache,
                                   uint64_t timeout_ms, struct shed_error *err)
{
    const struct shed_bytes everything = {"", 0};
    enum shed_code code = check_call(cache, timeout_ms, err);

    if (code != SHED_OK)
        return code;
    return invalidate(cache, &everything, 1, timeout_ms, err);
}

enum shed_code shed_invalidate_tags(struct shed_cache *cache,
                                    const struct shed_bytes *tags, size_t count,
                                    uint64_t timeout_ms, struct shed_error *err)
{
    enum shed_code code = check_call(cache, timeout_ms, err);

    if (code == SHED_OK)
        code = shed_cache_check_tags(tags, count, SHED_MANY_MAX,
                                     "shed_invalidate_tags", err);
    if (code != SHED_OK || count == 0)
        return code;
    return invalidate(cache, tags, count, timeout_ms, err);
}
