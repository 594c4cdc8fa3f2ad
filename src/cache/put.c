/*
 * Puts. Its invariant: a put is not carried out after its call has returned,
 * whatever became of its connection.
 */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/latch.h"
#include "base/random.h"
#include "cache/put.h"
#include "entry/freshness.h"
#include "source/load.h"

/* How long a row is fresh, and how long Redis keeps it. ttl_ms: of the put; 0:
 * the cache's. */
static void add_ttls(struct shed_args *args, const struct shed_cache *cache,
                     uint64_t ttl_ms, char fresh[SHED_DIGITS],
                     char kept[SHED_DIGITS])
{
    const struct shed_freshness_rule *rule = &cache->rule;
    uint64_t fresh_ms =
        ttl_ms > 0 ? ttl_ms
                   : shed_freshness_ttl_ms(cache->options.ttl_ms,
                                           cache->options.ttl_jitter_pct,
                                           shed_random_jitter());

    shed_args_add_number(args, fresh, fresh_ms);
    shed_args_add_number(
        args, kept,
        shed_freshness_redis_ms(rule, shed_freshness_kept_ms(rule, fresh_ms)));
}

SHED_CHECK_OPTIONS(shed_put_options);

enum shed_code shed_put_check(const struct shed_cache *cache,
                              struct shed_bytes row,
                              const struct shed_put_options *o,
                              struct shed_error *err)
{
    enum shed_code code = SHED_OK;

    if (o->tags_count > 0)
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

static struct shed_entry make_entry(const struct shed_put_row *p)
{
    struct shed_entry entry = {.type = SHED_ENTRY_VALUE,
                               .flags =
                                   p->has_version ? SHED_ENTRY_ROW_VERSION : 0,
                               .row_version = p->version,
                               .payload = p->row.data,
                               .payload_size = p->row.size,
                               .tags = p->tags,
                               .tags_size = p->tags_size};

    if (p->has_position) {
        entry.flags |= SHED_ENTRY_POSITION;
        entry.position = p->position;
    }
    if (entry.tags_size > 0)
        entry.flags |= SHED_ENTRY_TAGS;
    return entry;
}

size_t shed_put_tags_room(const struct shed_put_options *o)
{
    size_t size = 0;

    for (size_t i = 0; i < o->tags_count; i++)
        size = SHED_ENTRY_TAG_ROOM_BYTES(size, o->tags[i].size);
    return size;
}

void shed_put_set(struct shed_put_row *p, struct shed_bytes row,
                  const struct shed_put_options *o, unsigned char *tags)
{
    p->row = row;
    p->ttl_ms = o->ttl_ms;
    p->has_version = o->version != NULL;
    p->version = o->version != NULL ? *o->version : 0;
    p->tags = tags;
    p->tags_size = 0;
    for (size_t i = 0; i < o->tags_count; i++)
        p->tags_size = shed_entry_add_tag(tags, p->tags_size, o->tags[i].data,
                                          o->tags[i].size);
}

void shed_put_begin(struct shed_put_args *out, const struct shed_cache *cache,
                    const struct shed_put_row *p, const char *refresh,
                    size_t size)
{
    const struct shed_entry_key key = {refresh, size};
    struct shed_entry entry = make_entry(p);
    struct shed_args *args = &out->args;

    shed_entry_encode(key, &entry, p->nonce, &out->parts);
    shed_script_begin(args, SHED_SCRIPT_PUT, "2");
    args->is_guarded = true;
    shed_args_add(args, refresh, size);
    shed_args_add(args, refresh, size + strlen(SHED_ENTRY_REFRESH_SUFFIX));
    shed_args_add(args, out->parts.head, sizeof(out->parts.head));
    shed_args_add(args, out->parts.tail, sizeof(out->parts.tail));
    shed_args_add(args, p->row.data, p->row.size);
    add_ttls(args, cache, p->ttl_ms, out->fresh, out->kept);
    shed_args_add(args, out->parts.tail,
                  p->has_version ? sizeof(out->parts.tail) : 0);
    shed_args_add(args, p->tags, p->tags_size);
}

struct shed_delivery_write shed_put_mark(struct shed_cache *cache,
                                         const struct shed_put_row *p)
{
    struct shed_delivery_write write =
        shed_delivery_mark(cache->delivery, SHED_WISH_INVALIDATE);

    /* one with a version can be older than what was missed: it makes up for
       nothing */
    if (p->has_version)
        write.number = 0;
    return write;
}

enum shed_code shed_put_note_clock(struct shed_server *server,
                                   uint64_t asked_ms,
                                   const struct shed_reply *reply,
                                   struct shed_error *why)
{
    uint64_t server_ms = shed_reply_time_ms(reply);

    if (reply == NULL)
        return why->code;
    if (server_ms == 0)
        return shed_fail(why, shed_reply_code(reply), "Redis refused TIME: %s",
                         shed_reply_error(reply) != NULL
                             ? shed_reply_error(reply)
                             : "its answer is no time");
    shed_server_clock_note(&server->address->clock, asked_ms, server_ms,
                           shed_now_ms());
    return SHED_OK;
}

/* Learn the clock of the key's server. */
static enum shed_code ask_clock(struct shed_client *client,
                                struct shed_entry_key key, uint64_t deadline_ms,
                                struct shed_error *why)
{
    struct shed_args args = {.is_guarded = true};
    struct shed_reply *reply = NULL;
    uint64_t asked_ms = shed_now_ms();
    struct shed_server *server;
    enum shed_code code;

    shed_args_add_text(&args, "TIME");
    shed_client_wait(client, deadline_ms);
    server = shed_client_hold(client, key.at, key.size);
    code = shed_links_call(server->links, &args, 1, &reply, NULL, NULL,
                           deadline_ms, why);
    if (code == SHED_OK)
        code = shed_put_note_clock(server, asked_ms, reply, why);
    shed_reply_free(reply);
    shed_client_give_back(client, server);
    return code;
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
 * whatever connection. So it has SHED_PUT_MS, or until the end of the call, and
 * a call that has lost a connection with it does not end sooner. What came too
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

    for (int tries = 0; tries < SHED_PUT_TRIES; tries++) {
        uint64_t until_ms = shed_deadline_ms(shed_now_ms(), SHED_PUT_MS);
        enum shed_code code = SHED_OK;
        long long answer;
        bool may_come;

        if (until_ms > deadline_ms)
            until_ms = deadline_ms;
        if (tries > 0 || shed_client_server_lowest_ms(client, key.at, key.size,
                                                      until_ms) == 0)
            code = ask_clock(client, key, deadline_ms, why);
        if (code != SHED_OK)
            return code;
        args->count = count;
        shed_args_add_number(
            args, digits,
            shed_client_server_lowest_ms(client, key.at, key.size, until_ms));
        code = call_put(cache, args, &answer, &may_come, deadline_ms, why);
        if (may_come)
            wait_until(until_ms);
        if (code != SHED_OK || answer != SHED_PUT_TOO_LATE)
            return code;
    }
    return shed_fail(why, SHED_ETIMEDOUT, "the put came to Redis too late");
}

void shed_put_count(struct shed_cache *cache, enum shed_code code)
{
    shed_count_code(&cache->counters, code);
    if (code == SHED_OK)
        shed_count(&cache->counters.puts, 1);
}

enum shed_code shed_put(struct shed_cache *cache, struct shed_bytes key,
                        struct shed_bytes row,
                        const struct shed_put_options *options,
                        struct shed_error *err)
{
    struct shed_put_options o = SHED_PUT_OPTIONS_INIT;
    char refresh[SHED_REDIS_KEY_MAX_BYTES + SHED_ENTRY_REFRESH_SUFFIX_BYTES];
    struct shed_put_row p = {0};
    struct shed_put_args args;
    struct shed_delivery_write write;
    struct shed_named_key named;
    struct shed_error why = {SHED_OK, ""};
    unsigned char *tags = NULL;
    uint64_t deadline_ms;
    enum shed_code code = shed_options_take(&o, sizeof(o), options,
                                            "struct shed_put_options", err);

    if (code == SHED_OK)
        code = shed_write_check(cache, key, o.timeout_ms, err);
    if (code == SHED_OK)
        code = shed_put_check(cache, row, &o, err);
    if (code == SHED_OK)
        code = shed_random_token(p.nonce, sizeof(p.nonce), err);
    if (code != SHED_OK)
        return code;
    deadline_ms = shed_cache_deadline_ms(cache, o.timeout_ms);
    if (o.tags_count > 0) /* they would not fit on a caller's stack */
        tags = malloc(shed_put_tags_room(&o));
    if (tags == NULL && o.tags_count > 0)
        return shed_fail_nomem(err, "the tags of a row");
    shed_put_set(&p, row, &o, tags);
    p.has_position = cache->tag_log != NULL;
    if (p.has_position)
        p.position = position_of_put(cache, deadline_ms);
    shed_key_name(cache->name, key, &named);
    (void)shed_entry_refresh_key(named.bytes, named.key.redis_size, refresh);
    shed_put_begin(&args, cache, &p, refresh, named.key.redis_size);
    write = shed_put_mark(cache, &p);
    (void)send_put(cache, shed_key_of_entry(&named.key), &args.args,
                   deadline_ms, &why);
    free(tags);
    (void)shed_write_follow_up(cache, &named.key, write, &why);
    shed_put_count(cache, why.code);
    if (why.code != SHED_OK && err != NULL)
        *err = why;
    return why.code;
}
