/*
 * Puts and invalidations. Its invariant: whatever comes of a write, callers
 * that come after it do not join a flight from before.
 */
#include <stdio.h>
#include <string.h>

#include "cache.h"
#include "clock.h"
#include "error.h"
#include "freshness.h"
#include "random.h"

#define REFRESH_SUFFIX ":refresh"

/* Call a script on the entry of a key; whatever comes of it, callers that come
 * now do not join a flight from before. */
static int write_entry(struct shed_cache *cache, enum shed_script script,
                       struct shed_args *args,
                       const struct shed_named_key *named, uint64_t deadline_ms,
                       struct shed_error *err)
{
    struct shed_reply *reply = NULL;
    bool is_repeated; /* which does no harm here */
    int code = shed_links_call_script(cache->client->links, args, &reply,
                                      &is_repeated, deadline_ms, err);
    const char *text = shed_reply_error(reply);

    shed_table_detach(cache->client->airport.table, named->key.redis,
                      named->key.redis_size);
    if (code == SHED_OK && text != NULL)
        code =
            shed_fail(err, shed_reply_code(reply), "Redis refused the %s: %s",
                      shed_script_texts[script].name, text);
    shed_reply_free(reply);
    shed_count_code(&cache->counters, (enum shed_code)code);
    return code;
}

/* The two keys that every write concerns. */
static void
add_keys(struct shed_args *args, const struct shed_named_key *named,
         char refresh[SHED_REDIS_KEY_MAX_BYTES + sizeof(REFRESH_SUFFIX)])
{
    size_t size = named->key.redis_size;

    memcpy(refresh, named->bytes, size);
    memcpy(refresh + size, REFRESH_SUFFIX, sizeof(REFRESH_SUFFIX));
    shed_args_add(args, named->bytes, size);
    shed_args_add(args, refresh, size + strlen(REFRESH_SUFFIX));
}

static int check_write(struct shed_cache *cache, const void *key,
                       size_t key_size, uint64_t timeout_ms,
                       struct shed_error *err)
{
    int code = shed_cache_check_call(cache, timeout_ms, err);

    return code == SHED_OK ? shed_cache_check_key(key, key_size, err) : code;
}

int shed_put(struct shed_cache *cache, const void *key, size_t key_size,
             const void *data, size_t data_size, uint64_t timeout_ms,
             struct shed_error *err)
{
    struct shed_entry entry = {
        .type = SHED_ENTRY_VALUE, .payload = data, .payload_size = data_size};
    char refresh[SHED_REDIS_KEY_MAX_BYTES + sizeof(REFRESH_SUFFIX)];
    unsigned char nonce[SHED_ENTRY_VERSION_BYTES];
    struct shed_entry_parts parts;
    struct shed_named_key named;
    struct shed_args args;
    char ttl[24];
    int code = check_write(cache, key, key_size, timeout_ms, err);

    if (code != SHED_OK)
        return code;
    if (data == NULL && data_size > 0)
        return shed_fail(err, SHED_EINVAL, "shed_put: data is NULL");
    if (data_size > cache->options.value_limit_bytes)
        return shed_fail(
            err, SHED_ETOOBIG, "the value has %zu bytes, the limit is %llu",
            data_size, (unsigned long long)cache->options.value_limit_bytes);
    code = shed_random_token(nonce, sizeof(nonce), err);
    if (code != SHED_OK)
        return code;
    shed_cache_name_key(cache, key, key_size, &named);
    shed_entry_encode(shed_cache_entry_key(&named.key), &entry, nonce, &parts);
    shed_script_begin(&args, SHED_SCRIPT_PUT, "2");
    add_keys(&args, &named, refresh);
    shed_args_add(&args, parts.head, sizeof(parts.head));
    shed_args_add(&args, parts.tail, sizeof(parts.tail));
    shed_args_add(&args, data, data_size);
    (void)snprintf(ttl, sizeof(ttl), "%llu",
                   (unsigned long long)shed_freshness_ttl_ms(
                       cache->options.ttl_ms, cache->options.ttl_jitter_pct,
                       shed_random_jitter()));
    shed_args_add_text(&args, ttl);
    shed_count(&cache->counters.puts, 1);
    return write_entry(cache, SHED_SCRIPT_PUT, &args, &named,
                       shed_cache_deadline_ms(cache, timeout_ms), err);
}

int shed_invalidate(struct shed_cache *cache, const void *key, size_t key_size,
                    uint64_t timeout_ms, struct shed_error *err)
{
    char refresh[SHED_REDIS_KEY_MAX_BYTES + sizeof(REFRESH_SUFFIX)];
    struct shed_named_key named;
    struct shed_args args;
    int code = check_write(cache, key, key_size, timeout_ms, err);

    if (code != SHED_OK)
        return code;
    shed_cache_name_key(cache, key, key_size, &named);
    shed_script_begin(&args, SHED_SCRIPT_INVALIDATE, "2");
    add_keys(&args, &named, refresh);
    shed_count(&cache->counters.invalidations, 1);
    return write_entry(cache, SHED_SCRIPT_INVALIDATE, &args, &named,
                       shed_cache_deadline_ms(cache, timeout_ms), err);
}
