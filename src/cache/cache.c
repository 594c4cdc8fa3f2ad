/*
 * Opening and closing a cache, and what all its calls share: checks and
 * deadlines.
 */
#include "cache/cache.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/thread.h"
#include "cache/pending.h"
#include "client/probe.h"
#include "known/local.h"

/* The ranges that snowshed.h states. */
#define JITTER_MAX_PCT 90
#define FAILURE_TTL_MAX_MS 60000
#define LEASE_MIN_MS 10
#define LEASE_MAX_MS 600000
#define VALUE_MAX_BYTES ((uint64_t)256 << 20)
#define PENDING_MAX 100000
#define TAGS_MAX 100000
#define LOCAL_MIN_BYTES 65536
#define LOCAL_MAX_BYTES ((uint64_t)1 << 40)
#define NEAR_MIN_BYTES ((uint64_t)1 << 20)
#define NEAR_MAX_MS 3600000
#define ASYNC_MAX 10000000

/* ----------------------------------------------------------------- checks */

SHED_CHECK_OPTIONS(shed_cache_options);

static enum shed_code check_options(const struct shed_cache_options *o,
                                    struct shed_error *err)
{
    const struct shed_range ranges[] = {
        {o->ttl_ms, 1, SHED_TTL_MAX_MS, "cache ttl_ms"},
        {o->ttl_jitter_pct, 0, JITTER_MAX_PCT, "cache ttl_jitter_pct"},
        {o->negative_ttl_ms, 0, SHED_TTL_MAX_MS, "cache negative_ttl_ms"},
        {o->failure_ttl_ms, 0, FAILURE_TTL_MAX_MS, "cache failure_ttl_ms"},
        {o->lease_ms, LEASE_MIN_MS, LEASE_MAX_MS, "cache lease_ms"},
        {o->timeout_ms, 1, SHED_TIMEOUT_MAX_MS, "cache timeout_ms"},
        {o->value_limit_bytes, 1, VALUE_MAX_BYTES, "cache value_limit_bytes"},
        {o->redis_down, SHED_REDIS_DOWN_SOURCE, SHED_REDIS_DOWN_STALE,
         "cache redis_down"},
        {o->refresh_after_pct, 0, 100, "cache refresh_after_pct"},
        {o->stale_while_revalidate_ms, 0, SHED_TTL_MAX_MS,
         "cache stale_while_revalidate_ms"},
        {o->stale_if_error_ms, 0, SHED_TTL_MAX_MS, "cache stale_if_error_ms"},
        {o->undelivered_limit, 0, PENDING_MAX, "cache undelivered_limit"},
        {o->failover_memory_ms, 0, SHED_TIMEOUT_MAX_MS,
         "cache failover_memory_ms"},
        {o->soft_timeout_ms, 0, SHED_TIMEOUT_MAX_MS, "cache soft_timeout_ms"},
        {o->tags_limit, 0, TAGS_MAX, "cache tags_limit"},
        {o->local_bytes, LOCAL_MIN_BYTES, LOCAL_MAX_BYTES, "cache local_bytes"},
        {o->near_bytes, o->near_bytes > 0 ? NEAR_MIN_BYTES : 0, LOCAL_MAX_BYTES,
         "cache near_bytes"},
        {o->near_ms, 1, NEAR_MAX_MS, "cache near_ms"},
        {o->async_limit, 1, ASYNC_MAX, "cache async_limit"},
    };
    enum shed_code code =
        shed_check_ranges(ranges, sizeof(ranges) / sizeof(*ranges), err);

    /* a row that is given out at once is not what a call falls back on */
    if (code == SHED_OK && o->soft_timeout_ms > 0 &&
        o->stale_if_error_ms <= o->stale_while_revalidate_ms)
        code = shed_fail(
            err, SHED_EINVAL,
            "cache soft_timeout_ms is %llu, but has no effect unless "
            "stale_if_error_ms (%llu) exceeds stale_while_revalidate_ms (%llu)",
            (unsigned long long)o->soft_timeout_ms,
            (unsigned long long)o->stale_if_error_ms,
            (unsigned long long)o->stale_while_revalidate_ms);
    return code;
}

static enum shed_code check_bytes(struct shed_bytes bytes, size_t limit,
                                  const char *what, struct shed_error *err)
{
    if (bytes.data == NULL)
        return shed_fail(err, SHED_EINVAL, "%s is NULL", what);
    if (bytes.size == 0)
        return shed_fail(err, SHED_EINVAL, "%s is empty", what);
    if (bytes.size > limit)
        return shed_fail(err, SHED_EINVAL, "%s has %zu bytes, the limit is %zu",
                         what, bytes.size, limit);
    return SHED_OK;
}

enum shed_code shed_cache_check_array(const struct shed_array_rule *rule,
                                      const void *array, size_t count,
                                      struct shed_error *err)
{
    if (array == NULL && count > 0)
        return shed_fail(err, SHED_EINVAL, "%s: %s is NULL", rule->call,
                         rule->name);
    if (count > rule->limit)
        return shed_fail(err, SHED_EINVAL, "%s: %zu %s, the limit is %zu",
                         rule->call, count, rule->name, rule->limit);
    for (size_t i = 0; i < count; i++) {
        struct shed_bytes bytes;
        char what[48];
        memcpy(&bytes, (const char *)array + i * rule->element_size,
               sizeof(bytes));
        if (check_bytes(bytes, rule->bytes_limit, "", NULL) == SHED_OK)
            continue;
        (void)snprintf(what, sizeof(what), "%s[%zu]%s", rule->name, i,
                       rule->member);
        return check_bytes(bytes, rule->bytes_limit, what, err);
    }
    return SHED_OK;
}

enum shed_code shed_cache_check_call(const struct shed_cache *cache,
                                     uint64_t timeout_ms, bool is_async,
                                     struct shed_error *err)
{
    enum shed_code code;

    if (cache == NULL)
        return shed_fail(err, SHED_EINVAL, "cache is NULL");
    if (!is_async)
        return shed_client_check_timed_call(cache->client, timeout_ms, err);
    code = shed_client_check(cache->client, err);
    return code == SHED_OK
               ? shed_check_range(timeout_ms, 0, SHED_TIMEOUT_MAX_MS,
                                  "timeout_ms", err)
               : code;
}

enum shed_code shed_cache_check_key_call(const struct shed_cache *cache,
                                         struct shed_bytes key,
                                         uint64_t timeout_ms, bool is_async,
                                         struct shed_error *err)
{
    enum shed_code code =
        shed_cache_check_call(cache, timeout_ms, is_async, err);

    return code == SHED_OK ? check_bytes(key, SHED_KEY_MAX_BYTES, "key", err)
                           : code;
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

uint64_t shed_cache_deadline_ms(const struct shed_cache *cache,
                                uint64_t timeout_ms)
{
    return shed_deadline_ms(
        shed_now_ms(), timeout_ms > 0 ? timeout_ms : cache->options.timeout_ms);
}

enum shed_code shed_cache_probe(struct shed_cache *cache, uint64_t timeout_ms,
                                struct shed_error *err)
{
    enum shed_code code = shed_cache_check_call(cache, timeout_ms, false, err);
    char text[SHED_NAME_MAX_BYTES + sizeof(SHED_PROBE_SUFFIX)];
    struct shed_bytes key;
    uint64_t deadline_ms;

    if (code != SHED_OK)
        return code;
    deadline_ms = shed_cache_deadline_ms(cache, timeout_ms);
    (void)snprintf(text, sizeof(text), "%s" SHED_PROBE_SUFFIX, cache->name);
    key = shed_str(text);
    code = shed_probe(cache->client, "cache", key, key, deadline_ms, err);
    if (code == SHED_OK && cache->tag_log != NULL) {
        (void)snprintf(text, sizeof(text), "%s" SHED_TAG_LOG_SUFFIX,
                       cache->name);
        key = shed_str(text);
        code = shed_probe(cache->client, "tags", key, key, deadline_ms, err);
    }
    if (code == SHED_OK)
        code = shed_fleet_probe(shed_source_fleet(cache->source), cache->client,
                                deadline_ms, err);
    return code;
}

/* ------------------------------------------------------------ open, close */

static enum shed_code open_parts(struct shed_cache *cache,
                                 struct shed_error *err)
{
    const struct shed_cache_options *o = &cache->options;
    uint64_t bytes = o->near_bytes;
    enum shed_code code;

    if (shed_cache_takes_local(cache))
        bytes += o->local_bytes;
    if (bytes > 0)
        cache->local = shed_local_create(
            (size_t)bytes, shed_cache_takes_near(cache) ? o->near_ms : 0,
            &cache->rule, &cache->counters);
    cache->async_reads = shed_async_reads_create(cache);
    if (cache->async_reads == NULL || (bytes > 0 && cache->local == NULL))
        return shed_fail_nomem(err, "a cache");
    if (o->tags_limit > 0)
        cache->tag_log = shed_tag_log_create(cache);
    if (o->tags_limit == 0 || cache->tag_log != NULL)
        cache->delivery = shed_delivery_create(cache);
    if (cache->delivery == NULL)
        return shed_fail_nomem(err, "a cache");
    code = shed_flights_create(cache, &cache->flights, err);
    if (code == SHED_OK)
        code = shed_fleet_join(shed_source_fleet(cache->source), cache,
                               &cache->fleet, err);
    if (code == SHED_OK)
        code = shed_async_create(cache, &cache->async, err);
    return code;
}

/* It may be half made. */
static void *close_cache(void *handle)
{
    struct shed_cache *cache = handle;
    struct shed_client *client = cache->client;

    if (shed_client_check(client, NULL) == SHED_OK) {
        shed_async_close(cache->async);
        shed_flights_close(cache->flights);
        shed_fleet_leave(cache->fleet);
        shed_delivery_close(cache->delivery);
        shed_tag_log_close(cache->tag_log);
        shed_source_unref(cache->source, cache);
    }
    /* what does not depend on the client's process */
    shed_local_destroy(cache->local);
    shed_async_destroy(cache->async);
    shed_async_reads_destroy(cache->async_reads);
    free(cache);
    shed_client_unref(client);
    return NULL;
}

enum shed_code shed_cache_open(struct shed_client *client, const char *name,
                               struct shed_source *source,
                               const struct shed_cache_options *options,
                               struct shed_cache **out, struct shed_error *err)
{
    struct shed_cache_options o = SHED_CACHE_OPTIONS_INIT;
    struct shed_cache *cache;
    enum shed_code code;

    if (out == NULL)
        return shed_fail(err, SHED_EINVAL, "shed_cache_open: out is NULL");
    *out = NULL;
    if (client == NULL || source == NULL)
        return shed_fail(err, SHED_EINVAL, "shed_cache_open: %s is NULL",
                         client == NULL ? "client" : "source");
    code = shed_client_check_call(client, err);
    if (code == SHED_OK)
        code = shed_key_check_cache_name(name, "cache name", err);
    if (code == SHED_OK)
        code = shed_options_take(&o, sizeof(o), options,
                                 "struct shed_cache_options", err);
    if (code == SHED_OK)
        code = check_options(&o, err);
    if (code != SHED_OK)
        return code;
    cache = calloc(1, sizeof(*cache));
    if (cache == NULL)
        return shed_fail_nomem(err, "a cache");
    cache->client = shed_client_ref(client);
    cache->source = source;
    cache->options = o;
    cache->rule = (struct shed_freshness_rule){
        .refresh_after_pct = o.refresh_after_pct,
        .revalidate_ms = o.stale_while_revalidate_ms,
        .if_error_ms = o.stale_if_error_ms};
    memcpy(cache->name, name, strlen(name) + 1);
    shed_source_ref(source, cache);
    code = open_parts(cache, err);
    if (code != SHED_OK) {
        (void)close_cache(cache);
        return code;
    }
    *out = cache;
    return SHED_OK;
}

void shed_cache_close(struct shed_cache *cache)
{
    /* a flight may wait for what this thread does next */
    if (cache != NULL)
        shed_thread_close(SHED_THREAD_LOOP | SHED_THREAD_LOADER, close_cache,
                          cache);
}
