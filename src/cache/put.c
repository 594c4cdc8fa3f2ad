/*
 * Puts. Its invariant: a put is not carried out after its call has returned,
 * whatever became of its connection.
 */
#include <stdlib.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/latch.h"
#include "base/random.h"
#include "cache/write.h"
#include "entry/freshness.h"
#include "source/load.h"

/* What put.lua returns if it did nothing; how often such a put is sent. */
#define PUT_TOO_LATE 0
#define PUT_TRIES 3

/* How long a put may be under way: far longer than Redis takes, and not too
 * long for a caller whose connection was lost with it. */
#define PUT_MS 1000

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
    enum shed_code code = shed_write_check(cache, key, o->timeout_ms, err);

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

/* Learn the clock of the key's server. */
static enum shed_code ask_clock(struct shed_client *client,
                                struct shed_entry_key key, uint64_t deadline_ms,
                                struct shed_error *why)
{
    struct shed_args args = {.is_guarded = true};
    struct shed_reply *reply = NULL;
    uint64_t asked_ms = shed_now_ms(), server_ms;
    struct shed_server *server;
    enum shed_code code;

    shed_args_add_text(&args, "TIME");
    shed_client_wait(client, deadline_ms);
    server = shed_client_hold(client, key.at, key.size);
    code = shed_links_call(server->links, &args, 1, &reply, NULL, NULL,
                           deadline_ms, why);
    server_ms = shed_reply_time_ms(reply);
    if (server_ms > 0)
        shed_server_clock_note(&server->address->clock, asked_ms, server_ms,
                               shed_now_ms());
    else if (code == SHED_OK)
        code = shed_fail(why, shed_reply_code(reply), "Redis refused TIME: %s",
                         shed_reply_error(reply) != NULL
                             ? shed_reply_error(reply)
                             : "its answer is no time");
    shed_reply_free(reply);
    shed_client_give_back(client, server);
    return code;
}

/* What the clock of the key's server will be at least. */
static uint64_t clock_at_ms(struct shed_client *client,
                            struct shed_entry_key key, uint64_t at_ms)
{
    struct shed_server *server = shed_client_hold(client, key.at, key.size);
    uint64_t lowest_ms =
        shed_server_clock_lowest_ms(&server->address->clock, at_ms);

    shed_client_give_back(client, server);
    return lowest_ms;
}

static void wait_until(uint64_t deadline_ms)
{
    struct shed_latch never = SHED_LATCH_INIT(1);

    (void)shed_latch_wait(&never, deadline_ms);
}

/* Call put.lua. *answer: what it returned; *may_come: it
 * was sent and not answered, perhaps before it was sent again, and may still be
 * carried out. */
static enum shed_code call_put(struct shed_cache *cache, struct shed_args *args,
                               long long *answer, bool *may_come,
                               uint64_t deadline_ms, struct shed_error *why)
{
    struct shed_reply *reply = NULL;
    unsigned sent;
    const char *text;
    enum shed_code code;

    args->is_guarded = true;
    code = shed_client_call(cache->client, args, 1, &reply, NULL, &sent,
                            deadline_ms, why);
    *may_come = sent > (code == SHED_OK ? 1U : 0U);
    *answer = shed_reply_integer(reply);
    text = shed_reply_error(reply);
    if (text != NULL)
        code = shed_fail(why, shed_reply_code(reply),
                         "Redis refused the put: %s", text);
    shed_reply_free(reply);
    return code;
}

/*
 * Send a put, whose last argument is missing: when it is too late, by the
 * server's clock. After its call a put must not be carried out any more, nor a
 * second time: it would replace what has been written and loaded since, over
 * whatever connection. So it has PUT_MS, or until the end of the call, and a
 * call that has lost a connection with it does not end sooner. What came too
 * late goes once more.
 */
static enum shed_code send_put(struct shed_cache *cache,
                               struct shed_entry_key key,
                               struct shed_args *args, uint64_t deadline_ms,
                               struct shed_error *why)
{
    struct shed_client *client = cache->client;
    char digits[SHED_DIGITS];
    int count = args->count;

    for (int tries = 0; tries < PUT_TRIES; tries++) {
        uint64_t until_ms = shed_deadline_ms(shed_now_ms(), PUT_MS);
        enum shed_code code = SHED_OK;
        long long answer;
        bool may_come;

        if (until_ms > deadline_ms)
            until_ms = deadline_ms;
        if (tries > 0 || clock_at_ms(client, key, until_ms) == 0)
            code = ask_clock(client, key, deadline_ms, why);
        if (code != SHED_OK)
            return code;
        args->count = count;
        shed_args_add_number(args, digits, clock_at_ms(client, key, until_ms));
        code = call_put(cache, args, &answer, &may_come, deadline_ms, why);
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
    char refresh[SHED_REDIS_KEY_MAX_BYTES + SHED_ENTRY_REFRESH_SUFFIX_BYTES];
    unsigned char nonce[SHED_ENTRY_VERSION_BYTES];
    unsigned char *tags;
    struct shed_delivery_write write;
    struct shed_entry entry;
    struct shed_entry_parts parts;
    struct shed_named_key named;
    struct shed_args args;
    struct shed_error why = {SHED_OK, ""};
    char fresh[SHED_DIGITS], kept[SHED_DIGITS];
    uint64_t deadline_ms;
    size_t size;
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
    size = named.key.redis_size;
    entry = make_entry(cache, row, &o, deadline_ms, tags);
    shed_entry_encode(shed_key_of_entry(&named.key), &entry, nonce, &parts);
    shed_script_begin(&args, SHED_SCRIPT_PUT, "2");
    shed_args_add(&args, named.bytes, size);
    shed_args_add(&args, refresh,
                  shed_entry_refresh_key(named.bytes, size, refresh));
    shed_args_add(&args, parts.head, sizeof(parts.head));
    shed_args_add(&args, parts.tail, sizeof(parts.tail));
    shed_args_add(&args, row.data, row.size);
    add_ttls(&args, cache, o.ttl_ms, fresh, kept);
    shed_args_add(&args, parts.tail,
                  o.version != NULL ? sizeof(parts.tail) : 0);
    shed_args_add(&args, tags, entry.tags_size);
    write = shed_delivery_mark(cache->delivery, SHED_WISH_INVALIDATE);
    /* one with a version can be older than what was missed: it makes up for
       nothing */
    if (o.version != NULL)
        write.number = 0;
    (void)send_put(cache, shed_key_of_entry(&named.key), &args, deadline_ms,
                   &why);
    free(tags);
    (void)shed_write_follow_up(cache, &named.key, write, &why);
    shed_count_code(&cache->counters, why.code);
    if (why.code == SHED_OK)
        shed_count(&cache->counters.puts, 1);
    else if (err != NULL)
        *err = why;
    return why.code;
}
