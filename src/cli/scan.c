/* scan: lists the caches, or counts the entries of one. To count, only the
 * header of each entry is fetched, and its tags if they decide whether it is a
 * miss. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cli/entry.h"
#include "cli/scan.h"
#include "cli/walk.h"

#define KEYS_SHOWN 10
#define CACHES_MAX 1000
#define KEYS_OF_ADVICE 20000
#define NAMES_OF_ADVICE 10
#define MINUTE_MS 60000
#define SECOND_MS 1000
#define FORMATS 256 /* the format is one byte */

/* Ages of rows: below a second, 10 s, a minute, 10 minutes, an hour, a day. */
static const uint64_t ages_ms[] = {1000,    10000,    60000,     600000,
                                   3600000, 86400000, UINT64_MAX};

#define AGES (sizeof(ages_ms) / sizeof(*ages_ms))

struct census {
    const struct cli_call *call;
    struct cli_tags *tags;
    uint64_t now_ms;
    uint64_t count[CLI_KINDS], bytes[CLI_KINDS];
    uint64_t age[AGES];
    uint64_t stale, refreshes;
    uint64_t invalidated;     /* rows that are misses by one of their tags */
    struct shed_entry *asked; /* those of a page whose tags are asked for */
    size_t asked_count;
    uint64_t others; /* keys with this prefix that do not belong to the cache */
    uint64_t formats[FORMATS]; /* unknown formats, by their number */
    uint64_t without_ttl;
    json_t *no_ttl, *largest; /* keys, the largest first */
};

/* ---------------------------------------------------------------- counting */

static void count_age(struct census *c, const struct shed_entry *entry)
{
    uint64_t age_ms = shed_left_ms(c->now_ms, entry->written_ms);
    size_t i = 0;

    while (i + 1 < AGES && age_ms >= ages_ms[i])
        i++;
    c->age[i]++;
    c->stale += c->now_ms >= entry->until_ms;
}

/* Count an entry that is a miss by one of its tags. If its tags decide that,
 * ask for them; the answer comes behind those of the page. */
static void count_miss(struct census *c, struct shed_bytes name,
                       const struct shed_entry *entry)
{
    struct cli_miss miss = cli_tags_judge(c->tags, entry);

    c->invalidated += miss.position > 0;
    if (miss.position > 0 || !miss.may_be_one)
        return;
    cli_redis_send_key(c->call->redis,
                       cli_format("GETRANGE KEY %zu -1",
                                  SHED_ENTRY_HEADER_BYTES + entry->payload_size)
                           .at,
                       name);
    c->asked[c->asked_count++] = *entry;
}

static uint64_t bytes_in(const json_t *item)
{
    return (uint64_t)json_integer_value(json_object_get(item, "bytes"));
}

/* Keep a key in a list of the largest. It may be there already, as SCAN can
 * return a key twice. */
static void keep_large(json_t *list, const struct cli_key *key, uint64_t bytes)
{
    size_t i = 0;
    bool is_there = false;
    json_t *item;

    while (i < json_array_size(list) &&
           bytes_in(json_array_get(list, i)) >= bytes)
        i++;
    if (i == KEYS_SHOWN)
        return;
    item = cli_out_open();
    cli_out_number(item, "bytes", bytes);
    cli_out_bytes(item, "key", cli_key_bytes(key));
    for (size_t j = 0; j < i; j++)
        is_there |= json_equal(json_array_get(list, j), item) != 0;
    if (!is_there && json_array_insert(list, i, item) != 0)
        cli_fail_nomem();
    json_decref(item);
    (void)json_array_remove(list, KEYS_SHOWN);
}

/* The three answers are from moments close to each other. A key that vanished
 * or grew in between is not counted. */
static void count_entry(struct census *c, const struct cli_found *found)
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
    if (kind == CLI_FOREIGN && shed_entry_format(head.data, head.size) >= 0)
        c->formats[shed_entry_format(head.data, head.size)]++;
    c->count[kind]++;
    c->bytes[kind] += all;
    if (cli_kind_is_stored(kind)) {
        count_age(c, &entry);
        count_miss(c, found->name, &entry);
    }
    if (pttl == -1) {
        c->without_ttl++;
        keep_large(c->no_ttl, &found->key, all);
    }
    keep_large(c->largest, &found->key, all);
}

/* An entry that was replaced meanwhile is counted only if what is there now has
 * the form of tags. */
static void hear_tags(struct census *c)
{
    for (size_t i = 0; i < c->asked_count; i++) {
        struct shed_reply *reply =
            cli_redis_hear_key(c->call->redis, "GETRANGE", false);
        struct shed_bytes tags = cli_redis_bytes(reply);
        struct shed_entry *entry = &c->asked[i];
        entry->tags = tags.data;
        entry->tags_size = tags.size;
        c->invalidated += tags.data != NULL &&
                          shed_entry_are_tags(tags.data, tags.size) &&
                          cli_tags_judge(c->tags, entry).position > 0;
        shed_reply_free(reply);
    }
}

static void count_page(struct census *c, const struct cli_walk *walk)
{
    c->now_ms = walk->now_ms;
    c->asked = cli_alloc(walk->count, sizeof(*c->asked));
    c->asked_count = 0;
    for (size_t i = 0; i < walk->count; i++) {
        const struct cli_found *found = &walk->found[i];
        if (!found->is_entry)
            c->others++;
        else if (found->is_refresh)
            c->refreshes++;
        else
            count_entry(c, found);
    }
    hear_tags(c);
    free(c->asked);
    if (walk->count > 0)
        cli_tags_read(c->tags); /* before the entries that it judges */
}

/* ----------------------------------------------------------------- showing */

static void show_kinds(const struct census *c, json_t *out)
{
    json_t *types = cli_out_list(out, "types"), *item;
    json_t *formats = cli_out_list(out, "unknown_formats");

    for (int i = CLI_VALUE; i < CLI_KINDS; i++) {
        item = cli_out_item(types);
        cli_out_text(item, "type", cli_kinds[i].name);
        cli_out_number(item, "count", c->count[i]);
        cli_out_number(item, "bytes", c->bytes[i]);
    }
    for (size_t i = 0; i < FORMATS; i++) {
        if (c->formats[i] == 0)
            continue;
        item = cli_out_item(formats);
        cli_out_number(item, "format", i);
        cli_out_number(item, "count", c->formats[i]);
    }
    cli_out_number(out, "refreshes", c->refreshes);
    cli_out_number(out, "other_keys", c->others);
}

static void show_ages(const struct census *c, json_t *out)
{
    json_t *list = cli_out_list(out, "ages");

    for (size_t i = 0; i < AGES; i++) {
        json_t *age = cli_out_item(list);
        cli_out_maybe(age, "below_ms", i + 1 < AGES, (long long)ages_ms[i]);
        cli_out_number(age, "count", c->age[i]);
    }
    cli_out_number(out, "stale", c->stale);
    cli_out_number(out, "invalidated", c->invalidated);
}

static void show_census(const struct census *c)
{
    json_t *out = c->call->out;

    cli_out_text(out, "cache", c->call->words[0]);
    show_kinds(c, out);
    show_ages(c, out);
    cli_out_set(out, "largest", c->largest);
    cli_out_number(out, "without_ttl", c->without_ttl);
    cli_out_set(out, "without_ttl_keys", c->no_ttl);
    if (c->without_ttl > 0)
        cli_out_hint(
            out, cli_format(
                     "The library creates no keys without a ttl: find out who "
                     "does, and remove them with 'snowshed invalidate -e %s'.",
                     c->call->words[0])
                     .at);
}

static bool count_entries(const struct cli_call *call)
{
    struct census c = {
        .call = call, .largest = json_array(), .no_ttl = json_array()};
    const char *cache = call->words[0];
    struct cli_walk walk;
    uint64_t sum = 0;

    c.tags = cli_tags_open(call->redis, cache);
    cli_walk_begin(&walk, call->redis, cache, call->rate);
    walk.ask[0] = CLI_ASK_HEADER;
    walk.ask[1] = "STRLEN KEY";
    walk.ask[2] = "PTTL KEY";
    cli_tags_read(c.tags);
    while (cli_walk_next(&walk))
        count_page(&c, &walk);
    for (int i = 0; i < CLI_KINDS; i++)
        sum += c.count[i];
    show_census(&c);
    if (sum == 0)
        cli_cache_hint(call);
    cli_tags_close(c.tags);
    return sum > 0;
}

/* -------------------------------------------------------------- all caches
 *
 * They are found by the keys and headers of their entries, because nothing else
 * tells that there is a cache. */

struct cache {
    char name[SHED_NAME_MAX_BYTES + 1];
    uint64_t count[CLI_KINDS]; /* entries */
    uint64_t entries;          /* of all kinds */
    uint64_t written;          /* rows, and "no such row", of the last minute */
    bool has_tags;             /* its rows heed a log of tags */
};

struct caches {
    struct cache list[CACHES_MAX];
    size_t count;
    uint64_t left_out; /* entries of caches beyond the first thousand */
    uint64_t denied;   /* keys that this user may not read */
};

/* Returns: NULL if there are too many. */
static struct cache *cache_of(struct caches *c, const char *name)
{
    for (size_t i = c->count; i-- > 0;)
        if (strcmp(c->list[i].name, name) == 0)
            return &c->list[i];
    if (c->count == CACHES_MAX)
        return NULL;
    (void)snprintf(c->list[c->count].name, sizeof(c->list->name), "%s", name);
    return &c->list[c->count++];
}

static void count_for_cache(struct caches *c, const struct cli_found *found,
                            uint64_t now_ms)
{
    struct shed_entry entry;
    enum cli_kind kind = cli_kind_of(found->answer[0], -1, &entry);
    struct cache *cache;

    c->denied += cli_redis_is_denied(found->answer[0]);
    if (kind == CLI_FOREIGN || kind == CLI_OTHER)
        return;
    cache = cache_of(c, found->key.cache);
    if (cache == NULL) {
        c->left_out++;
        return;
    }
    cache->count[kind]++;
    cache->entries++;
    if (!cli_kind_is_stored(kind))
        return;
    cache->written += entry.written_ms + MINUTE_MS > now_ms;
    cache->has_tags |= (entry.flags & SHED_ENTRY_POSITION) != 0;
}

/* Look at keys of the database, at this rate, until keys_max of them have been
 * looked at, at least. */
static void find(struct cli_redis *redis, uint64_t rate, uint64_t keys_max,
                 struct caches *c)
{
    struct cli_walk walk;

    *c = (struct caches){.count = 0};
    cli_walk_begin(&walk, redis, NULL, rate);
    walk.ask[0] = CLI_ASK_HEADER;
    walk.passes_denied = true;
    while (walk.looked < keys_max && cli_walk_next(&walk))
        for (size_t i = 0; i < walk.count; i++)
            count_for_cache(c, &walk.found[i], walk.now_ms);
    cli_walk_end(&walk);
}

struct cli_text cli_cache_advice(const struct cli_call *call)
{
    struct cli_text text = {""};
    struct caches caches;

    find(call->redis, CLI_KEYS_PER_S, KEYS_OF_ADVICE, &caches);
    for (size_t i = 0; i < caches.count && i < NAMES_OF_ADVICE; i++)
        text = cli_format("%s%s%s", text.at, i > 0 ? ", " : "some are of ",
                          caches.list[i].name);
    return cli_format("%s%s'snowshed scan' lists the caches.", text.at,
                      caches.count > 0 ? "; " : "");
}

void cli_cache_hint(const struct cli_call *call)
{
    cli_out_hint(call->out,
                 cli_format("There are no entries of '%s': %s", call->words[0],
                            cli_cache_advice(call).at)
                     .at);
}

/* ----------------------------------------------------------------- traffic */

/* What Redis as a whole does, of all programs and in all its databases. */
enum { COMMANDS, FOUND, MISSED, COUNTERS };

struct traffic {
    bool is_known;
    long long count[COUNTERS]; /* since it began; then, in a second */
};

static struct traffic read_traffic(struct cli_redis *redis)
{
    static const char *const names[COUNTERS] = {[COMMANDS] =
                                                    "total_commands_processed",
                                                [FOUND] = "keyspace_hits",
                                                [MISSED] = "keyspace_misses"};
    struct traffic t = {.is_known = true};

    for (size_t i = 0; cli_redis_next(redis, &i); i++) {
        struct shed_reply *info = cli_redis_ask(redis, "INFO stats");
        t.is_known &= shed_reply_error(info) == NULL;
        for (size_t j = 0; j < COUNTERS; j++)
            t.count[j] += cli_info_number(info, names[j]);
        shed_reply_free(info);
    }
    return t;
}

/* Measured before the walk, whose own reads would be counted. */
static struct traffic measure(struct cli_redis *redis)
{
    struct traffic before = read_traffic(redis), t;
    uint64_t begun_ms = shed_now_ms();

    if (!before.is_known)
        return before;
    cli_sleep_ms(SECOND_MS);
    t = read_traffic(redis);
    for (size_t i = 0; i < COUNTERS; i++)
        t.count[i] = (t.count[i] - before.count[i]) * SECOND_MS /
                     (long long)(shed_now_ms() - begun_ms);
    return t;
}

static int compare_caches(const void *a, const void *b)
{
    const struct cache *x = a, *y = b;

    return (x->entries < y->entries) - (x->entries > y->entries);
}

static void show_caches(const struct caches *c, json_t *out)
{
    json_t *list = cli_out_list(out, "caches");

    for (size_t i = 0; i < c->count; i++) {
        json_t *item = cli_out_item(list);
        for (int kind = CLI_VALUE; kind <= CLI_FAILURE; kind++)
            cli_out_number(item, cli_kinds[kind].name, c->list[i].count[kind]);
        cli_out_number(item, "written_in_last_minute", c->list[i].written);
        cli_out_flag(item, "has_tags", c->list[i].has_tags);
        cli_out_text(item, "name", c->list[i].name);
    }
    cli_out_number(out, "entries_left_out", c->left_out);
    cli_out_number(out, "keys_denied", c->denied);
}

static void show_traffic(const struct traffic *t, json_t *out)
{
    json_t *redis = cli_out_object(out, "redis");

    cli_out_maybe(redis, "commands_per_s", t->is_known, t->count[COMMANDS]);
    cli_out_maybe(redis, "keys_found_per_s", t->is_known, t->count[FOUND]);
    cli_out_maybe(redis, "keys_missed_per_s", t->is_known, t->count[MISSED]);
}

static bool list_caches(const struct cli_call *call)
{
    struct traffic traffic = measure(call->redis);
    struct caches caches;

    find(call->redis, call->rate, UINT64_MAX, &caches);
    qsort(caches.list, caches.count, sizeof(*caches.list), compare_caches);
    show_caches(&caches, call->out);
    show_traffic(&traffic, call->out);
    return caches.count > 0;
}

int cli_scan(struct cli_call *call)
{
    bool is_found;

    cli_redis_open(call);
    is_found = call->count == 0 ? list_caches(call) : count_entries(call);
    return is_found ? CLI_YES : CLI_NO;
}
