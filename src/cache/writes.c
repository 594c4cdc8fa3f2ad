/* The calls that write: puts, invalidations of keys and of tags, and expiries.
 */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/random.h"
#include "cache/write.h"
#include "source/job.h"

_Static_assert(SHED_TAG_MAX_BYTES == SHED_ENTRY_TAG_MAX_BYTES &&
                   SHED_TAGS_MAX == SHED_ENTRY_TAGS_MAX,
               "an entry has room for every tag");

/* ------------------------------------------------------------------- puts */

SHED_CHECK_OPTIONS(shed_put_options);

static enum shed_code check(const struct shed_cache *cache,
                            struct shed_bytes row,
                            const struct shed_put_options *o,
                            struct shed_error *err)
{
    static const struct shed_array_rule rule = {
        "shed_put",         "tags",          "", SHED_TAGS_MAX,
        SHED_TAG_MAX_BYTES, sizeof(*o->tags)};
    enum shed_code code = SHED_OK;

    if (o->tags_count > 0)
        code = shed_cache_check_has_tags(cache, err);
    if (code == SHED_OK)
        code = shed_cache_check_array(&rule, o->tags, o->tags_count, err);
    if (code != SHED_OK)
        return code;
    if (o->ttl_ms > SHED_TTL_MAX_MS)
        return shed_fail(err, SHED_EINVAL, "put ttl_ms is %llu, at most %llu",
                         (unsigned long long)o->ttl_ms,
                         (unsigned long long)SHED_TTL_MAX_MS);
    if (row.data == NULL && row.size > 0)
        return shed_fail(err, SHED_EINVAL, "row is NULL");
    if (row.size > cache->options.value_limit_bytes)
        return shed_fail(
            err, SHED_ETOOBIG, "row has %zu bytes, value_limit_bytes is %llu",
            row.size, (unsigned long long)cache->options.value_limit_bytes);
    return SHED_OK;
}

static size_t tags_room(const struct shed_put_options *o)
{
    size_t size = 0;

    for (size_t i = 0; i < o->tags_count; i++)
        size = SHED_ENTRY_TAG_ROOM_BYTES(size, o->tags[i].size);
    return size;
}

static enum shed_code set(struct shed_put_row *p,
                          const struct shed_cache *cache, struct shed_bytes row,
                          const struct shed_put_options *o, unsigned char *tags,
                          struct shed_error *err)
{
    *p = (struct shed_put_row){.row = row,
                               .ttl_ms = o->ttl_ms,
                               .has_version = o->version != NULL,
                               .version = o->version != NULL ? *o->version : 0,
                               .has_position = cache->tag_log != NULL,
                               .tags = tags};
    for (size_t i = 0; i < o->tags_count; i++)
        p->tags_size = shed_entry_add_tag(tags, p->tags_size, o->tags[i].data,
                                          o->tags[i].size);
    return shed_random_token(p->nonce, sizeof(p->nonce), err);
}

/* Check the call, and make the write. */
static enum shed_code create_put(struct shed_cache *cache,
                                 struct shed_bytes key, struct shed_bytes row,
                                 const struct shed_put_options *options,
                                 bool is_async, struct shed_write **out,
                                 struct shed_error *err)
{
    struct shed_put_options o = SHED_PUT_OPTIONS_INIT;
    unsigned char *tags;
    struct shed_write *w;
    enum shed_code code = shed_options_take(&o, sizeof(o), options,
                                            "struct shed_put_options", err);

    if (code == SHED_OK)
        code =
            shed_cache_check_key_call(cache, key, o.timeout_ms, is_async, err);
    if (code == SHED_OK)
        code = check(cache, row, &o, err);
    if (code != SHED_OK)
        return code;
    w = shed_write_create(cache, SHED_WISH_INVALIDATE, key, o.timeout_ms,
                          tags_room(&o) + row.size);
    if (w == NULL)
        return shed_fail_nomem(err, "a put");
    tags = (unsigned char *)w->refresh + w->redis_size +
           SHED_ENTRY_REFRESH_SUFFIX_BYTES;
    if (row.size > 0)
        row.data = memcpy(tags + tags_room(&o), row.data, row.size);
    w->is_put = true;
    /* one with a version can be older than what was missed: it makes up for
       nothing */
    if (o.version != NULL)
        w->mark.number = 0;
    code = set(&w->put, cache, row, &o, tags, err);
    if (code == SHED_OK)
        *out = w;
    else
        free(w);
    return code;
}

enum shed_code shed_put(struct shed_cache *cache, struct shed_bytes key,
                        struct shed_bytes row,
                        const struct shed_put_options *options,
                        struct shed_error *err)
{
    struct shed_write *w;
    enum shed_code code = create_put(cache, key, row, options, false, &w, err);

    return code == SHED_OK ? shed_write_await(w, err) : code;
}

enum shed_code shed_put_async(struct shed_cache *cache, struct shed_bytes key,
                              struct shed_bytes row,
                              const struct shed_put_options *options,
                              const struct shed_then *then,
                              struct shed_pending **pending,
                              struct shed_error *err)
{
    struct shed_write *w;
    enum shed_code code = shed_async_check(then, pending, err);

    if (code == SHED_OK)
        code = create_put(cache, key, row, options, true, &w, err);
    return code == SHED_OK ? shed_write_submit(w, then, pending, err) : code;
}

/* ------------------------------------------------------ invalidations,
 * expiries */

/* in_ms: of an expiry. */
static enum shed_code write_one(struct shed_cache *cache, enum shed_wish wish,
                                struct shed_bytes key, uint64_t in_ms,
                                uint64_t timeout_ms, struct shed_error *err)
{
    struct shed_write *w = shed_write_create(cache, wish, key, timeout_ms, 0);

    if (w == NULL)
        return shed_fail_nomem(err, "an invalidation");
    if (in_ms > 0) {
        shed_write_digits(w->number, in_ms);
        /* it does not make up for one now that was missed */
        w->mark.number = 0;
    }
    return shed_write_await(w, err);
}

/* Of keys, or tags, which the caller has in an array of this name. */
static enum shed_code write_many(struct shed_cache *cache, enum shed_wish wish,
                                 const struct shed_bytes *keys, size_t count,
                                 const char *array, uint64_t timeout_ms,
                                 struct shed_error *err)
{
    struct shed_write **writes = malloc(count * sizeof(struct shed_write *));
    enum shed_code code = SHED_OK;
    size_t made = 0;

    while (writes != NULL && made < count) {
        writes[made] =
            shed_write_create(cache, wish, keys[made], timeout_ms, 0);
        if (writes[made] == NULL)
            break;
        made++;
    }
    if (made == count) {
        code = shed_writes_await(writes, count, array, err);
    } else {
        while (made > 0)
            free(writes[--made]);
        code = shed_fail_nomem(err, "an invalidation");
    }
    free(writes);
    return code;
}

/* After an invalidation of tags has ended: callers that come later get no row
 * that a flight began to load before, nor one that was kept before. Returns:
 * code. */
static enum shed_code end_tags(struct shed_cache *cache, enum shed_code code)
{
    shed_tag_log_add_news(cache->tag_log); /* also if none has a position */
    if (code != SHED_OK) /* no position tells old rows from new ones yet */
        shed_local_drop_all(cache->local);
    return code;
}

enum shed_code shed_invalidate(struct shed_cache *cache, struct shed_bytes key,
                               uint64_t timeout_ms, struct shed_error *err)
{
    enum shed_code code =
        shed_cache_check_key_call(cache, key, timeout_ms, false, err);

    return code == SHED_OK
               ? write_one(cache, SHED_WISH_INVALIDATE, key, 0, timeout_ms, err)
               : code;
}

enum shed_code shed_invalidate_async(struct shed_cache *cache,
                                     struct shed_bytes key, uint64_t timeout_ms,
                                     const struct shed_then *then,
                                     struct shed_pending **pending,
                                     struct shed_error *err)
{
    struct shed_write *w;
    enum shed_code code = shed_async_check(then, pending, err);

    if (code == SHED_OK)
        code = shed_cache_check_key_call(cache, key, timeout_ms, true, err);
    if (code != SHED_OK)
        return code;
    w = shed_write_create(cache, SHED_WISH_INVALIDATE, key, timeout_ms, 0);
    return w != NULL ? shed_write_submit(w, then, pending, err)
                     : shed_fail_nomem(err, "an invalidation");
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
    return code == SHED_OK
               ? write_one(cache, SHED_WISH_EXPIRE, key, in_ms, timeout_ms, err)
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
    return write_many(cache, SHED_WISH_INVALIDATE, keys, count, "keys",
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
    enum shed_code code = check_tags_call(cache, timeout_ms, err);

    if (code != SHED_OK)
        return code;
    code = write_one(cache, SHED_WISH_TAG, shed_str(""), 0, timeout_ms, err);
    return end_tags(cache, code);
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
    code =
        write_many(cache, SHED_WISH_TAG, tags, count, "tags", timeout_ms, err);
    return end_tags(cache, code);
}
