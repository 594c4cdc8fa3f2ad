/*
 * top: shows the hottest keys of a cache, as far as Redis knows.
 *
 * Redis counts reads of a key only with an LFU policy (OBJECT FREQ, a
 * logarithmic counter that decays). With any other policy it knows the second
 * in which a key was last used (OBJECT IDLETIME). Then top looks at the most
 * recently used keys once a second, and counts in how many of these seconds
 * each was used; keys that are used in every second cannot be distinguished.
 * MONITOR would show more, but halve the server's speed.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/caches.h"
#include "cli/text.h"
#include "cli/walk.h"

#define SHOWN_DEFAULT 10
/* Keys that are looked at once a second, if --rate allows it. Many are used in
 * some second, few in each second; so there are many at first, and fewer once
 * enough are known to be hotter. */
#define CANDIDATES_MAX 20000
#define CANDIDATES_LEFT 1000
#define PAGE 500 /* commands under way at a time */
#define LOOKS_DEFAULT 10
#define BAR_WIDTH 30

struct hot {
    char *key;
    size_t size;
    long long rank; /* FREQ, or minus the idle seconds; later: seconds of use */
};

struct top {
    const struct cli_call *call;
    struct cli_redis *redis;
    bool has_frequency;
    struct hot *keys; /* in descending order after sift and look */
    size_t count, room, candidates;
    uint64_t looks;
    struct cli_rate rate; /* of the keys that are looked at again */
};

static void learn_policy(struct top *t)
{
    struct shed_reply *info = cli_redis_check(
        t->redis, cli_redis_ask(t->redis, "INFO memory"), "INFO");
    char policy[CLI_INFO_BYTES];

    t->has_frequency =
        strstr(cli_info_field(info, "maxmemory_policy", policy), "lfu") != NULL;
    shed_reply_free(info);
}

static int compare_keys(const void *a, const void *b)
{
    const struct hot *x = a, *y = b;
    size_t size = x->size < y->size ? x->size : y->size;
    int order = memcmp(x->key, y->key, size);

    if (order != 0)
        return order;
    if (x->size != y->size)
        return x->size < y->size ? -1 : 1;
    return (x->rank < y->rank) - (x->rank > y->rank);
}

static int compare_ranks(const void *a, const void *b)
{
    const struct hot *x = a, *y = b;

    return (x->rank < y->rank) - (x->rank > y->rank);
}

static void cut(struct top *t, size_t count)
{
    while (t->count > count) {
        struct hot *last = &t->keys[--t->count];
        free(last->key);
        last->key = NULL;
    }
}

/* SCAN can return a key twice; its higher rank is kept. */
static void drop_repeated(struct top *t)
{
    size_t kept = 0;

    qsort(t->keys, t->count, sizeof(*t->keys), compare_keys);
    for (size_t i = 0; i < t->count; i++) {
        const struct hot *last = kept > 0 ? &t->keys[kept - 1] : NULL;
        if (last != NULL && last->size == t->keys[i].size &&
            memcmp(last->key, t->keys[i].key, last->size) == 0)
            free(t->keys[i].key);
        else
            t->keys[kept++] = t->keys[i];
    }
    t->count = kept;
}

/* Keep only the hottest candidates. */
static void sift(struct top *t)
{
    drop_repeated(t);
    qsort(t->keys, t->count, sizeof(*t->keys), compare_ranks);
    cut(t, t->candidates);
}

static void keep(struct top *t, const char *key, size_t size, long long rank)
{
    if (t->count == t->room)
        sift(t);
    t->keys[t->count] = (struct hot){cli_alloc(size, 1), size, rank};
    memcpy(t->keys[t->count++].key, key, size);
}

static void send_object(struct top *t, const char *key, size_t size)
{
    struct shed_args args = {0};

    shed_args_add_text(&args, "OBJECT");
    shed_args_add_text(&args, t->has_frequency ? "FREQ" : "IDLETIME");
    shed_args_add(&args, key, size);
    cli_redis_send(t->redis, &args);
}

/* Read an answer to OBJECT. -1: the key is gone. */
static long long hear_object(struct top *t)
{
    struct shed_reply *reply = cli_redis_hear(t->redis);
    long long number = shed_reply_integer(reply);

    if (!shed_reply_begins(reply, "ERR no such key"))
        (void)cli_redis_check(t->redis, reply, "OBJECT");
    shed_reply_free(reply);
    return number;
}

static bool is_entry(const struct top *t, const char *key, size_t size)
{
    struct cli_key parsed;

    return cli_key_parse(&parsed, t->call->words[0], key, size);
}

static void rank_page(struct top *t, const struct shed_reply *keys)
{
    size_t size = 0;

    for (size_t i = 0; i < shed_reply_count(keys); i++) {
        const char *key = shed_reply_bytes(shed_reply_at(keys, i), &size);
        send_object(t, key, size);
    }
    for (size_t i = 0; i < shed_reply_count(keys); i++) {
        const char *key = shed_reply_bytes(shed_reply_at(keys, i), &size);
        long long number = hear_object(t);
        if (number >= 0 && is_entry(t, key, size))
            keep(t, key, size, t->has_frequency ? number : -number);
    }
}

static void walk_keys(struct top *t)
{
    struct shed_reply *keys;
    struct cli_walk walk;

    cli_walk_begin(&walk, t->redis, t->call->words[0], t->call->rate);
    while ((keys = cli_walk_next(&walk)) != NULL) {
        rank_page(t, keys);
        shed_reply_free(keys);
    }
    cli_walk_end(&walk);
    sift(t);
}

/* Find out which candidates were used in the last second. */
static void look(struct top *t)
{
    for (size_t from = 0; from < t->count; from += PAGE) {
        size_t to = t->count - from > PAGE ? from + PAGE : t->count;
        cli_rate_keep(&t->rate, to - from);
        for (size_t i = from; i < to; i++)
            send_object(t, t->keys[i].key, t->keys[i].size);
        for (size_t i = from; i < to; i++)
            t->keys[i].rank += hear_object(t) == 0;
    }
    qsort(t->keys, t->count, sizeof(*t->keys), compare_ranks);
}

static void count_seconds(struct top *t)
{
    uint64_t looks = t->call->seconds > 0 ? t->call->seconds : LOOKS_DEFAULT;
    struct cli_rate seconds = {.per_s = 1};

    for (size_t i = 0; i < t->count; i++)
        t->keys[i].rank = 0;
    for (; t->looks < looks; t->looks++) {
        cli_rate_keep(&seconds, 1);
        look(t);
        while (t->count > CANDIDATES_LEFT &&
               t->keys[t->count - 1].rank < t->keys[0].rank)
            cut(t, t->count - 1);
    }
}

/* ----------------------------------------------------------------- showing */

static size_t shown(const struct top *t)
{
    size_t most = t->call->top > 0 ? (size_t)t->call->top : SHOWN_DEFAULT;
    size_t count = 0;

    while (count < t->count && count < most &&
           (t->has_frequency || t->keys[count].rank > 0))
        count++;
    return count;
}

static void print_key(const struct top *t, const struct hot *hot,
                      long long most)
{
    struct cli_key key;
    char *word;

    (void)cli_key_parse(&key, t->call->words[0], hot->key, hot->size);
    word = cli_key_word(&key);
    printf("%6lld  %-*.*s  %s\n", hot->rank, BAR_WIDTH,
           (int)(hot->rank * BAR_WIDTH / most),
           "##############################", word);
    free(word);
}

static void print_text(const struct top *t)
{
    size_t count = shown(t);
    long long most = count > 0 && t->keys[0].rank > 0 ? t->keys[0].rank : 1;

    for (size_t i = 0; i < count; i++)
        print_key(t, &t->keys[i], most);
    if (t->has_frequency)
        printf("\nBy Redis's counter of uses (OBJECT FREQ): logarithmic, at "
               "most 255, decaying.\n");
    else if (count == 0)
        printf("none of the entries of '%s' was used in %" PRIu64 " seconds\n",
               t->call->words[0], t->looks);
    else
        printf("\nSeconds, of %" PRIu64 ", in which each was used (OBJECT "
               "IDLETIME). Keys that are used each\nsecond cannot be told "
               "apart; an LFU maxmemory-policy would count uses.\n",
               t->looks);
}

static json_t *hot_json(const struct top *t, const struct hot *hot)
{
    json_t *object = json_object();
    struct cli_key key;

    (void)cli_key_parse(&key, t->call->words[0], hot->key, hot->size);
    cli_key_json(object, &key);
    cli_json_set_bytes(object, "redis_key", hot->key, hot->size);
    json_object_set_new(object, t->has_frequency ? "frequency" : "seconds",
                        json_integer(hot->rank));
    return object;
}

static json_t *top_json(const struct top *t)
{
    json_t *keys = json_array();

    for (size_t i = 0; i < shown(t); i++)
        json_array_append_new(keys, hot_json(t, &t->keys[i]));
    return json_pack("{s:s, s:I, s:o}", "method",
                     t->has_frequency ? "frequency" : "idle time", "looks",
                     (json_int_t)t->looks, "keys", keys);
}

int cli_top(struct cli_call *call)
{
    uint64_t rate = call->rate > 0 ? call->rate : CANDIDATES_MAX;
    struct top t = {.call = call,
                    .rate = {.per_s = rate},
                    .candidates =
                        rate < CANDIDATES_MAX ? (size_t)rate : CANDIDATES_MAX};
    char advice[CLI_ADVICE_BYTES];
    int status;

    cli_check_cache(call, call->words[0]);
    t.redis = cli_redis_open(call, NULL);
    learn_policy(&t);
    t.room = 2 * t.candidates;
    t.keys = cli_alloc(t.room, sizeof(*t.keys));
    walk_keys(&t);
    if (!t.has_frequency && t.count > 0)
        count_seconds(&t);
    if (call->is_json)
        cli_json_print(call, top_json(&t));
    else if (t.count > 0)
        print_text(&t);
    else
        printf("there are no entries of '%s': %s\n", call->words[0],
               cli_cache_advice(t.redis, call->words[0], advice));
    status = t.count > 0 ? CLI_YES : CLI_NO;
    for (size_t i = 0; i < t.count; i++)
        free(t.keys[i].key);
    free(t.keys);
    cli_redis_close(t.redis);
    return status;
}
