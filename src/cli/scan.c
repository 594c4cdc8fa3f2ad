/* scan: lists the caches, or counts the entries of one. Counts are members of
 * the answer from the beginning. Of each entry only the header is fetched. */
#include "base/clock.h"
#include "cli/entry.h"
#include "cli/walk.h"

#define KEYS_SHOWN 10
#define MINUTE_MS 60000

/* Ages of rows: below a second, 10 s, a minute, 10 minutes, an hour, a day. */
static const uint64_t ages_ms[] = {1000,    10000,    60000,     600000,
                                   3600000, 86400000, UINT64_MAX};

#define AGES (sizeof(ages_ms) / sizeof(*ages_ms))

/* Parts of the answer. */
struct census {
    json_t *out;
    json_t *type[CLI_KINDS], *age[AGES];
    json_t *no_ttl, *largest; /* keys, the largest first */
};

static void add(json_t *out, const char *name, uint64_t more)
{
    json_int_t number = json_integer_value(json_object_get(out, name));

    cli_out_number(out, name, (uint64_t)number + more);
}

/* ---------------------------------------------------------------- counting */

static struct census begin_census(const struct cli_call *call)
{
    struct census c = {.out = call->out};
    json_t *list;

    cli_out_text(c.out, "cache", call->words[0]);
    list = cli_out_list(c.out, "types");
    for (int i = CLI_VALUE; i < CLI_KINDS; i++) {
        c.type[i] = cli_out_item(list);
        cli_out_text(c.type[i], "type", cli_kinds[i].name);
        cli_out_number(c.type[i], "count", 0);
        cli_out_number(c.type[i], "bytes", 0);
    }
    cli_out_number(c.out, "refreshes", 0);
    /* with this prefix, and they do not belong to the cache */
    cli_out_number(c.out, "other_keys", 0);
    list = cli_out_list(c.out, "ages");
    for (size_t i = 0; i < AGES; i++) {
        c.age[i] = cli_out_item(list);
        cli_out_maybe(c.age[i], "below_ms", i + 1 < AGES,
                      (long long)ages_ms[i]);
        cli_out_number(c.age[i], "count", 0);
    }
    cli_out_number(c.out, "stale", 0);
    c.largest = cli_out_list(c.out, "largest");
    cli_out_number(c.out, "without_ttl", 0);
    c.no_ttl = cli_out_list(c.out, "without_ttl_keys");
    return c;
}

static void count_age(struct census *c, const struct shed_entry *entry,
                      uint64_t now_ms)
{
    uint64_t age_ms = shed_left_ms(now_ms, entry->written_ms);
    size_t i = 0;

    while (i + 1 < AGES && age_ms >= ages_ms[i])
        i++;
    add(c->age[i], "count", 1);
    add(c->out, "stale", now_ms >= entry->until_ms);
}

static uint64_t bytes_in(const json_t *item)
{
    return (uint64_t)json_integer_value(json_object_get(item, "bytes"));
}

/* Keep a key in a list of the largest. */
static void keep_large(json_t *list, const struct cli_key *key, uint64_t bytes)
{
    size_t i = 0;
    json_t *item;

    while (i < json_array_size(list) &&
           bytes_in(json_array_get(list, i)) >= bytes)
        i++;
    if (i == KEYS_SHOWN)
        return;
    item = cli_out_open();
    cli_out_number(item, "bytes", bytes);
    cli_out_bytes(item, "key", shed_key_bytes(&key->named.key));
    if (json_array_insert_new(list, i, item) != 0)
        cli_fail_nomem();
    (void)json_array_remove(list, KEYS_SHOWN);
}

/* The three answers are from moments close to each other. A key that vanished
 * or grew in between is not counted. */
static void count_entry(struct census *c, const struct cli_found *found,
                        uint64_t now_ms)
{
    struct shed_bytes head = cli_redis_bytes(found->answer[0]);
    long long size = shed_reply_integer(found->answer[1]);
    long long pttl = shed_reply_integer(found->answer[2]);
    uint64_t all = size > 0 ? (uint64_t)size : 0;
    struct shed_entry entry = {0};
    enum cli_kind kind;

    if (pttl == -2 ||
        (head.data != NULL &&
         (all < head.size ||
          (head.size != SHED_ENTRY_HEADER_BYTES && all != head.size))))
        return;
    kind = cli_kind_of(found->answer[0], size, &entry);
    add(c->type[kind], "count", 1);
    add(c->type[kind], "bytes", all);
    if (cli_kind_is_stored(kind))
        count_age(c, &entry, now_ms);
    if (pttl == -1) {
        add(c->out, "without_ttl", 1);
        keep_large(c->no_ttl, &found->key, all);
    }
    keep_large(c->largest, &found->key, all);
}

static bool count_entries(const struct cli_call *call)
{
    struct census c = begin_census(call);
    struct cli_walk walk;

    cli_walk_begin(&walk, call->redis, call->words[0], call->rate);
    walk.ask[0] = CLI_ASK_HEADER;
    walk.ask[1] = "STRLEN KEY";
    walk.ask[2] = "PTTL KEY";
    while (cli_walk_next(&walk))
        for (size_t i = 0; i < walk.count; i++) {
            const struct cli_found *found = &walk.found[i];
            if (!found->is_entry)
                add(c.out, "other_keys", 1);
            else if (found->is_refresh)
                add(c.out, "refreshes", 1);
            else
                count_entry(&c, found, walk.now_ms);
        }
    if (json_array_size(c.no_ttl) > 0)
        cli_out_hint(
            c.out,
            cli_format("The library creates no keys without a ttl: find out "
                       "who does, and remove them with 'snowshed invalidate "
                       "-e %s'.",
                       call->words[0])
                .at);
    if (json_array_size(c.largest) == 0)
        cli_key_hint_none(call);
    return json_array_size(c.largest) > 0;
}

/* -------------------------------------------------------------- all caches
 *
 * They are found by the keys and headers of their entries, because nothing else
 * tells that there is a cache. */

/* What is counted of a cache. */
static json_t *cache_of(json_t *caches, const char *name)
{
    json_t *cache = json_object_get(caches, name);

    if (cache != NULL)
        return cache;
    cache = cli_out_object(caches, name);
    for (int kind = CLI_VALUE; kind <= CLI_FAILURE; kind++)
        cli_out_number(cache, cli_kinds[kind].name, 0);
    cli_out_number(cache, "written_in_last_minute", 0);
    cli_out_flag(cache, "has_tags", false);
    cli_out_text(cache, "name", name);
    return cache;
}

static void count_for_cache(json_t *caches, const struct cli_found *found,
                            uint64_t now_ms)
{
    struct shed_entry entry;
    enum cli_kind kind = cli_kind_of(found->answer[0], -1, &entry);
    json_t *cache;

    if (kind == CLI_FOREIGN || kind == CLI_OTHER)
        return;
    cache = cache_of(caches, found->key.cache);
    add(cache, cli_kinds[kind].name, 1);
    if (!cli_kind_is_stored(kind))
        return;
    add(cache, "written_in_last_minute", entry.written_ms + MINUTE_MS > now_ms);
    if ((entry.flags & SHED_ENTRY_POSITION) != 0) /* they heed a log */
        cli_out_flag(cache, "has_tags", true);
}

static bool list_caches(const struct cli_call *call)
{
    json_t *list = cli_out_list(call->out, "caches"), *cache;
    json_t *caches = cli_out_open(); /* by name */
    uint64_t denied = 0;
    struct cli_walk walk;
    const char *name;

    cli_walk_begin(&walk, call->redis, NULL, call->rate);
    walk.ask[0] = CLI_ASK_HEADER;
    walk.passes_denied = true;
    while (cli_walk_next(&walk))
        for (size_t i = 0; i < walk.count; i++) {
            denied += cli_redis_is_denied(walk.found[i].answer[0]);
            count_for_cache(caches, &walk.found[i], walk.now_ms);
        }
    json_object_foreach(caches, name, cache)
    {
        if (json_array_append(list, cache) != 0)
            cli_fail_nomem();
    }
    json_decref(caches);
    cli_out_number(call->out, "keys_denied", denied);
    return json_array_size(list) > 0;
}

int cli_scan(struct cli_call *call)
{
    bool is_found;

    cli_redis_open(call);
    is_found = call->count == 0 ? list_caches(call) : count_entries(call);
    return is_found ? CLI_YES : CLI_NO;
}
