/*
 * The get of one key. Its invariants: nothing is sent for a call whose
 * arguments are wrong; a hit costs one GET in the caller's thread.
 */
#include "cache/get.h"

#include "base/clock.h"
#include "base/error.h"

enum shed_code shed_get_after_failure(const struct shed_cache *cache,
                                      enum shed_code code)
{
    bool can_load = cache->options.redis_down == SHED_REDIS_DOWN_SOURCE;

    return code == SHED_EREDIS && can_load ? SHED_OK : code;
}

/* One GET in this thread. */
static enum shed_code try_get(struct shed_cache *cache,
                              const struct shed_key *key, uint64_t deadline_ms,
                              struct shed_look *look, struct shed_error *err)
{
    struct shed_args args = {0};
    struct shed_reply *reply = NULL;
    struct shed_link_use use;
    enum shed_code code;

    shed_args_add_text(&args, "GET");
    shed_args_add(&args, key->redis, key->redis_size);
    code = shed_links_call(cache->client->links, &args, 1, &reply, &use,
                           deadline_ms, err);
    if (code != SHED_OK)
        return shed_get_after_failure(cache, code);
    return shed_look_at(cache, key, reply, &use, look, err);
}

/* Whether a GET comes first. Where a flight is under way its answer will do,
 * unless the call may need an old value to fall back on; and what GET finds may
 * be older than an invalidation that Redis has missed. */
static bool looks_first(const struct shed_cache *cache,
                        const struct shed_key *key)
{
    if (shed_outbox_has(cache->outbox, key))
        return false;
    return cache->rule.if_error_ms > 0 ||
           !shed_flights_has(cache->flights, key);
}

/* The slow path of one key. */
static enum shed_code get_slow(struct shed_cache *cache,
                               const struct shed_named_key *named,
                               struct shed_look *look, uint64_t deadline_ms,
                               struct shed_value **out, struct shed_error *why)
{
    struct shed_item item = {.code = SHED_OK};
    struct shed_caller caller = {0};
    struct shed_gets gets = {&item, named, look, &caller, 1};

    shed_get_slow(cache, &gets, deadline_ms);
    *out = item.value;
    *why = caller.error;
    return item.code;
}

enum shed_code shed_get(struct shed_cache *cache, struct shed_bytes key,
                        uint64_t timeout_ms, struct shed_value **out,
                        struct shed_error *err)
{
    struct shed_named_key named;
    struct shed_look look = {NULL, NULL};
    struct shed_error why = {SHED_OK, ""};
    uint64_t start_us, deadline_ms;
    enum shed_code code;

    if (out == NULL)
        return shed_fail(err, SHED_EINVAL, "shed_get: out is NULL");
    *out = NULL;
    code = shed_cache_check_call(cache, timeout_ms, err);
    if (code == SHED_OK)
        code = shed_cache_check_key(key, "key", err);
    if (code != SHED_OK)
        return code;
    start_us = shed_now_us();
    deadline_ms = shed_cache_deadline_ms(cache, timeout_ms);
    shed_cache_name_key(cache, key, &named);
    if (looks_first(cache, &named.key))
        code = try_get(cache, &named.key, deadline_ms, &look, &why);
    *out = look.value;
    if (*out != NULL) {
        shed_histogram_add(&cache->counters.hit_us, shed_now_us() - start_us);
        return SHED_OK;
    }
    if (code == SHED_OK) {
        code = get_slow(cache, &named, &look, deadline_ms, out, &why);
        shed_histogram_add(&cache->counters.miss_us, shed_now_us() - start_us);
    }
    shed_count_code(&cache->counters, code);
    if (code != SHED_OK && err != NULL)
        *err = why;
    return code;
}
