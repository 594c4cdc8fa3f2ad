/*
 * Invalidations of tags. Its invariants: when a call has returned, this
 * process finds the entries of its tags to be misses, unless it says that it
 * was dropped; and callers that come later get no row that a flight
 * began to load before, nor one of its tags that was kept before.
 */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "cache/cache.h"

_Static_assert(SHED_TAG_MAX_BYTES == SHED_ENTRY_TAG_MAX_BYTES &&
                   SHED_TAGS_MAX == SHED_ENTRY_TAGS_MAX,
               "an entry has room for every tag");

/* The calls for many tags; arrays of count. */
struct sweep {
    size_t count;
    const struct shed_bytes *tags;
    struct shed_tag_mark mark;
    uint64_t number; /* of the failures that it makes up for */
    struct shed_args *args;
    struct shed_reply **replies;
};

static void destroy_sweep(struct sweep *s)
{
    if (s->replies != NULL)
        shed_reply_free_all(s->replies, s->count);
    free(s->args);
    free(s->replies);
}

static enum shed_code create_sweep(struct shed_cache *cache, struct sweep *s,
                                   struct shed_error *err)
{
    s->args = malloc(s->count * sizeof(*s->args));
    s->replies = calloc(s->count, sizeof(struct shed_reply *));
    if (s->args == NULL || s->replies == NULL) {
        destroy_sweep(s);
        return shed_fail_nomem(err, "an invalidation of tags");
    }
    s->number = shed_delivery_mark(cache->delivery);
    shed_tag_log_mark(cache->tag_log, &s->mark);
    for (size_t i = 0; i < s->count; i++) {
        shed_tag_log_write(cache->tag_log, s->tags[i], &s->mark, &s->args[i]);
        s->args[i].is_guarded = true;
    }
    return SHED_OK;
}

/* How one call ended; all is how the pipeline did. */
static struct shed_error judge(const struct sweep *s, size_t i,
                               const struct shed_error *all)
{
    struct shed_error why = *all;
    long long position = shed_reply_integer(s->replies[i]);
    const char *text = shed_reply_error(s->replies[i]);

    if (why.code == SHED_OK && position <= 0)
        (void)shed_fail(
            &why, text != NULL ? shed_reply_code(s->replies[i]) : SHED_EREDIS,
            "Redis refused to invalidate a tag: %s",
            text != NULL ? text : "a reply of an unknown form");
    return why;
}

/* Follow the end of one call, which why describes, and afterwards what becomes
 * of it. Returns: false if it was dropped. */
static bool follow_up(struct shed_cache *cache, const struct sweep *s, size_t i,
                      struct shed_error *why)
{
    struct shed_bytes tag = s->tags[i];

    shed_cache_count_invalidation(
        cache, tag, tag.size > 0 ? "the key is a tag" : "all entries",
        why->code);
    if (why->code == SHED_OK) {
        shed_tag_log_note(cache->tag_log, tag,
                          (uint64_t)shed_reply_integer(s->replies[i]));
        shed_delivery_settle_tag(cache->delivery, tag, s->number);
        return true;
    }
    return why->code != SHED_ENOMEM &&
           shed_delivery_add_tag(cache->delivery, tag, why);
}

/* Follow the end of each call; all is how the pipeline ended. Returns: see
 * shed_sum. */
static enum shed_code conclude(struct shed_cache *cache, const struct sweep *s,
                               const struct shed_error *all,
                               struct shed_error *err)
{
    struct shed_sum sum = {SHED_OK, true, err};

    for (size_t i = 0; i < s->count; i++) {
        struct shed_error why = judge(s, i, all);
        bool is_safe = follow_up(cache, s, i, &why);
        shed_cache_sum_up(&sum, s->tags[i].size > 0 ? "tags" : NULL, i, &why,
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
    struct sweep s = {.count = count, .tags = tags};
    struct shed_error all = {SHED_OK, ""};
    unsigned sent; /* twice is as good as once */
    enum shed_code code = create_sweep(cache, &s, err);

    if (code != SHED_OK)
        return code;
    if (shed_links_call_script(cache->client->links, s.args, count, s.replies,
                               &sent, shed_cache_deadline_ms(cache, timeout_ms),
                               &all) != SHED_OK)
        memset(s.replies, 0,
               count * sizeof(struct shed_reply *)); /* there are none */
    code = conclude(cache, &s, &all, err);
    destroy_sweep(&s);
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
