/* scan without a cache: finds the caches of a Redis by the keys and headers of
 * their entries, because nothing else tells that there is a cache. */

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cli/entry.h"
#include "cli/scan.h"
#include "cli/walk.h"

#define CACHES_MAX 1000
#define KEYS_OF_ADVICE 20000
#define NAMES_OF_ADVICE 10
#define MINUTE_MS 60000
#define SECOND_MS 1000

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

/* ----------------------------------------------------------------- finding */

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

static void count_entry(struct caches *c, const struct cli_found *found,
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

/* Look at keys of the database, at this rate, until
 * keys_max of them have been looked at, at least. */
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
            count_entry(c, &walk.found[i], walk.now_ms);
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

/* ----------------------------------------------------------------- showing */

static int compare(const void *a, const void *b)
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

bool cli_scan_caches(const struct cli_call *call)
{
    struct traffic traffic = measure(call->redis);
    struct caches caches;

    find(call->redis, call->rate, UINT64_MAX, &caches);
    qsort(caches.list, caches.count, sizeof(*caches.list), compare);
    show_caches(&caches, call->out);
    show_traffic(&traffic, call->out);
    return caches.count > 0;
}
