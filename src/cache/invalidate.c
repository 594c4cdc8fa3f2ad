/* Invalidations and expiries of keys: one, or many in a pipeline. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "cache/write.h"
#include "source/job.h"

/* The same write of count keys. */
struct sweep {
    struct shed_write_batch batch;
    char *names; /* for each key the name of its refresh lease, which begins
                    with the name of the key */
    struct shed_key *keys;
    struct shed_delivery_write write;
    char in_ms[SHED_DIGITS]; /* of an expiry */
};

static void destroy_sweep(struct sweep *s)
{
    shed_write_batch_destroy(&s->batch);
    free(s->names);
    free(s->keys);
}

/* The most bytes that the names of all keys take. */
static size_t names_size(const struct shed_cache *cache,
                         const struct shed_bytes *keys, size_t count)
{
    const size_t around =
        strlen(cache->name) + strlen(":{\\}" SHED_ENTRY_REFRESH_SUFFIX);
    size_t size = 0;

    for (size_t i = 0; i < count; i++)
        size += around + keys[i].size;
    return size;
}

static enum shed_code create_sweep(const struct shed_cache *cache,
                                   const struct shed_bytes *keys, size_t count,
                                   struct sweep *s, struct shed_error *err)
{
    enum shed_code code = shed_write_batch_create(&s->batch, count, err);

    if (code != SHED_OK)
        return code;
    s->names = malloc(names_size(cache, keys, count));
    s->keys = malloc(count * sizeof(*s->keys));
    if (s->names != NULL && s->keys != NULL)
        return SHED_OK;
    destroy_sweep(s);
    return shed_fail_nomem(err, "an invalidation");
}

static void fill_sweep(const struct shed_cache *cache,
                       const struct shed_bytes *keys, struct sweep *s)
{
    char *at = s->names;

    for (size_t i = 0; i < s->batch.count; i++) {
        struct shed_named_key named;
        struct shed_key *key = &s->keys[i];
        shed_key_name(cache->name, keys[i], &named);
        *key = named.key;
        key->redis = at;
        at += shed_entry_refresh_key(named.bytes, key->redis_size, at);
        shed_delivery_begin(&s->batch.args[i], s->write.wish, key->redis,
                            key->redis_size, s->in_ms);
    }
}

/* Follow the end of each key. array: what the keys are called; NULL: there is
 * only one. Returns: see shed_write_sum. */
static enum shed_code conclude(struct shed_cache *cache, const struct sweep *s,
                               const char *array, struct shed_error *err)
{
    const bool is_expiry = s->write.wish == SHED_WISH_EXPIRE;
    struct shed_write_sum sum = {SHED_OK, true, err};

    for (size_t i = 0; i < s->batch.count; i++) {
        const struct shed_key *key = &s->keys[i];
        struct shed_error why = shed_write_batch_judge(
            &s->batch, i, is_expiry ? "the expiry" : "the invalidation");
        bool is_safe = shed_write_follow_up(cache, key, s->write, &why);
        shed_write_sum_up(&sum, array, i, &why, is_safe);
        if (!is_expiry)
            shed_write_count_invalidation(cache, shed_key_bytes(key), NULL,
                                          why.code);
    }
    shed_count_code(&cache->counters, sum.code);
    return sum.code;
}

/* Write keys that have been checked. in_ms: of an expiry. */
static enum shed_code write_keys(struct shed_cache *cache, enum shed_wish wish,
                                 const struct shed_bytes *keys, size_t count,
                                 const char *array, uint64_t in_ms,
                                 uint64_t timeout_ms, struct shed_error *err)
{
    struct sweep s = {.write = shed_delivery_mark(cache->delivery, wish)};
    enum shed_code code = create_sweep(cache, keys, count, &s, err);

    if (code != SHED_OK)
        return code;
    shed_write_digits(s.in_ms, in_ms);
    fill_sweep(cache, keys, &s);
    /* an expiry in a while does not make up for one now that was missed */
    if (in_ms > 0)
        s.write.number = 0;
    shed_write_batch_send(&s.batch, cache,
                          shed_cache_deadline_ms(cache, timeout_ms));
    code = conclude(cache, &s, array, err);
    destroy_sweep(&s);
    return code;
}

enum shed_code shed_invalidate(struct shed_cache *cache, struct shed_bytes key,
                               uint64_t timeout_ms, struct shed_error *err)
{
    enum shed_code code = shed_write_check(cache, key, timeout_ms, err);

    return code == SHED_OK ? write_keys(cache, SHED_WISH_INVALIDATE, &key, 1,
                                        NULL, 0, timeout_ms, err)
                           : code;
}

enum shed_code shed_expire(struct shed_cache *cache, struct shed_bytes key,
                           uint64_t in_ms, uint64_t timeout_ms,
                           struct shed_error *err)
{
    enum shed_code code = shed_write_check(cache, key, timeout_ms, err);

    if (code == SHED_OK && in_ms > SHED_TTL_MAX_MS)
        code = shed_fail(err, SHED_EINVAL, "in_ms is %llu, at most %llu",
                         (unsigned long long)in_ms,
                         (unsigned long long)SHED_TTL_MAX_MS);
    return code == SHED_OK ? write_keys(cache, SHED_WISH_EXPIRE, &key, 1, NULL,
                                        in_ms, timeout_ms, err)
                           : code;
}

static enum shed_code check_keys(const struct shed_bytes *keys, size_t count,
                                 struct shed_error *err)
{
    enum shed_code code = shed_cache_check_array(
        keys, count, SHED_MANY_MAX, "shed_invalidate_many", "keys", err);

    for (size_t i = 0; i < count && code == SHED_OK; i++)
        code = shed_cache_check_at(keys[i], SHED_KEY_MAX_BYTES, "keys", i, "",
                                   err);
    return code;
}

enum shed_code shed_invalidate_many(struct shed_cache *cache,
                                    const struct shed_bytes *keys, size_t count,
                                    uint64_t timeout_ms, struct shed_error *err)
{
    enum shed_code code = shed_cache_check_call(cache, timeout_ms, err);

    if (code == SHED_OK)
        code = check_keys(keys, count, err);
    if (code != SHED_OK || count == 0)
        return code;
    return write_keys(cache, SHED_WISH_INVALIDATE, keys, count, "keys", 0,
                      timeout_ms, err);
}
