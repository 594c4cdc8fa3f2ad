/* scan: counts the entries of a cache. Only the header of each entry is
 * fetched, and its tags if they decide whether it is a miss. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/caches.h"
#include "cli/text.h"
#include "cli/walk.h"

#define LARGEST_DEFAULT 10
#define NO_TTL_SHOWN 10
#define BAR_WIDTH 30
#define FORMATS 256 /* the format is one byte */

/* Ages of rows. */
static const struct {
    uint64_t below_ms;
    const char *name;
} ages[] = {{1000, "below 1 s"},        {10000, "below 10 s"},
            {60000, "below 1 min"},     {600000, "below 10 min"},
            {3600000, "below 1 h"},     {86400000, "below 1 d"},
            {UINT64_MAX, "1 d or more"}};

#define AGES (sizeof(ages) / sizeof(*ages))

/* A key of the cache, as the program knows it. */
struct named {
    char *key;
    size_t size;
    uint64_t entry_size;
};

struct census {
    const struct cli_call *call;
    struct cli_redis *redis;
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
    struct named no_ttl[NO_TTL_SHOWN]; /* the first ones */
    struct named *largest;             /* in descending order */
    size_t largest_count, largest_max;
};

static void send_key(struct census *c, const char *command, const char *key,
                     size_t size, const char *from, const char *to)
{
    struct shed_args args = {0};

    shed_args_add_text(&args, command);
    shed_args_add(&args, key, size);
    if (from != NULL) {
        shed_args_add_text(&args, from);
        shed_args_add_text(&args, to);
    }
    cli_redis_send(c->redis, &args);
}

static struct named name_key(const struct census *c, const char *key,
                             size_t size, uint64_t entry_size)
{
    struct named named = {.entry_size = entry_size};
    struct cli_key parsed;

    (void)cli_key_parse(&parsed, c->call->words[0], key, size);
    named.size = parsed.named.key.size;
    named.key = cli_alloc(named.size, 1);
    memcpy(named.key, cli_key_bytes(&parsed), named.size);
    return named;
}

static void keep_if_large(struct census *c, const char *key, size_t size,
                          uint64_t bytes)
{
    size_t at = c->largest_count;

    if (at == c->largest_max) {
        if (at == 0 || c->largest[at - 1].entry_size >= bytes)
            return;
        free(c->largest[--at].key);
    } else {
        c->largest_count++;
    }
    for (; at > 0 && c->largest[at - 1].entry_size < bytes; at--)
        c->largest[at] = c->largest[at - 1];
    c->largest[at] = name_key(c, key, size, bytes);
}

static void count_age(struct census *c, const struct shed_entry *entry)
{
    uint64_t age_ms =
        c->now_ms > entry->written_ms ? c->now_ms - entry->written_ms : 0;
    size_t i = 0;

    while (i + 1 < AGES && age_ms >= ages[i].below_ms)
        i++;
    c->age[i]++;
    c->stale += c->now_ms >= entry->until_ms;
}

static enum cli_kind kind_of(const char *head, uint64_t size,
                             struct shed_entry *entry)
{
    switch (shed_entry_decode_header(head, (size_t)size, entry)) {
    case SHED_ENTRY_FOREIGN:
        return CLI_FOREIGN;
    case SHED_ENTRY_CORRUPT:
        return CLI_DAMAGED;
    case SHED_ENTRY_OK:
        break;
    }
    return cli_kind_of(entry->type);
}

static void count_ttl(struct census *c, const char *key, size_t size,
                      long long pttl)
{
    if (pttl != -1)
        return;
    if (c->without_ttl < NO_TTL_SHOWN)
        c->no_ttl[c->without_ttl] = name_key(c, key, size, 0);
    c->without_ttl++;
}

static void count_format(struct census *c, const char *head, size_t size)
{
    int format = shed_entry_format(head, size);

    if (format >= 0)
        c->formats[format]++;
}

/* Count an entry that is a miss by one of its tags. If its tags decide that,
 * ask for them; the answer comes behind those of the page. */
static void count_miss(struct census *c, const char *key, size_t size,
                       const struct shed_entry *entry)
{
    struct cli_miss miss;
    char from[SHED_DIGITS];

    cli_tags_judge(c->tags, entry, &miss);
    c->invalidated += miss.position > 0;
    if (miss.position > 0 || !cli_tags_want_tags(c->tags, entry))
        return;
    (void)snprintf(from, sizeof(from), "%zu",
                   SHED_ENTRY_HEADER_BYTES + entry->payload_size);
    send_key(c, "GETRANGE", key, size, from, "-1");
    c->asked[c->asked_count++] = *entry;
}

/* head, length and pttl are three replies, from moments close to each other. A
 * key that vanished or grew in between is not counted. */
static void count_key(struct census *c, const char *key, size_t size,
                      const struct shed_reply *head,
                      const struct shed_reply *length, long long pttl)
{
    size_t head_size = 0;
    const char *bytes = shed_reply_bytes(head, &head_size);
    long long all = shed_reply_integer(length);
    struct shed_entry entry;
    enum cli_kind kind = CLI_OTHER;

    if (pttl == -2 || (bytes != NULL && all < (long long)head_size))
        return;
    if (bytes != NULL &&
        (head_size == SHED_ENTRY_HEADER_BYTES || all == (long long)head_size))
        kind = kind_of(bytes, (uint64_t)all, &entry);
    else if (bytes != NULL)
        return;
    if (kind == CLI_FOREIGN)
        count_format(c, bytes, head_size);
    c->count[kind]++;
    c->bytes[kind] += all > 0 ? (uint64_t)all : 0;
    if (kind == CLI_VALUE || kind == CLI_NEGATIVE) {
        count_age(c, &entry);
        count_miss(c, key, size, &entry);
    }
    count_ttl(c, key, size, pttl);
    keep_if_large(c, key, size, all > 0 ? (uint64_t)all : 0);
}

/* NAME:{KEY}, and not NAME:{a}b, which another program may have made. */
static bool is_entry(const struct census *c, const char *key, size_t size)
{
    struct cli_key parsed;

    return cli_key_parse(&parsed, c->call->words[0], key, size);
}

static void send_page(struct census *c, const struct shed_reply *keys)
{
    size_t size = 0;

    for (size_t i = 0; i < shed_reply_count(keys); i++) {
        const char *key = shed_reply_bytes(shed_reply_at(keys, i), &size);
        cli_entry_send_header(c->redis, key, size);
        send_key(c, "STRLEN", key, size, NULL, NULL);
        send_key(c, "PTTL", key, size, NULL, NULL);
    }
    cli_redis_send_words(c->redis, "TIME");
}

static struct shed_reply *hear_any(struct census *c)
{
    return cli_redis_check_key(c->redis, cli_redis_hear(c->redis),
                               "GETRANGE, STRLEN or PTTL");
}

/* An entry that was replaced meanwhile is counted only if what is there now has
 * the form of tags. */
static void hear_tags(struct census *c)
{
    for (size_t i = 0; i < c->asked_count; i++) {
        struct shed_reply *reply = hear_any(c);
        struct shed_entry entry = c->asked[i];
        struct cli_miss miss;
        entry.tags = (const void *)shed_reply_bytes(reply, &entry.tags_size);
        if (entry.tags != NULL &&
            shed_entry_are_tags(entry.tags, entry.tags_size)) {
            cli_tags_judge(c->tags, &entry, &miss);
            c->invalidated += miss.position > 0;
        }
        shed_reply_free(reply);
    }
    c->asked_count = 0;
}

static void count_page(struct census *c, const struct shed_reply *keys)
{
    size_t size = 0;

    cli_tags_read(c->tags);
    c->asked = cli_realloc(c->asked, shed_reply_count(keys), sizeof(*c->asked));
    send_page(c, keys);
    for (size_t i = 0; i < shed_reply_count(keys); i++) {
        const char *key = shed_reply_bytes(shed_reply_at(keys, i), &size);
        struct shed_reply *head = hear_any(c), *length = hear_any(c);
        struct shed_reply *pttl = hear_any(c);
        size_t entry_size = shed_entry_key_size(key, size);
        if (!is_entry(c, key, entry_size))
            c->others++;
        else if (entry_size < size)
            c->refreshes++;
        else
            count_key(c, key, size, head, length, shed_reply_integer(pttl));
        shed_reply_free(head);
        shed_reply_free(length);
        shed_reply_free(pttl);
    }
    c->now_ms = cli_redis_hear_clock_ms(c->redis);
    hear_tags(c);
}

/* -------------------------------------------------------------------- text */

static const char *const kind_words[CLI_KINDS] = {
    [CLI_VALUE] = "rows",      [CLI_NEGATIVE] = "no such row",
    [CLI_LEASE] = "leases",    [CLI_FAILURE] = "failures",
    [CLI_DAMAGED] = "damaged", [CLI_FOREIGN] = "foreign",
    [CLI_OTHER] = "no strings"};

static void print_formats(const struct census *c)
{
    for (size_t i = 0; i < FORMATS; i++)
        if (c->formats[i] > 0)
            printf("  of format %-2zu %12" PRIu64 "\n", i, c->formats[i]);
}

/* Print what was found besides entries. */
static void print_others(const struct census *c)
{
    if (c->refreshes > 0)
        printf("%-14s %12" PRIu64 "\n", "refreshes", c->refreshes);
    if (c->others > 0)
        printf("%-14s %12" PRIu64
               " %14s  same prefix, but not keys of a cache\n",
               "other keys", c->others, "");
}

static void print_ages(const struct census *c)
{
    uint64_t most = 1;

    for (size_t i = 0; i < AGES; i++)
        most = c->age[i] > most ? c->age[i] : most;
    printf("\nAges of rows and negative entries\n");
    for (size_t i = 0; i < AGES; i++)
        printf("  %-14s %10" PRIu64 "%s%.*s\n", ages[i].name, c->age[i],
               c->age[i] > 0 ? "  " : "",
               (int)((c->age[i] * BAR_WIDTH + most - 1) / most),
               "##############################");
    if (c->stale > 0)
        printf("  past their freshness: %" PRIu64 "\n", c->stale);
    if (c->invalidated > 0)
        printf("  invalidated, by a tag or with all entries: %" PRIu64 "\n",
               c->invalidated);
}

static void print_name(const struct named *named)
{
    char *word = cli_word(named->key, named->size);

    printf("  %s\n", word);
    free(word);
}

static void print_largest(const struct census *c)
{
    char text[CLI_TEXT_BYTES];

    printf("\nLargest entries\n");
    for (size_t i = 0; i < c->largest_count; i++) {
        printf("  %12s", cli_size(text, c->largest[i].entry_size));
        print_name(&c->largest[i]);
    }
}

static void print_without_ttl(const struct census *c)
{
    printf("\nKeys that never expire: %" PRIu64 "\n", c->without_ttl);
    if (c->without_ttl > 0)
        printf("The library creates none: find out who does, and remove them "
               "with\n'snowshed invalidate -e %s' and these:\n",
               c->call->words[0]);
    for (size_t i = 0; i < NO_TTL_SHOWN && i < c->without_ttl; i++)
        print_name(&c->no_ttl[i]);
}

static void print_census(const struct census *c, uint64_t sum)
{
    char text[CLI_ADVICE_BYTES];

    printf("%-14s %12s %14s\n", "", "entries", "size");
    for (int i = 0; i < CLI_KINDS; i++)
        if (kind_words[i] != NULL && (c->count[i] > 0 || i <= CLI_FAILURE))
            printf("%-14s %12" PRIu64 " %14s\n", kind_words[i], c->count[i],
                   cli_size(text, c->bytes[i]));
    print_formats(c);
    print_others(c);
    if (sum == 0) {
        printf("\nthere are no entries of '%s': %s\n", c->call->words[0],
               cli_cache_advice(c->redis, c->call->words[0], text));
        return;
    }
    print_ages(c);
    print_largest(c);
    print_without_ttl(c);
}

/* -------------------------------------------------------------------- JSON */

static json_t *formats_json(const struct census *c)
{
    json_t *list = json_array();

    for (size_t i = 0; i < FORMATS; i++)
        if (c->formats[i] > 0)
            json_array_append_new(list, json_pack("{s:i, s:I}", "format",
                                                  (int)i, "count",
                                                  (json_int_t)c->formats[i]));
    return list;
}

static json_t *name_json(const struct named *named)
{
    json_t *object = json_object();

    cli_json_set_bytes(object, "key", named->key, named->size);
    return object;
}

static json_t *largest_json(const struct named *named)
{
    json_t *object = name_json(named);

    json_object_set_new(object, "bytes",
                        json_integer((json_int_t)named->entry_size));
    return object;
}

static json_t *census_json(const struct census *c)
{
    json_t *types = json_object(), *histogram = json_array();
    json_t *largest = json_array(), *no_ttl = json_array();

    for (int i = CLI_VALUE; i < CLI_KINDS; i++)
        json_object_set_new(types, cli_kind_name((enum cli_kind)i),
                            json_pack("{s:I, s:I}", "count",
                                      (json_int_t)c->count[i], "bytes",
                                      (json_int_t)c->bytes[i]));
    for (size_t i = 0; i < AGES; i++)
        json_array_append_new(
            histogram,
            json_pack("{s:o, s:I}", "below_ms",
                      ages[i].below_ms == UINT64_MAX
                          ? json_null()
                          : json_integer((json_int_t)ages[i].below_ms),
                      "count", (json_int_t)c->age[i]));
    for (size_t i = 0; i < c->largest_count; i++)
        json_array_append_new(largest, largest_json(&c->largest[i]));
    for (size_t i = 0; i < NO_TTL_SHOWN && i < c->without_ttl; i++)
        json_array_append_new(no_ttl, name_json(&c->no_ttl[i]));
    return json_pack(
        "{s:s, s:o, s:o, s:I, s:I, s:o, s:I, s:I, s:o, s:I, s:o}", "cache",
        c->call->words[0], "types", types, "unknown_formats", formats_json(c),
        "refreshes", (json_int_t)c->refreshes, "other_keys",
        (json_int_t)c->others, "ages", histogram, "stale", (json_int_t)c->stale,
        "invalidated", (json_int_t)c->invalidated, "largest", largest,
        "without_ttl", (json_int_t)c->without_ttl, "without_ttl_keys", no_ttl);
}

static void free_census(struct census *c)
{
    for (size_t i = 0; i < c->largest_count; i++)
        free(c->largest[i].key);
    for (size_t i = 0; i < NO_TTL_SHOWN; i++)
        free(c->no_ttl[i].key);
    free(c->largest);
    free(c->asked);
}

static void read_clock(struct census *c)
{
    cli_redis_send_words(c->redis, "TIME");
    c->now_ms = cli_redis_hear_clock_ms(c->redis);
}

int cli_scan(struct cli_call *call)
{
    struct census c = {.call = call};
    struct cli_walk walk;
    struct shed_reply *keys;
    uint64_t sum = 0;

    cli_check_cache(call, call->words[0]);
    c.largest_max = call->top > 0 ? (size_t)call->top : LARGEST_DEFAULT;
    c.largest = cli_alloc(c.largest_max, sizeof(*c.largest));
    c.redis = cli_redis_open(call, NULL);
    c.tags = cli_tags_open(c.redis, call->words[0]);
    read_clock(&c);
    cli_walk_begin(&walk, c.redis, call->words[0], call->rate);
    while ((keys = cli_walk_next(&walk)) != NULL) {
        if (shed_reply_count(keys) > 0)
            count_page(&c, keys);
        shed_reply_free(keys);
    }
    cli_walk_end(&walk);
    for (int i = 0; i < CLI_KINDS; i++)
        sum += c.count[i];
    if (call->is_json)
        cli_json_print(call, census_json(&c));
    else
        print_census(&c, sum);
    free_census(&c);
    cli_tags_close(c.tags);
    cli_redis_close(c.redis);
    return sum > 0 ? CLI_YES : CLI_NO;
}
