/*
 * The read path. Its invariant: nothing is sent for a call whose arguments are
 * wrong.
 */
#include "cache/cache.h"

#include <assert.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/thread.h"
#include "base/value.h"
#include "cache/look.h"

/* The ranges that snowshed.h states. */
#define JITTER_MAX_PCT 90
#define FAILURE_TTL_MAX_MS 60000
#define LEASE_MIN_MS 10
#define LEASE_MAX_MS 600000
#define GRACE_MAX_MS 60000
#define TIMEOUT_MAX_MS 3600000
#define VALUE_MAX_BYTES ((uint64_t)256 << 20)
#define PENDING_MAX 100000

/* ----------------------------------------------------------------- checks */

SHED_CHECK_OPTIONS(shed_cache_options);

static enum shed_code check_options(const struct shed_cache_options *o,
                                    struct shed_error *err)
{
    const struct {
        uint64_t value, lo, hi;
        const char *what;
    } rows[] = {
        {o->ttl_ms, 1, SHED_TTL_MAX_MS, "cache ttl_ms"},
        {o->ttl_jitter_pct, 0, JITTER_MAX_PCT, "cache ttl_jitter_pct"},
        {o->negative_ttl_ms, 0, SHED_TTL_MAX_MS, "cache negative_ttl_ms"},
        {o->failure_ttl_ms, 0, FAILURE_TTL_MAX_MS, "cache failure_ttl_ms"},
        {o->lease_ms, LEASE_MIN_MS, LEASE_MAX_MS, "cache lease_ms"},
        {o->grace_ms, 0, GRACE_MAX_MS, "cache grace_ms"},
        {o->timeout_ms, 1, TIMEOUT_MAX_MS, "cache timeout_ms"},
        {o->value_limit_bytes, 1, VALUE_MAX_BYTES, "cache value_limit_bytes"},
        {o->redis_down, SHED_REDIS_DOWN_SOURCE, SHED_REDIS_DOWN_FAIL,
         "cache redis_down"},
        {o->refresh_after_ms, 0, o->ttl_ms, "cache refresh_after_ms"},
        {o->stale_while_revalidate_ms, 0, SHED_TTL_MAX_MS,
         "cache stale_while_revalidate_ms"},
        {o->stale_if_error_ms, 0, SHED_TTL_MAX_MS, "cache stale_if_error_ms"},
        {o->pending_limit, 0, PENDING_MAX, "cache pending_limit"},
    };
    enum shed_code code = SHED_OK;

    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows) && code == SHED_OK; i++)
        code = shed_check_range(rows[i].value, rows[i].lo, rows[i].hi,
                                rows[i].what, err);
    return code;
}

static enum shed_code check_name(const char *name, struct shed_error *err)
{
    size_t size = name != NULL ? strnlen(name, SHED_NAME_MAX_BYTES + 1) : 0;

    if (name == NULL)
        return shed_fail(err, SHED_EINVAL, "cache name: is NULL");
    if (size == 0)
        return shed_fail(err, SHED_EINVAL, "cache name: is empty");
    if (size > SHED_NAME_MAX_BYTES)
        return shed_fail(err, SHED_EINVAL,
                         "cache name: is longer than %d bytes",
                         SHED_NAME_MAX_BYTES);
    for (size_t i = 0; i < size; i++) {
        if (name[i] == '{' || name[i] == '}')
            return shed_fail(err, SHED_EINVAL,
                             "cache name: has a brace at %zu; braces mark the "
                             "key",
                             i);
        if (name[i] <= ' ' || name[i] > '~')
            return shed_fail(err, SHED_EINVAL,
                             "cache name: byte %zu is not printable ASCII", i);
    }
    /* its entries would have the keys of locks, and overwrite them */
    if (strcmp(name, "lock") == 0)
        return shed_fail(err, SHED_EINVAL,
                         "cache name: \"lock\" is reserved, because the keys "
                         "of locks begin with it; choose another name");
    return SHED_OK;
}

enum shed_code shed_cache_check_key(struct shed_bytes key, const char *what,
                                    struct shed_error *err)
{
    if (key.data == NULL)
        return shed_fail(err, SHED_EINVAL, "%s: is NULL", what);
    if (key.size == 0)
        return shed_fail(err, SHED_EINVAL, "%s: is empty", what);
    if (key.size > SHED_KEY_MAX_BYTES)
        return shed_fail(err, SHED_EINVAL, "%s: has %zu bytes, the limit is %d",
                         what, key.size, SHED_KEY_MAX_BYTES);
    return SHED_OK;
}

enum shed_code shed_cache_check_key_at(struct shed_bytes key, const char *array,
                                       size_t i, const char *member,
                                       struct shed_error *err)
{
    char what[48];

    if (shed_cache_check_key(key, array, NULL) == SHED_OK)
        return SHED_OK;
    (void)snprintf(what, sizeof(what), "%s[%zu]%s", array, i, member);
    return shed_cache_check_key(key, what, err);
}

enum shed_code shed_cache_check_call(const struct shed_cache *cache,
                                     uint64_t timeout_ms,
                                     struct shed_error *err)
{
    if (cache == NULL)
        return shed_fail(err, SHED_EINVAL, "cache: is NULL");
    if (timeout_ms > TIMEOUT_MAX_MS)
        return shed_fail(err, SHED_EINVAL, "timeout_ms: is over its limit, %d",
                         TIMEOUT_MAX_MS);
    return shed_client_check_call(cache->client, err);
}

uint64_t shed_cache_deadline_ms(const struct shed_cache *cache,
                                uint64_t timeout_ms)
{
    return shed_deadline_ms(
        shed_now_ms(), timeout_ms > 0 ? timeout_ms : cache->options.timeout_ms);
}

/* The braces keep an entry and its side keys on one node of a cluster: only the
 * bytes between them are hashed, unless there are none. So a KEY that begins
 * with a closing brace is escaped, and so is one that begins with the escape.
 */
void shed_cache_name_key(const struct shed_cache *cache, struct shed_bytes key,
                         struct shed_named_key *out)
{
    char first = *(const char *)key.data;
    char *at = out->bytes;
    size_t name_size = strlen(cache->name);

    assert(key.size > 0 && key.size <= SHED_KEY_MAX_BYTES);
    memcpy(at, cache->name, name_size);
    at += name_size;
    *at++ = ':';
    *at++ = '{';
    if (first == '}' || first == '\\')
        *at++ = '\\';
    memcpy(at, key.data, key.size);
    out->key = (struct shed_key){.redis = out->bytes,
                                 .redis_size =
                                     (size_t)(at - out->bytes) + key.size + 1,
                                 .at = (size_t)(at - out->bytes),
                                 .size = key.size};
    at[key.size] = '}';
}

/* ------------------------------------------------------------ open, close */

enum shed_code shed_cache_open(struct shed_client *client, const char *name,
                               struct shed_source *source,
                               const struct shed_cache_options *options,
                               struct shed_cache **out, struct shed_error *err)
{
    struct shed_cache_options o = SHED_CACHE_OPTIONS_INIT;
    char prefix[SHED_NAME_MAX_BYTES + 2];
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
        code = check_name(name, err);
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
    cache->client = client;
    cache->source = source;
    cache->options = o;
    cache->rule = shed_flight_redis_rule(&o);
    memcpy(cache->name, name, strlen(name) + 1);
    (void)snprintf(prefix, sizeof(prefix), "%s:", name);
    code = shed_outbox_create(client, cache->name, &o, &cache->counters,
                              &cache->outbox, err);
    if (code == SHED_OK)
        code = shed_flights_create(client, source, prefix, &o, &cache->counters,
                                   cache->outbox, &cache->flights, err);
    if (code != SHED_OK) {
        shed_outbox_close(cache->outbox, 0);
        free(cache);
        return code;
    }
    (void)shed_client_ref(client);
    shed_source_ref(source);
    *out = cache;
    return SHED_OK;
}

static void *close_cache(void *handle)
{
    struct shed_cache *cache = handle;

    if (shed_client_check(cache->client, NULL) == SHED_OK) {
        shed_flights_close(cache->flights);
        shed_outbox_close(cache->outbox, cache->options.timeout_ms);
        shed_source_unref(cache->source);
    }
    shed_client_unref(cache->client);
    free(cache);
    return NULL;
}

void shed_cache_close(struct shed_cache *cache)
{
    /* a flight may wait for what this thread does next */
    if (cache != NULL)
        shed_thread_close(SHED_THREAD_LOOP | SHED_THREAD_LOADER, close_cache,
                          cache);
}

/* -------------------------------------------------------------- the gets */

struct shed_entry_key shed_cache_entry_key(const struct shed_key *key)
{
    return (struct shed_entry_key){key->redis, key->redis_size};
}

/* The code of a failed GET; SHED_OK leaves the decision to the slow path, which
 * knows what to do without Redis. */
static enum shed_code after_failed_get(const struct shed_cache *cache,
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
        return after_failed_get(cache, code);
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

static enum shed_code timed_out(enum shed_awaited awaited,
                                struct shed_error *err)
{
    static const char *const waits[] = {
        [SHED_AWAITS_REDIS] = "for Redis to answer",
        [SHED_AWAITS_HOLDER] = "for a load of the key by another process",
        [SHED_AWAITS_QUEUE] =
            "in the source's queue, behind other loads (see its max_loads)",
        [SHED_AWAITS_LOAD] =
            "for a load of the key by this process, which goes on",
    };

    return shed_fail(err, SHED_ETIMEDOUT,
                     "the deadline passed while the call waited %s",
                     waits[awaited]);
}

static enum shed_code get_slow(struct shed_cache *cache,
                               const struct shed_key *key, uint64_t deadline_ms,
                               struct shed_value **out, struct shed_error *err)
{
    struct shed_latch latch;
    struct shed_caller caller = {.latch = &latch};
    struct shed_post *starts = NULL;
    enum shed_code code = shed_latch_init(&latch, 1, err);

    if (code != SHED_OK)
        return code;
    shed_count(&cache->counters.misses, 1);
    code = shed_flights_join(cache->flights, key, &caller, &starts, err);
    if (code != SHED_OK)
        goto done;
    shed_flights_start(cache->flights, starts);
    if (!shed_latch_wait(&latch, deadline_ms)) {
        if (shed_flights_leave(cache->flights, &caller)) {
            code = timed_out(caller.awaited, err);
            goto done;
        }
        (void)shed_latch_wait(&latch,
                              UINT64_MAX); /* the answer is on its way */
    }
    code = caller.code;
    *out = caller.value;
    if (code != SHED_OK)
        (void)shed_fail(err, caller.code, "%s", caller.error.reason);
done:
    shed_count(&cache->counters.misses_ended, 1);
    shed_latch_fini(&latch);
    return code;
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
        code = get_slow(cache, &named.key, deadline_ms, out, &why);
        code = shed_look_fall_back(cache, &look, code, out);
        shed_histogram_add(&cache->counters.miss_us, shed_now_us() - start_us);
    }
    shed_count_code(&cache->counters, code);
    if (code != SHED_OK && err != NULL)
        *err = why;
    return code;
}

/* ---------------------------------------------------------------- get_many */

/* The keys of one call; arrays of count. */
struct batch {
    struct shed_item *items;
    size_t count;
    struct shed_named_key *named;
    struct shed_args *args;
    struct shed_reply **replies;
    bool *are_missed; /* an invalidation that Redis has missed: what GET finds
                         may be older */
    struct shed_look *looks;
    struct shed_caller *callers; /* also of hits: for the error */
};

static void destroy_batch(struct batch *b)
{
    free(b->named);
    free(b->args);
    free(b->replies);
    free(b->are_missed);
    free(b->looks);
    free(b->callers);
}

static enum shed_code create_batch(struct batch *b, struct shed_error *err)
{
    b->named = malloc(b->count * sizeof(*b->named));
    b->args = calloc(b->count, sizeof(*b->args));
    b->replies = calloc(b->count, sizeof(struct shed_reply *));
    b->are_missed = calloc(b->count, sizeof(bool));
    b->looks = calloc(b->count, sizeof(*b->looks));
    b->callers = calloc(b->count, sizeof(*b->callers));
    if (b->named != NULL && b->args != NULL && b->replies != NULL &&
        b->are_missed != NULL && b->looks != NULL && b->callers != NULL)
        return SHED_OK;
    destroy_batch(b);
    return shed_fail_nomem(err, "shed_get_many");
}

static enum shed_code check_items(struct shed_item *items, size_t count,
                                  struct shed_error *err)
{
    enum shed_code code = SHED_OK;

    if (items == NULL && count > 0)
        return shed_fail(err, SHED_EINVAL, "shed_get_many: items is NULL");
    for (size_t i = 0; i < count; i++) {
        items[i].value = NULL;
        items[i].code = SHED_EINVAL;
    }
    if (count > SHED_MANY_MAX)
        return shed_fail(err, SHED_EINVAL,
                         "shed_get_many: %zu keys, the limit is %d", count,
                         SHED_MANY_MAX);
    for (size_t i = 0; i < count && code == SHED_OK; i++)
        code = shed_cache_check_key_at(items[i].key, "items", i, ".key", err);
    return code;
}

static void fail_item(struct batch *b, size_t i, enum shed_code code)
{
    b->items[i].code = code;
    b->callers[i].code = code;
}

/* All GETs in one pipeline. Afterwards an item has its value, or the code of
 * its failure, or is a miss: SHED_OK without a value. */
static void try_get_many(struct shed_cache *cache, struct batch *b,
                         uint64_t deadline_ms)
{
    struct shed_error why = {0};
    struct shed_link_use use;
    enum shed_code code;

    for (size_t i = 0; i < b->count; i++) {
        shed_cache_name_key(cache, b->items[i].key, &b->named[i]);
        b->are_missed[i] = shed_outbox_has(cache->outbox, &b->named[i].key);
        shed_args_add_text(&b->args[i], "GET");
        shed_args_add(&b->args[i], b->named[i].key.redis,
                      b->named[i].key.redis_size);
    }
    code = shed_links_call(cache->client->links, b->args, b->count, b->replies,
                           &use, deadline_ms, &why);
    for (size_t i = 0; i < b->count; i++) {
        enum shed_code item_code = after_failed_get(cache, code);
        if (code == SHED_OK && b->are_missed[i])
            shed_reply_free(b->replies[i]);
        else if (code == SHED_OK)
            item_code = shed_look_at(cache, &b->named[i].key, b->replies[i],
                                     &use, &b->looks[i], &why);
        b->items[i].value = b->looks[i].value;
        b->items[i].code = item_code;
        if (item_code != SHED_OK)
            b->callers[i].error = why;
    }
}

static bool is_miss(const struct batch *b, size_t i)
{
    return b->items[i].code == SHED_OK && b->items[i].value == NULL;
}

/* Join a flight for each miss. One that cannot join has failed and is counted
 * down. */
static void join_many(struct shed_cache *cache, struct batch *b,
                      struct shed_latch *latch)
{
    struct shed_post *starts = NULL;

    for (size_t i = 0; i < b->count; i++) {
        struct shed_caller *caller = &b->callers[i];
        enum shed_code code;
        if (!is_miss(b, i))
            continue;
        shed_count(&cache->counters.misses, 1);
        caller->latch = latch;
        code = shed_flights_join(cache->flights, &b->named[i].key, caller,
                                 &starts, &caller->error);
        if (code == SHED_OK)
            continue;
        caller->latch = NULL;
        fail_item(b, i, code);
        shed_latch_count_down(latch, 1);
    }
    shed_flights_start(cache->flights, starts);
}

/* At the deadline: leave the flights, then wait for the callers that are being
 * answered at this moment. */
static void leave_many(struct shed_cache *cache, struct batch *b,
                       struct shed_latch *latch)
{
    for (size_t i = 0; i < b->count; i++) {
        struct shed_caller *caller = &b->callers[i];
        if (caller->latch == NULL ||
            !shed_flights_leave(cache->flights, caller))
            continue;
        caller->code = timed_out(caller->awaited, &caller->error);
        shed_latch_count_down(latch, 1);
    }
    (void)shed_latch_wait(latch, UINT64_MAX);
}

static enum shed_code get_slow_many(struct shed_cache *cache, struct batch *b,
                                    uint64_t deadline_ms,
                                    struct shed_error *err)
{
    struct shed_latch latch;
    size_t misses = 0;
    enum shed_code code;

    for (size_t i = 0; i < b->count; i++)
        misses += is_miss(b, i);
    if (misses == 0)
        return SHED_OK;
    code = shed_latch_init(&latch, misses, err);
    if (code != SHED_OK)
        return code;
    join_many(cache, b, &latch);
    if (!shed_latch_wait(&latch, deadline_ms))
        leave_many(cache, b, &latch);
    for (size_t i = 0; i < b->count; i++) {
        if (b->callers[i].latch == NULL)
            continue;
        b->items[i].code = b->callers[i].code;
        b->items[i].value = b->callers[i].value;
    }
    shed_count(&cache->counters.misses_ended, misses);
    shed_latch_fini(&latch);
    return SHED_OK;
}

static void fall_back_many(struct shed_cache *cache, struct batch *b)
{
    for (size_t i = 0; i < b->count; i++)
        b->items[i].code = shed_look_fall_back(
            cache, &b->looks[i], b->items[i].code, &b->items[i].value);
}

/* The first item that failed decides. */
static enum shed_code conclude(struct shed_cache *cache, struct batch *b,
                               struct shed_error *err)
{
    enum shed_code code = SHED_OK;

    for (size_t i = 0; i < b->count; i++) {
        shed_count_code(&cache->counters, b->items[i].code);
        if (code != SHED_OK || b->items[i].code == SHED_OK)
            continue;
        code = shed_fail(err, b->items[i].code, "items[%zu]: %s", i,
                         b->callers[i].error.reason);
    }
    return code;
}

enum shed_code shed_get_many(struct shed_cache *cache, struct shed_item *items,
                             size_t count, uint64_t timeout_ms,
                             struct shed_error *err)
{
    struct batch b = {.items = items, .count = count};
    uint64_t deadline_ms;
    enum shed_code code = check_items(items, count, err);

    if (code == SHED_OK)
        code = shed_cache_check_call(cache, timeout_ms, err);
    if (code == SHED_OK && count > 0)
        code = create_batch(&b, err);
    if (code != SHED_OK || count == 0) {
        for (size_t i = 0; items != NULL && i < count; i++)
            items[i].code = code;
        return code;
    }
    deadline_ms = shed_cache_deadline_ms(cache, timeout_ms);
    try_get_many(cache, &b, deadline_ms);
    code = get_slow_many(cache, &b, deadline_ms, err);
    for (size_t i = 0; code != SHED_OK && i < count; i++) {
        if (!is_miss(&b, i))
            continue;
        b.callers[i].error =
            (struct shed_error){SHED_ENOMEM, "out of memory for a latch"};
        fail_item(&b, i, code);
    }
    fall_back_many(cache, &b);
    code = conclude(cache, &b, err);
    destroy_batch(&b);
    return code;
}
