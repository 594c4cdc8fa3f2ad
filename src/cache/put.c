/* What a put sends to Redis. Its invariant: Redis refuses each try from the
 * moment on at which the call may have ended. */
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
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

bool shed_put_needs_log(const struct shed_cache *cache)
{
    struct shed_tag_log *log = cache->tag_log;

    return !shed_tag_log_is_known(log) && shed_tag_log_position(log) == 0;
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

void shed_put_begin(struct shed_put_args *out, const struct shed_cache *cache,
                    const struct shed_put_row *p, struct shed_bytes key)
{
    struct shed_entry entry = make_entry(p);
    struct shed_args *args = &out->args;

    shed_entry_encode(key, &entry, p->nonce, &out->parts);
    shed_script_begin(args, SHED_SCRIPT_PUT, "2");
    args->is_guarded = true;
    shed_args_add(args, key.data, key.size);
    shed_args_add(args, key.data, key.size + SHED_ENTRY_REFRESH_SUFFIX_BYTES);
    shed_args_add(args, out->parts.head, sizeof(out->parts.head));
    shed_args_add(args, out->parts.tail, sizeof(out->parts.tail));
    shed_args_add(args, p->row.data, p->row.size);
    add_ttls(args, cache, p->ttl_ms, out->fresh, out->kept);
    shed_args_add(args, out->parts.tail,
                  p->has_version ? sizeof(out->parts.tail) : 0);
    shed_args_add(args, p->tags, p->tags_size);
}

uint64_t shed_put_begin_try(struct shed_put_tries *t,
                            struct shed_client *client, struct shed_bytes key)
{
    uint64_t until_ms = shed_deadline_ms(shed_now_ms(), TRY_MS);

    if (!t->was_lost)
        t->until_ms = until_ms < t->deadline_ms ? until_ms : t->deadline_ms;
    if (t->server_ms > 0) /* both clocks were rounded down */
        t->late_ms = t->server_ms - 1 + t->until_ms - t->heard_ms;
    else
        t->late_ms = shed_client_server_lowest_ms(client, key, t->until_ms);
    return t->late_ms;
}

void shed_write_judge(const struct shed_reply *reply, const char *what,
                      struct shed_error *why)
{
    const char *text = shed_reply_error(reply);

    if (why->code == SHED_OK && shed_reply_integer(reply) < 0)
        (void)shed_fail(why,
                        text != NULL ? shed_reply_code(reply) : SHED_EREDIS,
                        "Redis refused %s: %s", what,
                        text != NULL ? text : "a reply of an unknown form");
}

bool shed_put_is_late(struct shed_put_tries *t, const struct shed_reply *reply,
                      struct shed_error *why)
{
    long long answer = shed_reply_integer(reply);

    shed_write_judge(reply, "the put", why);
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
