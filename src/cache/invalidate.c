/* Invalidations and expiries of keys: one, or many in a pipeline. */
#include <stdlib.h>
#include <string.h>

#include "base/container.h"
#include "base/error.h"
#include "cache/write.h"
#include "source/job.h"

/* The same write of count keys. */
struct sweep {
    struct shed_sweep sweep;
    const struct shed_bytes *given;
    struct shed_key *keys;
    char *at; /* in names: where the next begins */
    struct shed_delivery_write write;
    char in_ms[SHED_DIGITS]; /* of an expiry */
};

static struct sweep *sweep_of(struct shed_sweep *sweep)
{
    return shed_container_of(sweep, struct sweep, sweep);
}

/* The most bytes that the names of all keys take: of each the name of its
 * refresh lease, which begins with that of the key. */
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

static void begin(struct shed_sweep *sweep, size_t i, struct shed_args *out)
{
    struct sweep *s = sweep_of(sweep);
    struct shed_key *key = &s->keys[i];
    struct shed_named_key named;

    shed_key_name(sweep->cache->name, s->given[i], &named);
    *key = named.key;
    key->redis = s->at;
    s->at += shed_entry_refresh_key(named.bytes, key->redis_size, s->at);
    shed_delivery_begin(out, s->write.wish, key->redis, key->redis_size,
                        s->in_ms);
}

static bool follow_up(struct shed_sweep *sweep, size_t i,
                      const struct shed_reply *reply, struct shed_error *why)
{
    const struct sweep *s = sweep_of(sweep);
    const struct shed_key *key = &s->keys[i];
    enum shed_code code = why->code;
    bool is_safe = shed_write_follow_up(sweep->cache, key, s->write, why);

    (void)reply;
    if (s->write.wish != SHED_WISH_EXPIRE)
        shed_write_count_invalidation(sweep->cache, shed_key_bytes(key), NULL,
                                      code);
    return is_safe;
}

/* Write keys that have been checked. in_ms: of an expiry. */
static enum shed_code write_keys(struct shed_cache *cache, enum shed_wish wish,
                                 const struct shed_bytes *keys, size_t count,
                                 const char *array, uint64_t in_ms,
                                 uint64_t timeout_ms, struct shed_error *err)
{
    const char *what =
        wish == SHED_WISH_EXPIRE ? "the expiry" : "the invalidation";
    char *names = malloc(names_size(cache, keys, count));
    struct sweep s = {{cache, count, array, what, begin, follow_up},
                      .given = keys,
                      .keys = malloc(count * sizeof(*s.keys)),
                      .at = names,
                      .write = shed_delivery_mark(cache->delivery, wish)};
    enum shed_code code;

    shed_write_digits(s.in_ms, in_ms);
    /* an expiry in a while does not make up for one now that was missed */
    if (in_ms > 0)
        s.write.number = 0;
    if (names == NULL || s.keys == NULL)
        code = shed_fail_nomem(err, "an invalidation");
    else
        code = shed_sweep_run(&s.sweep, timeout_ms, err);
    free(names);
    free(s.keys);
    return code;
}

enum shed_code shed_invalidate(struct shed_cache *cache, struct shed_bytes key,
                               uint64_t timeout_ms, struct shed_error *err)
{
    enum shed_code code =
        shed_cache_check_key_call(cache, key, timeout_ms, false, err);

    return code == SHED_OK ? write_keys(cache, SHED_WISH_INVALIDATE, &key, 1,
                                        NULL, 0, timeout_ms, err)
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
    return code == SHED_OK ? write_keys(cache, SHED_WISH_EXPIRE, &key, 1, NULL,
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
    return write_keys(cache, SHED_WISH_INVALIDATE, keys, count, "keys", 0,
                      timeout_ms, err);
}
