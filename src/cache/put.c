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

/* How long a try may be under way: far longer than Redis takes, and not too
 * long for a caller whose connection was lost with it; and how often a put is
 * tried that comes too late. */
#define TRY_MS 1000
#define TRIES 3

/* What put.lua returns beyond this is the server's clock: it was too late. */
#define DONE_MAX 3

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

bool shed_put_needs_log(const struct shed_cache *cache)
{
    struct shed_tag_log *log = cache->tag_log;

    return log != NULL && shed_tag_log_position(log) == 0 &&
           !shed_tag_log_is_known(log);
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

enum shed_code shed_put_set(struct shed_put_row *p,
                            const struct shed_cache *cache,
                            struct shed_bytes row,
                            const struct shed_put_options *o,
                            unsigned char *tags, struct shed_error *err)
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

uint64_t shed_put_begin_try(struct shed_put_tries *t,
                            struct shed_client *client,
                            struct shed_entry_key key)
{
    uint64_t until_ms = shed_deadline_ms(shed_now_ms(), TRY_MS);

    if (!t->was_lost)
        t->until_ms = until_ms < t->deadline_ms ? until_ms : t->deadline_ms;
    if (t->server_ms > 0) /* both clocks were rounded down */
        t->late_ms = t->server_ms - 1 + t->until_ms - t->heard_ms;
    else
        t->late_ms =
            shed_client_server_lowest_ms(client, key.at, key.size, t->until_ms);
    return t->late_ms;
}

bool shed_put_is_late(struct shed_put_tries *t, const struct shed_reply *reply,
                      struct shed_error *why)
{
    long long answer = shed_reply_integer(reply);

    *why = shed_write_judge(reply, why, "the put");
    if (why->code != SHED_OK || answer <= DONE_MAX)
        return false;
    if (t->late_ms > 0)      /* else this one only asked for the clock */
        t->was_lost = false; /* what was lost comes too late, too */
    t->server_ms = (uint64_t)answer;
    t->heard_ms = shed_now_ms();
    if (++t->count < TRIES)
        return true;
    (void)shed_fail(why, SHED_ETIMEDOUT, "the put came to Redis too late");
    return false;
}

/* Send a put, whose last argument is missing. */
static void send_put(struct shed_cache *cache, struct shed_entry_key key,
                     struct shed_args *args, struct shed_put_tries *tries,
                     struct shed_error *why)
{
    char digits[SHED_DIGITS];
    int count = args->count;
    bool is_late;

    do {
        struct shed_reply *reply = NULL;
        unsigned sent;
        enum shed_code code;
        bool may_come;
        args->count = count;
        shed_args_add_number(args, digits,
                             shed_put_begin_try(tries, cache->client, key));
        *why = (struct shed_error){SHED_OK, ""};
        code = shed_client_call(cache->client, args, 1, &reply, NULL, &sent,
                                tries->deadline_ms, why);
        /* it was sent and not answered, perhaps before it was sent again */
        may_come = sent > (code == SHED_OK ? 1U : 0U);
        is_late = shed_put_is_late(tries, reply, why);
        shed_reply_free(reply);
        if (may_come)
            shed_sleep_until(tries->until_ms);
    } while (is_late);
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
    struct shed_put_row p;
    struct shed_put_args args;
    struct shed_delivery_write write;
    struct shed_named_key named;
    struct shed_error why;
    unsigned char *tags = NULL;
    struct shed_put_tries tries = {0};
    enum shed_code code = shed_options_take(&o, sizeof(o), options,
                                            "struct shed_put_options", err);

    if (code == SHED_OK)
        code = shed_cache_check_key_call(cache, key, o.timeout_ms, false, err);
    if (code == SHED_OK)
        code = shed_put_check(cache, row, &o, err);
    if (code != SHED_OK)
        return code;
    tries.deadline_ms = shed_cache_deadline_ms(cache, o.timeout_ms);
    if (o.tags_count > 0) /* they would not fit on a caller's stack */
        tags = malloc(shed_put_tags_room(&o));
    if (tags == NULL && o.tags_count > 0)
        return shed_fail_nomem(err, "the tags of a row");
    code = shed_put_set(&p, cache, row, &o, tags, err);
    if (code != SHED_OK) {
        free(tags);
        return code;
    }
    if (shed_put_needs_log(cache))
        (void)!shed_tag_log_learn(cache->tag_log, tries.deadline_ms, &why);
    if (p.has_position)
        p.position = shed_tag_log_position(cache->tag_log);
    shed_key_name(cache->name, key, &named);
    (void)shed_entry_refresh_key(named.bytes, named.key.redis_size, refresh);
    shed_put_begin(&args, cache, &p, refresh, named.key.redis_size);
    write = shed_put_mark(cache, &p);
    send_put(cache, shed_key_of_entry(&named.key), &args.args, &tries, &why);
    free(tags);
    (void)shed_write_follow_up(cache, &named.key, write, &why);
    shed_put_count(cache, why.code);
    if (why.code != SHED_OK && err != NULL)
        *err = why;
    return why.code;
}
