/*
 * Invalidations of keys and of tags, and expiries: one, or many in a pipeline.
 * Its invariants, of tags: when a call has returned, this process finds the
 * entries of its tags to be misses, unless it says that it was dropped; and
 * callers that come later get no row that a flight began to load before, nor
 * one of its tags that was kept before. Those of keys are in write.c.
 */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "cache/write.h"
#include "source/job.h"

_Static_assert(SHED_TAG_MAX_BYTES == SHED_ENTRY_TAG_MAX_BYTES &&
                   SHED_TAGS_MAX == SHED_ENTRY_TAGS_MAX,
               "an entry has room for every tag");

/* The same write of many keys, or tags. */
struct sweep {
    struct shed_cache *cache;
    const struct shed_bytes *given; /* keys; or tags, one of no bytes for all */
    size_t count;
    const char *array; /* what they are called; NULL: there is only one */
    struct shed_delivery_write write;
    char digits[SHED_DIGITS]; /* of an expiry: when; of tags: their log's end */
    struct shed_key *keys;    /* not of tags */
    char *names;              /* theirs: see names_size */
    struct shed_args *args;
    struct shed_reply **replies;
};

static bool is_of_tags(const struct sweep *s)
{
    return s->write.wish == SHED_WISH_TAG;
}

/* ------------------------------------------------------------------ sending */

/* The most bytes that the names of all keys take: of each the name of its
 * refresh lease, which begins with that of the key. */
static size_t names_size(const struct sweep *s)
{
    const size_t around =
        strlen(s->cache->name) + strlen(":{\\}" SHED_ENTRY_REFRESH_SUFFIX);
    size_t size = 1; /* malloc may give nothing for 0 bytes */

    for (size_t i = 0; i < s->count; i++)
        size += around + s->given[i].size;
    return size;
}

/* Returns: whether there was memory. */
static bool allocate(struct sweep *s)
{
    s->names = malloc(names_size(s));
    s->keys = calloc(s->count, sizeof(*s->keys));
    s->args = malloc(s->count * sizeof(*s->args));
    s->replies = calloc(s->count, sizeof(struct shed_reply *));
    return s->names != NULL && s->keys != NULL && s->args != NULL &&
           s->replies != NULL;
}

/* name: where the next one goes. */
static void begin(struct sweep *s, size_t i, char **name)
{
    struct shed_key *key = &s->keys[i];
    struct shed_named_key named;

    if (is_of_tags(s)) {
        shed_tag_log_write(s->cache->tag_log, s->given[i], s->digits,
                           &s->args[i]);
    } else {
        shed_key_name(s->cache->name, s->given[i], &named);
        *key = named.key;
        key->redis = *name;
        *name += shed_entry_refresh_key(named.bytes, key->redis_size, *name);
        shed_delivery_begin(&s->args[i], s->write.wish, key->redis,
                            key->redis_size, s->digits);
    }
    s->args[i].is_guarded = true;
}

/* Returns: how the calls as a whole have ended. */
static struct shed_error send_all(struct sweep *s, uint64_t timeout_ms)
{
    struct shed_error all = {SHED_OK, ""};
    char *name = s->names;

    for (size_t i = 0; i < s->count; i++)
        begin(s, i, &name);
    /* twice is as good as once */
    if (shed_client_call(s->cache->client, s->args, s->count, s->replies, NULL,
                         NULL, shed_cache_deadline_ms(s->cache, timeout_ms),
                         &all) != SHED_OK)
        memset(s->replies, 0,
               s->count * sizeof(struct shed_reply *)); /* none */
    return all;
}

/* ---------------------------------------------------------------- following */

/* Follow the end of one, which why describes, and afterwards what becomes of
 * the write. Returns: false if it was dropped. */
static bool follow_up_tag(const struct sweep *s, size_t i,
                          struct shed_error *why)
{
    struct shed_cache *cache = s->cache;
    char room[SHED_TAG_NAME_MAX_BYTES];
    struct shed_key key = shed_tag_log_key(cache->tag_log, s->given[i], room);

    shed_write_count_invalidation(
        cache, s->given[i],
        s->given[i].size > 0 ? "the key is a tag" : "all entries", why->code);
    if (why->code == SHED_OK)
        shed_tag_log_note(cache->tag_log, s->given[i],
                          (uint64_t)shed_reply_integer(s->replies[i]));
    return shed_delivery_follow_up(cache->delivery, &key, s->write, why);
}

static bool follow_up_key(const struct sweep *s, size_t i,
                          struct shed_error *why)
{
    enum shed_code code = why->code;
    bool is_safe = shed_write_follow_up(s->cache, &s->keys[i], s->write, why);

    if (s->write.wish != SHED_WISH_EXPIRE)
        shed_write_count_invalidation(s->cache, s->given[i], NULL, code);
    return is_safe;
}

/* How a sweep ends. */
struct sum {
    enum shed_code code;
    bool are_safe; /* no failed write was dropped */
};

/* Add the end of write i, which why tells. */
static void sum_up(const struct sweep *s, struct sum *sum, size_t i,
                   const struct shed_error *why, bool is_safe,
                   struct shed_error *err)
{
    bool is_first = sum->code == SHED_OK;

    if (why->code == SHED_OK)
        return;
    if (is_first)
        sum->code = why->code;
    if (is_first && s->array == NULL)
        (void)shed_fail(err, sum->code, "%s", why->reason);
    else if (is_first || (sum->are_safe && !is_safe))
        (void)shed_fail(err, sum->code, "%s[%zu]: %s", s->array, i,
                        why->reason);
    sum->are_safe = sum->are_safe && is_safe;
}

static enum shed_code follow_up(const struct sweep *s,
                                const struct shed_error *all,
                                struct shed_error *err)
{
    static const char *const what[] = {
        [SHED_WISH_EXPIRE] = "the expiry",
        [SHED_WISH_INVALIDATE] = "the invalidation",
        [SHED_WISH_TAG] = "to invalidate a tag",
    };
    struct sum sum = {SHED_OK, true};

    for (size_t i = 0; i < s->count; i++) {
        struct shed_error why =
            shed_write_judge(s->replies[i], all, what[s->write.wish]);
        bool is_safe = is_of_tags(s) ? follow_up_tag(s, i, &why)
                                     : follow_up_key(s, i, &why);
        sum_up(s, &sum, i, &why, is_safe, err);
    }
    shed_count_code(&s->cache->counters, sum.code);
    shed_reply_free_all(s->replies, s->count);
    return sum.code;
}

/* Write what has been checked; in_ms: of an expiry. Such writes may be carried
 * out late, or twice. Returns: SHED_OK, or why the first one failed that did;
 * the reason is that of the first that was dropped, else of the first. */
static enum shed_code sweep(struct shed_cache *cache, enum shed_wish wish,
                            const struct shed_bytes *given, size_t count,
                            const char *array, uint64_t in_ms,
                            uint64_t timeout_ms, struct shed_error *err)
{
    struct sweep s = {.cache = cache,
                      .given = given,
                      .count = count,
                      .array = array,
                      .write = shed_delivery_mark(cache->delivery, wish)};
    enum shed_code code;

    shed_write_digits(s.digits, in_ms);
    /* an expiry in a while does not make up for one now that was missed */
    if (in_ms > 0)
        s.write.number = 0;
    if (is_of_tags(&s))
        shed_tag_log_mark(cache->tag_log, s.digits);
    if (allocate(&s)) {
        struct shed_error all = send_all(&s, timeout_ms);
        code = follow_up(&s, &all, err);
    } else {
        code = shed_fail_nomem(err, "an invalidation");
    }
    if (is_of_tags(&s)) {
        shed_tag_log_add_news(cache->tag_log); /* also if none has a position */
        if (code != SHED_OK) /* no position tells old rows from new ones yet */
            shed_local_drop_all(cache->local);
    }
    free(s.names);
    free(s.keys);
    free(s.args);
    free(s.replies);
    return code;
}

/* ---------------------------------------------------------------- the calls */

enum shed_code shed_invalidate(struct shed_cache *cache, struct shed_bytes key,
                               uint64_t timeout_ms, struct shed_error *err)
{
    enum shed_code code =
        shed_cache_check_key_call(cache, key, timeout_ms, false, err);

    return code == SHED_OK ? sweep(cache, SHED_WISH_INVALIDATE, &key, 1, NULL,
                                   0, timeout_ms, err)
                           : code;
}

enum shed_code shed_expire(struct shed_cache *cache, struct shed_bytes key,
                           uint64_t in_ms, uint64_t timeout_ms,
                           struct shed_error *err)
{
    enum shed_code code =
        shed_cache_check_key_call(cache, key, timeout_ms, false, err);

    if (code == SHED_OK && in_ms > SHED_TTL_MAX_MS)
        code = shed_fail(err, SHED_EINVAL, "in_ms is %llu, at most %llu",
                         (unsigned long long)in_ms,
                         (unsigned long long)SHED_TTL_MAX_MS);
    return code == SHED_OK ? sweep(cache, SHED_WISH_EXPIRE, &key, 1, NULL,
                                   in_ms, timeout_ms, err)
                           : code;
}

enum shed_code shed_invalidate_many(struct shed_cache *cache,
                                    const struct shed_bytes *keys, size_t count,
                                    uint64_t timeout_ms, struct shed_error *err)
{
    static const struct shed_array_rule rule = {
        "shed_invalidate_many", "keys",       "", SHED_MANY_MAX,
        SHED_KEY_MAX_BYTES,     sizeof(*keys)};
    enum shed_code code = shed_cache_check_call(cache, timeout_ms, false, err);

    if (code == SHED_OK)
        code = shed_cache_check_array(&rule, keys, count, err);
    if (code != SHED_OK || count == 0)
        return code;
    return sweep(cache, SHED_WISH_INVALIDATE, keys, count, "keys", 0,
                 timeout_ms, err);
}

static enum shed_code check_tags_call(const struct shed_cache *cache,
                                      uint64_t timeout_ms,
                                      struct shed_error *err)
{
    enum shed_code code = shed_cache_check_call(cache, timeout_ms, false, err);

    return code == SHED_OK ? shed_cache_check_has_tags(cache, err) : code;
}

enum shed_code shed_invalidate_all(struct shed_cache *cache,
                                   uint64_t timeout_ms, struct shed_error *err)
{
    const struct shed_bytes everything = {"", 0};
    enum shed_code code = check_tags_call(cache, timeout_ms, err);

    if (code != SHED_OK)
        return code;
    return sweep(cache, SHED_WISH_TAG, &everything, 1, NULL, 0, timeout_ms,
                 err);
}

enum shed_code shed_invalidate_tags(struct shed_cache *cache,
                                    const struct shed_bytes *tags, size_t count,
                                    uint64_t timeout_ms, struct shed_error *err)
{
    static const struct shed_array_rule rule = {
        "shed_invalidate_tags", "tags",       "", SHED_MANY_MAX,
        SHED_TAG_MAX_BYTES,     sizeof(*tags)};
    enum shed_code code = check_tags_call(cache, timeout_ms, err);

    if (code == SHED_OK)
        code = shed_cache_check_array(&rule, tags, count, err);
    if (code != SHED_OK || count == 0)
        return code;
    return sweep(cache, SHED_WISH_TAG, tags, count, "tags", 0, timeout_ms, err);
}
