/* caches: finds the caches of a Redis by the keys and headers of their entries,
 * because nothing else tells that there is a cache. */
#include "cli/caches.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cli/near.h"
#include "cli/rate.h"
#include "cli/text.h"
#include "cli/walk.h"

#define CACHES_MAX 1000
#define KEYS_OF_ADVICE 20000
#define MINUTE_MS 60000
#define SECOND_MS 1000

/* ----------------------------------------------------------------- finding */

/* The name of the cache whose entry a key can be: what is before ":{". */
static bool name_of(const char *at, size_t size,
                    char name[SHED_NAME_MAX_BYTES + 1])
{
    struct cli_key key;
    size_t bytes;
    const char *brace = at != NULL ? memchr(at, '{', size) : NULL;

    if (brace == NULL || brace == at || brace[-1] != ':')
        return false;
    bytes = (size_t)(brace - at) - 1;
    if (bytes > SHED_NAME_MAX_BYTES)
        return false;
    memcpy(name, at, bytes);
    name[bytes] = '\0';
    return cli_fault_of_name(name) == NULL &&
           cli_key_parse(&key, name, at, size);
}

/* Returns: NULL if there are too many. */
static struct cli_cache *cache_of(struct cli_caches *c, const char *name)
{
    for (size_t i = c->count; i-- > 0;)
        if (strcmp(c->list[i].name, name) == 0)
            return &c->list[i];
    if (c->count == CACHES_MAX)
        return NULL;
    c->list[c->count] = (struct cli_cache){.has_tags = false};
    (void)snprintf(c->list[c->count].name, sizeof(c->list->name), "%s", name);
    return &c->list[c->count++];
}

static void count_entry(struct cli_cache *cache, const struct shed_entry *entry,
                        uint64_t now_ms)
{
    enum cli_kind kind = cli_kind_of(entry->type);

    cache->count[kind]++;
    if (kind != CLI_VALUE && kind != CLI_NEGATIVE)
        return;
    cache->written += entry->written_ms + MINUTE_MS > now_ms;
    if ((entry->flags & SHED_ENTRY_POSITION) != 0)
        cache->has_tags = true;
}

static void hear_header(struct cli_redis *redis, struct cli_caches *c,
                        const char *name, uint64_t now_ms)
{
    struct shed_reply *head = cli_redis_hear(redis);
    struct shed_entry entry;
    struct cli_cache *cache;
    size_t size = 0;
    const char *bytes;

    if (cli_redis_is_denied(head))
        c->denied++;
    else
        (void)cli_redis_check_key(redis, head, "GETRANGE");
    bytes = shed_reply_bytes(head, &size);
    if (bytes != NULL &&
        shed_entry_decode_header(bytes, size, &entry) != SHED_ENTRY_FOREIGN) {
        cache = cache_of(c, name);
        if (cache != NULL)
            count_entry(cache, &entry, now_ms);
        else
            c->left_out++;
    }
    shed_reply_free(head);
}

static void count_page(struct cli_redis *redis, struct cli_caches *c,
                       const struct shed_reply *keys)
{
    char name[SHED_NAME_MAX_BYTES + 1];
    uint64_t now_ms;
    size_t size = 0;

    cli_redis_send_words(redis, "TIME");
    for (size_t i = 0; i < shed_reply_count(keys); i++) {
        const char *key = shed_reply_bytes(shed_reply_at(keys, i), &size);
        if (name_of(key, size, name))
            cli_entry_send_header(redis, key, size);
    }
    now_ms = cli_redis_hear_clock_ms(redis);
    for (size_t i = 0; i < shed_reply_count(keys); i++) {
        const char *key = shed_reply_bytes(shed_reply_at(keys, i), &size);
        if (name_of(key, size, name))
            hear_header(redis, c, name, now_ms);
    }
}

void cli_caches_find(struct cli_redis *redis, uint64_t rate, uint64_t keys_max,
                     struct cli_caches *c)
{
    struct cli_walk walk;
    struct shed_reply *keys;

    *c = (struct cli_caches){.list = cli_alloc(CACHES_MAX, sizeof(*c->list))};
    cli_walk_begin_pattern(&walk, redis, "*:{*}", rate);
    while (walk.looked < keys_max && (keys = cli_walk_next(&walk)) != NULL) {
        if (shed_reply_count(keys) > 0)
            count_page(redis, c, keys);
        shed_reply_free(keys);
    }
    cli_walk_end(&walk);
}

void cli_caches_free(struct cli_caches *caches)
{
    free(caches->list);
}

const char *cli_cache_advice(struct cli_redis *redis, const char *name,
                             char text[CLI_ADVICE_BYTES])
{
    struct cli_near near = {.word = name};
    struct cli_caches caches;

    cli_caches_find(redis, 0, KEYS_OF_ADVICE, &caches);
    for (size_t i = 0; i < caches.count; i++)
        cli_near_offer(&near, caches.list[i].name);
    if (near.best != NULL)
        (void)snprintf(text, CLI_ADVICE_BYTES, "did you mean '%s'?", near.best);
    else
        (void)snprintf(text, CLI_ADVICE_BYTES,
                       "'snowshed caches' lists the caches.");
    cli_caches_free(&caches);
    return text;
}

/* ----------------------------------------------------------------- traffic */

/* What Redis as a whole does, of all programs and in all its databases. */
struct traffic {
    bool is_known;
    long long commands, found, missed; /* in a second */
};

static bool read_traffic(struct cli_redis *redis, struct traffic *out)
{
    struct shed_reply *info = cli_redis_ask(redis, "INFO stats");
    bool is_known = shed_reply_error(info) == NULL;

    *out = (struct traffic){is_known,
                            cli_info_number(info, "total_commands_processed"),
                            cli_info_number(info, "keyspace_hits"),
                            cli_info_number(info, "keyspace_misses")};
    shed_reply_free(info);
    return is_known;
}

static long long per_second(long long before, long long after, uint64_t ms)
{
    return (after - before) * SECOND_MS / (long long)ms;
}

/* Measured before the walk, whose own reads would be counted. */
static void measure(struct cli_redis *redis, struct traffic *out)
{
    struct traffic before;
    uint64_t begun_ms = shed_now_ms(), ms;

    *out = (struct traffic){.is_known = false};
    if (!read_traffic(redis, &before))
        return;
    cli_sleep_ms(SECOND_MS);
    (void)read_traffic(redis, out);
    ms = shed_now_ms() - begun_ms;
    out->commands = per_second(before.commands, out->commands, ms);
    out->found = per_second(before.found, out->found, ms);
    out->missed = per_second(before.missed, out->missed, ms);
}

/* ----------------------------------------------------------------- showing */

static uint64_t entries_of(const struct cli_cache *c)
{
    uint64_t sum = 0;

    for (int i = 0; i < CLI_KINDS; i++)
        sum += c->count[i];
    return sum;
}

static int compare(const void *a, const void *b)
{
    uint64_t x = entries_of(a), y = entries_of(b);

    return (x < y) - (x > y);
}

static void print_caches(const struct cli_caches *c)
{
    printf("%12s %12s %8s %8s %12s  %-7s %s\n", "rows", "no such row", "leases",
           "failures", "last minute", "tags", "cache");
    for (size_t i = 0; i < c->count; i++) {
        const struct cli_cache *cache = &c->list[i];
        printf("%12" PRIu64 " %12" PRIu64 " %8" PRIu64 " %8" PRIu64
               " %12" PRIu64 "  %-7s %s\n",
               cache->count[CLI_VALUE], cache->count[CLI_NEGATIVE],
               cache->count[CLI_LEASE], cache->count[CLI_FAILURE],
               cache->written, cache->has_tags ? "yes" : "no", cache->name);
    }
    printf("\nlast minute: rows and \"no such row\" that were written in it\n");
    if (c->left_out > 0)
        printf("%" PRIu64 " entries of further caches are not shown\n",
               c->left_out);
}

static void print_traffic(const struct traffic *t)
{
    long long reads = t->found + t->missed;

    if (!t->is_known)
        return;
    printf("Redis, for all programs: %lld commands/s, %lld reads of keys/s",
           t->commands, reads);
    if (reads > 0)
        printf(", of which %.1f %% found one",
               100.0 * (double)t->found / (double)reads);
    (void)putchar('\n');
}

static json_t *cache_json(const struct cli_cache *cache)
{
    json_t *object = json_pack("{s:s}", "name", cache->name);

    for (int i = CLI_VALUE; i <= CLI_FAILURE; i++)
        json_object_set_new(object, cli_kind_name((enum cli_kind)i),
                            json_integer((json_int_t)cache->count[i]));
    json_object_set_new(object, "written_in_last_minute",
                        json_integer((json_int_t)cache->written));
    json_object_set_new(object, "has_tags", json_boolean(cache->has_tags));
    return object;
}

static json_t *caches_json(const struct cli_caches *c, const struct traffic *t)
{
    json_t *list = json_array();

    for (size_t i = 0; i < c->count; i++)
        json_array_append_new(list, cache_json(&c->list[i]));
    return json_pack(
        "{s:o, s:I, s:I, s:o, s:o, s:o}", "caches", list, "entries_left_out",
        (json_int_t)c->left_out, "keys_denied", (json_int_t)c->denied,
        "commands_per_s", t->is_known ? json_integer(t->commands) : json_null(),
        "keys_found_per_s", t->is_known ? json_integer(t->found) : json_null(),
        "keys_missed_per_s",
        t->is_known ? json_integer(t->missed) : json_null());
}

int cli_caches(struct cli_call *call)
{
    struct cli_redis *redis = cli_redis_open(call, NULL);
    struct cli_caches caches;
    struct traffic traffic;
    int status;

    measure(redis, &traffic);
    cli_caches_find(redis, call->rate, UINT64_MAX, &caches);
    qsort(caches.list, caches.count, sizeof(*caches.list), compare);
    status = caches.count > 0 ? CLI_YES : CLI_NO;
    if (call->is_json) {
        cli_json_print(call, caches_json(&caches, &traffic));
    } else {
        if (caches.count > 0)
            print_caches(&caches);
        else
            printf("no cache has an entry in this database\n");
        if (caches.denied > 0)
            printf("%" PRIu64 " keys may not be read by this user\n",
                   caches.denied);
        print_traffic(&traffic);
    }
    cli_caches_free(&caches);
    cli_redis_close(redis);
    return status;
}
