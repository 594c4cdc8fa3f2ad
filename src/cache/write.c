/*
 * Puts, invalidations and expiries. Its invariants: however a write ends,
 * callers that come after it do not join a flight from before it, nor get a row
 * that was kept before it; and one that Redis may have missed is undelivered
 * before its call returns.
 */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/latch.h"
#include "base/random.h"
#include "cache/cache.h"
#include "entry/freshness.h"
#include "source/load.h"

#define REFRESH_KEY_MAX_BYTES                                                  \
    (SHED_REDIS_KEY_MAX_BYTES + SHED_ENTRY_REFRESH_SUFFIX_BYTES)

/* What put.lua returns if it did nothing; how often such a put is sent. */
#define PUT_TOO_LATE 0
#define PUT_TRIES 3

/* How long a put may be under way: far longer than Redis takes, and not too
 * long for a caller whose connection was lost with it. */
#define PUT_MS 1000

/* What a write does to the entries from before it. */
static enum shed_wish wish_of(enum shed_script script)
{
    return script == SHED_SCRIPT_EXPIRE ? SHED_WISH_EXPIRE
                                        : SHED_WISH_INVALIDATE;
}

/* A write of a key has ended as why says: it makes up for those that failed
 * before, or is undelivered like them, which why then says, too. A call that
 * ran out of memory has changed nothing, and is dropped. Returns: false if it
 * was dropped. */
static bool follow_up(struct shed_cache *cache, const struct shed_key *key,
                      struct shed_delivery_write write, struct shed_error *why)
{
    bool is_safe = why->code != SHED_ENOMEM;

    if (why->code == SHED_OK)
        shed_delivery_settle(cache->delivery, key->redis, key->redis_size,
                             write);
    else if (is_safe)
        is_safe = shed_delivery_add(cache->delivery, key, write.wish, why);
    shed_flights_detach(cache->flights, key);
    shed_local_drop(cache->local, shed_key_of_entry(key));
    return is_safe;
}

/* Call a script on the entry of a key. *answer: what it returned; *may_come: it
 * was sent and not answered, perhaps before it was sent again, and may still be
 * carried out. */
static enum shed_code call_script(struct shed_cache *cache,
                                  enum shed_script script,
                                  struct shed_args *args, long long *answer,
                                  bool *may_come, uint64_t deadline_ms,
                                  struct shed_error *why)
{
    struct shed_reply *reply = NULL;
    unsigned sent;
    const char *text;
    enum shed_code code;

    args->is_guarded = true;
    code = shed_links_call_script(cache->client->links, args, 1, &reply, &sent,
                                  deadline_ms, why);
    *may_come = sent > (code == SHED_OK ? 1U : 0U);
    *answer = shed_reply_integer(reply);
    text = shed_reply_error(reply);
    if (text != NULL)
        code =
            shed_fail(why, shed_reply_code(reply), "Redis refused the %s: %s",
                      shed_script_texts[script].name, text);
    shed_reply_free(reply);
    return code;
}

/* Follow the end of a write. Returns: its code. */
static enum shed_code end_write(struct shed_cache *cache,
                                const struct shed_named_key *named,
                                struct shed_delivery_write write,
                                struct shed_error *why, struct shed_error *err)
{
    (void)follow_up(cache, &named->key, write, why);
    shed_count_code(&cache->counters, why->code);
    if (why->code != SHED_OK && err != NULL)
        *err = *why;
    return why->code;
}

/* The two keys that every write concerns. */
static void add_keys(struct shed_args *args, const struct shed_named_key *named,
                     char refresh[REFRESH_KEY_MAX_BYTES])
{
    size_t size = named->key.redis_size;

    shed_args_add(args, named->bytes, size);
    shed_args_add(args, refresh,
                  shed_entry_refresh_key(named->bytes, size, refresh));
}

static enum shed_code check_write(struct shed_cache *cache,
                                  struct shed_bytes key, uint64_t timeout_ms,
                                  struct shed_error *err)
{
    enum shed_code code = shed_cache_check_call(cache, timeout_ms, err);

    return code == SHED_OK ? shed_cache_check_key(key, "key", err) : code;
}

/* How long a row is fresh, and how long Redis keeps it. ttl_ms: of the put; 0:
 * the cache's. */
static void add_ttls(struct shed_args *args, const struct shed_cache *cache,
                     uint64_t ttl_ms, char fresh[SHED_DIGITS],
                     char kept[SHED_DIGITS])
{
    uint64_t fresh_ms =
        ttl_ms > 0 ? ttl_ms
                   : shed_freshness_ttl_ms(cache->options.ttl_ms,
                                           cache->options.ttl_jitter_pct,
                                           shed_random_jitter());

    shed_args_add_number(args, fresh, fresh_ms);
    shed_args_add_number(args, kept,
                         shed_freshness_kept_ms(&cache->rule, fresh_ms));
}

SHED_CHECK_OPTIONS(shed_put_options);

static enum shed_code check_put(struct shed_cache *cache, struct shed_bytes key,
                                struct shed_bytes row,
                                const struct shed_put_options *o,
                                struct shed_error *err)
{
    enum shed_code code = check_write(cache, key, o->timeout_ms, err);

    if (code == SHED_OK && o->tags_count > 0)
        code = shed_cache_check_has_tags(cache, err);
    if (code == SHED_OK)
        code = shed_cache_check_tags(o->tags, o->tags_count, SHED_TAGS_MAX,
                                     "shed_put", err);
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

/* A cache that has just been opened knows no position yet: with that, its row
 * would look older than every invalidation. Without an answer of Redis it does.
 */
static uint64_t position_of_put(struct shed_cache *cache, uint64_t deadline_ms)
{
    struct shed_tag_log *log = cache->tag_log;
    struct shed_error unused;

    if (shed_tag_log_position(log) == 0 && !shed_tag_log_is_known(log) &&
        shed_tag_log_learn(log, deadline_ms, &unused) != SHED_OK)
        return 0;
    return shed_tag_log_position(log);
}

/* The entry of a row that is put, without its times; tags is room for those. */
static struct shed_entry make_entry(struct shed_cache *cache,
                                    struct shed_bytes row,
                                    const struct shed_put_options *o,
                                    uint64_t deadline_ms, unsigned char *tags)
{
    struct shed_entry entry = {
        .type = SHED_ENTRY_VALUE,
        .flags = o->version != NULL ? SHED_ENTRY_ROW_VERSION : 0,
        .row_version = o->version != NULL ? *o->version : 0,
        .payload = row.data,
        .payload_size = row.size,
        .tags = tags};

    if (cache->tag_log != NULL) {
        entry.flags |= SHED_ENTRY_POSITION;
        entry.position = position_of_put(cache, deadline_ms);
    }
    for (size_t i = 0; i < o->tags_count; i++)
        entry.tags_size = shed_entry_add_tag(tags, entry.tags_size,
                                             o->tags[i].data, o->tags[i].size);
    if (entry.tags_size > 0)
        entry.flags |= SHED_ENTRY_TAGS;
    return entry;
}

/* Room for the tags of an entry, which would not fit on a caller's stack. NULL:
 * it has none, or memory is out. */
static unsigned char *alloc_tags(const struct shed_put_options *o)
{
    size_t size = 0;

    for (size_t i = 0; i < o->tags_count; i++)
        size = SHED_ENTRY_TAG_ROOM_BYTES(size, o->tags[i].size);
    return size > 0 ? malloc(size) : NULL;
}

/* Learn the server's clock. */
static enum shed_code ask_clock(struct shed_client *client,
                                uint64_t deadline_ms, struct shed_error *why)
{
    struct shed_args args = {.is_guarded = true};
    struct shed_reply *reply = NULL;
    uint64_t asked_ms = shed_now_ms(), server_ms;
    enum shed_code code;

    shed_args_add_text(&args, "TIME");
    code = shed_links_call(client->links, &args, 1, &reply, NULL, deadline_ms,
                           why);
    server_ms = shed_reply_time_ms(reply);
    if (server_ms > 0)
        shed_server_clock_note(&client->address->clock, asked_ms, server_ms,
                               shed_now_ms());
    else if (code == SHED_OK)
        code = shed_fail(why, shed_reply_code(reply), "Redis refused TIME: %s",
                         shed_reply_error(reply) != NULL
                             ? shed_reply_error(reply)
                             : "its answer is no time");
    shed_reply_free(reply);
    return code;
}

static void wait_until(uint64_t deadline_ms)
{
    struct shed_latch never = SHED_LATCH_INIT(1);

    (void)shed_latch_wait(&never, deadline_ms);
}

/*
 * Send a put, whose last argument is missing: when it is too late, by the
 * server's clock. After its call a put must not be carried out any more, nor a
 * second time: it would replace what has been written and loaded since, over
 * whatever connection. So it has PUT_MS, or until the end of the call, and a
 * call that has lost a connection with it does not end sooner. What came too
 * late goes once more.
 */
static enum shed_code send_put(struct shed_cache *cache, struct shed_args *args,
                               uint64_t deadline_ms, struct shed_error *why)
{
    struct shed_client *client = cache->client;
    const struct shed_server_clock *clock = &client->address->clock;
    char digits[SHED_DIGITS];
    int count = args->count;

    for (int tries = 0; tries < PUT_TRIES; tries++) {
        uint64_t until_ms = shed_deadline_ms(shed_now_ms(), PUT_MS);
        enum shed_code code = SHED_OK;
        long long answer;
        bool may_come;

        if (until_ms > deadline_ms)
            until_ms = deadline_ms;
        if (tries > 0 || shed_server_clock_lowest_ms(clock, until_ms) == 0)
            code = ask_clock(client, deadline_ms, why);
        if (code != SHED_OK)
            return code;
        args->count = count;
        shed_args_add_number(args, digits,
                             shed_server_clock_lowest_ms(clock, until_ms));
        code = call_script(cache, SHED_SCRIPT_PUT, args, &answer, &may_come,
                           deadline_ms, why);
        if (may_come)
            wait_until(until_ms);
        if (code != SHED_OK || answer != PUT_TOO_LATE)
            return code;
    }
    return shed_fail(why, SHED_ETIMEDOUT, "the put came to Redis too late");
}

enum shed_code shed_put(struct shed_cache *cache, struct shed_bytes key,
                        struct shed_bytes row,
                        const struct shed_put_options *options,
                        struct shed_error *err)
{
    struct shed_put_options o = SHED_PUT_OPTIONS_INIT;
    char refresh[REFRESH_KEY_MAX_BYTES];
    unsigned char nonce[SHED_ENTRY_VERSION_BYTES];
    unsigned char *tags;
    struct shed_delivery_write write = {.wish = SHED_WISH_INVALIDATE};
    struct shed_entry entry;
    struct shed_entry_parts parts;
    struct shed_named_key named;
    struct shed_args args;
    struct shed_error why = {SHED_OK, ""};
    char fresh[SHED_DIGITS], kept[SHED_DIGITS];
    uint64_t deadline_ms;
    enum shed_code code = shed_options_take(&o, sizeof(o), options,
                                            "struct shed_put_options", err);

    if (code == SHED_OK)
        code = check_put(cache, key, row, &o, err);
    if (code == SHED_OK)
        code = shed_random_token(nonce, sizeof(nonce), err);
    if (code != SHED_OK)
        return code;
    deadline_ms = shed_cache_deadline_ms(cache, o.timeout_ms);
    tags = alloc_tags(&o);
    if (tags == NULL && o.tags_count > 0)
        return shed_fail_nomem(err, "the tags of a row");
    shed_key_name(cache->name, key, &named);
    entry = make_entry(cache, row, &o, deadline_ms, tags);
    shed_entry_encode(shed_key_of_entry(&named.key), &entry, nonce, &parts);
    shed_script_begin(&args, SHED_SCRIPT_PUT, "2");
    add_keys(&args, &named, refresh);
    shed_args_add(&args, parts.head, sizeof(parts.head));
    shed_args_add(&args, parts.tail, sizeof(parts.tail));
    shed_args_add(&args, row.data, row.size);
    add_ttls(&args, cache, o.ttl_ms, fresh, kept);
    shed_args_add(&args, parts.tail,
                  o.version != NULL ? sizeof(parts.tail) : 0);
    shed_args_add(&args, tags, entry.tags_size);
    /* one with a version can be older than what was missed: it makes up for
       nothing */
    if (o.version == NULL)
        write.number = shed_delivery_mark(cache->delivery);
    (void)send_put(cache, &args, deadline_ms, &why);
    free(tags);
    code = end_write(cache, &named, write, &why, err);
    if (code == SHED_OK)
        shed_count(&cache->counters.puts, 1);
    return code;
}

void shed_cache_count_invalidation(struct shed_cache *cache,
                                   struct shed_bytes key, const char *reason,
                                   enum shed_code code)
{
    const struct shed_event event = {.kind = SHED_EVENT_INVALIDATED,
                                     .name = shed_str(cache->name),
                                     .key = key,
                                     .reason = reason};
    struct shed_counters *counters = &cache->counters;

    if (code != SHED_OK) {
        shed_count(&counters->invalidation_failures, 1);
        return;
    }
    shed_count(reason != NULL ? &counters->tag_invalidations
                              : &counters->invalidations,
               1);
    shed_events_tell(cache->client->events, &event);
}

/* Call a script that wants the two keys, and in_ms if it is an expiry. */
static enum shed_code write_keys(struct shed_cache *cache,
                                 enum shed_script script, struct shed_bytes key,
                                 uint64_t in_ms, uint64_t timeout_ms,
                                 struct shed_error *err)
{
    char refresh[REFRESH_KEY_MAX_BYTES];
    /* an expiry in a while does not make up for one now that was missed */
    struct shed_delivery_write write = {
        wish_of(script), in_ms > 0 ? 0 : shed_delivery_mark(cache->delivery)};
    char digits[SHED_DIGITS];
    struct shed_named_key named;
    struct shed_args args;
    struct shed_error why = {SHED_OK, ""};
    long long answer;
    bool may_come; /* late is as good as now, and twice as once */

    shed_key_name(cache->name, key, &named);
    shed_script_begin(&args, script, "2");
    add_keys(&args, &named, refresh);
    if (script == SHED_SCRIPT_EXPIRE)
        shed_args_add_number(&args, digits, in_ms);
    (void)call_script(cache, script, &args, &answer, &may_come,
                      shed_cache_deadline_ms(cache, timeout_ms), &why);
    return end_write(cache, &named, write, &why, err);
}

enum shed_code shed_invalidate(struct shed_cache *cache, struct shed_bytes key,
                               uint64_t timeout_ms, struct shed_error *err)
{
    enum shed_code code = check_write(cache, key, timeout_ms, err);

    if (code != SHED_OK)
        return code;
    code = write_keys(cache, SHED_SCRIPT_INVALIDATE, key, 0, timeout_ms, err);
    shed_cache_count_invalidation(cache, key, NULL, code);
    return code;
}

enum shed_code shed_expire(struct shed_cache *cache, struct shed_bytes key,
                           uint64_t in_ms, uint64_t timeout_ms,
                           struct shed_error *err)
{
    enum shed_code code = check_write(cache, key, timeout_ms, err);

    if (code == SHED_OK && in_ms > SHED_TTL_MAX_MS)
        code = shed_fail(err, SHED_EINVAL, "in_ms is %llu, at most %llu",
                         (unsigned long long)in_ms,
                         (unsigned long long)SHED_TTL_MAX_MS);
    return code == SHED_OK ? write_keys(cache, SHED_SCRIPT_EXPIRE, key, in_ms,
                                        timeout_ms, err)
                           : code;
}

/* ---------------------------------------------------------- invalidate_many */

/* The calls for many keys; arrays of count. */
struct sweep {
    size_t count;
    char *names; /* for each key the name of its refresh lease, which begins
                    with the name of the key */
    struct shed_key *keys;
    struct shed_args *args;
    struct shed_reply **replies;
};

static void destroy_sweep(struct sweep *s)
{
    if (s->replies != NULL)
        shed_reply_free_all(s->replies, s->count);
    free(s->names);
    free(s->keys);
    free(s->args);
    free(s->replies);
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
                                   const struct shed_bytes *keys,
                                   struct sweep *s, struct shed_error *err)
{
    s->names = malloc(names_size(cache, keys, s->count));
    s->keys = malloc(s->count * sizeof(*s->keys));
    s->args = malloc(s->count * sizeof(*s->args));
    s->replies = calloc(s->count, sizeof(struct shed_reply *));
    if (s->names != NULL && s->keys != NULL && s->args != NULL &&
        s->replies != NULL)
        return SHED_OK;
    destroy_sweep(s);
    return shed_fail_nomem(err, "shed_invalidate_many");
}

static void fill_sweep(const struct shed_cache *cache,
                       const struct shed_bytes *keys, struct sweep *s)
{
    char *at = s->names;

    for (size_t i = 0; i < s->count; i++) {
        struct shed_named_key named;
        struct shed_key *key = &s->keys[i];
        shed_key_name(cache->name, keys[i], &named);
        *key = named.key;
        key->redis = at;
        at += shed_entry_refresh_key(named.bytes, key->redis_size, at);
        shed_delivery_begin(&s->args[i], SHED_WISH_INVALIDATE, key->redis,
                            key->redis_size);
        s->args[i].is_guarded = true;
    }
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

/* How the invalidation of one key ended; all is how the call did. */
static struct shed_error judge(const struct sweep *s, size_t i,
                               const struct shed_error *all)
{
    const char *text = shed_reply_error(s->replies[i]);
    struct shed_error why = *all;

    if (text != NULL)
        (void)shed_fail(&why, shed_reply_code(s->replies[i]),
                        "Redis refused the invalidate: %s", text);
    return why;
}

void shed_cache_sum_up(struct shed_sum *sum, const char *array, size_t i,
                       const struct shed_error *why, bool is_safe)
{
    bool is_first = sum->code == SHED_OK;

    if (why->code == SHED_OK)
        return;
    if (is_first)
        sum->code = why->code;
    if ((is_first || (sum->are_safe && !is_safe)) && array != NULL)
        (void)shed_fail(sum->err, sum->code, "%s[%zu]: %s", array, i,
                        why->reason);
    else if (is_first)
        (void)shed_fail(sum->err, sum->code, "%s", why->reason);
    sum->are_safe = sum->are_safe && is_safe;
}

/* Follow the end of each key; all is how the call ended. Returns: see shed_sum.
 */
static enum shed_code conclude(struct shed_cache *cache, const struct sweep *s,
                               struct shed_delivery_write write,
                               const struct shed_error *all,
                               struct shed_error *err)
{
    struct shed_sum sum = {SHED_OK, true, err};

    for (size_t i = 0; i < s->count; i++) {
        const struct shed_key *key = &s->keys[i];
        struct shed_error why = judge(s, i, all);
        bool is_safe = follow_up(cache, key, write, &why);
        shed_cache_sum_up(&sum, "keys", i, &why, is_safe);
        shed_cache_count_invalidation(
            cache, shed_bytes(key->redis + key->at, key->size), NULL, why.code);
    }
    return sum.code;
}

enum shed_code shed_invalidate_many(struct shed_cache *cache,
                                    const struct shed_bytes *keys, size_t count,
                                    uint64_t timeout_ms, struct shed_error *err)
{
    struct sweep s = {.count = count};
    struct shed_delivery_write write = {.wish = SHED_WISH_INVALIDATE};
    struct shed_error all = {SHED_OK, ""};
    unsigned sent; /* twice is as good as once */
    enum shed_code code = shed_cache_check_call(cache, timeout_ms, err);

    if (code == SHED_OK)
        code = check_keys(keys, count, err);
    if (code == SHED_OK && count > 0)
        code = create_sweep(cache, keys, &s, err);
    if (code != SHED_OK || count == 0)
        return code;
    fill_sweep(cache, keys, &s);
    write.number = shed_delivery_mark(cache->delivery);
    if (shed_links_call_script(cache->client->links, s.args, count, s.replies,
                               &sent, shed_cache_deadline_ms(cache, timeout_ms),
                               &all) != SHED_OK)
        memset(s.replies, 0,
               count * sizeof(struct shed_reply *)); /* there are none */
    code = conclude(cache, &s, write, &all, err);
    shed_count_code(&cache->counters, code);
    destroy_sweep(&s);
    return code;
}
