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
#include <stdlib.h>
#include <string.h>

#include "cli/caches.h"
#include "cli/walk.h"

/* Keys that are looked at once a second, if --rate allows it. Many are used in
 * some second, few in each second; so there are many at first, and fewer once
 * enough are known to be hotter. */
#define CANDIDATES_MAX 20000
#define CANDIDATES_LEFT 1000
#define PAGE 500 /* commands under way at a time */
#define LOOKS_DEFAULT 10
#define BAR_WIDTH 30

struct hot {
    struct shed_bytes name; /* in Redis; its bytes are ours */
    long long rank; /* FREQ, or minus the idle seconds; later: seconds of use */
};

struct top {
    const struct cli_call *call;
    bool has_frequency;
    struct hot *keys;         /* in descending order after sift and look */
    size_t count, candidates; /* there is room for twice as many */
    uint64_t looks;
    struct cli_rate rate; /* of the keys that are looked at again */
};

/* The higher rank first. */
static int compare_ranks(const void *a, const void *b)
{
    const struct hot *x = a, *y = b;

    return (x->rank < y->rank) - (x->rank > y->rank);
}

/* By length and name, then by rank. */
static int compare_names(const void *a, const void *b)
{
    const struct hot *x = a, *y = b;
    int order = (x->name.size > y->name.size) - (x->name.size < y->name.size);

    if (order == 0)
        order = memcmp(x->name.data, y->name.data, x->name.size);
    return order != 0 ? order : compare_ranks(a, b);
}

static void drop(const struct hot *hot)
{
    free((void *)(uintptr_t)hot->name.data);
}

static void cut(struct top *t, size_t count)
{
    while (t->count > count)
        drop(&t->keys[--t->count]);
}

/* Keep only the hottest candidates. SCAN can return a key twice; its higher
 * rank is kept. */
static void sift(struct top *t)
{
    size_t kept = 0;

    qsort(t->keys, t->count, sizeof(*t->keys), compare_names);
    for (size_t i = 0; i < t->count; i++)
        if (kept > 0 && cli_are_same(t->keys[kept - 1].name, t->keys[i].name))
            drop(&t->keys[i]);
        else
            t->keys[kept++] = t->keys[i];
    t->count = kept;
    qsort(t->keys, t->count, sizeof(*t->keys), compare_ranks);
    cut(t, t->candidates);
}

static void keep(struct top *t, struct shed_bytes name, long long rank)
{
    void *copy = cli_alloc(name.size, 1);

    if (t->count == 2 * t->candidates)
        sift(t);
    memcpy(copy, name.data, name.size);
    t->keys[t->count++] = (struct hot){shed_bytes(copy, name.size), rank};
}

static const char *question(const struct top *t)
{
    return t->has_frequency ? "OBJECT FREQ KEY" : "OBJECT IDLETIME KEY";
}

static void walk_keys(struct top *t)
{
    struct cli_walk walk;

    cli_walk_begin(&walk, t->call->redis, t->call->words[0], t->call->rate);
    walk.ask[0] = question(t);
    while (cli_walk_next(&walk))
        for (size_t i = 0; i < walk.count; i++) {
            long long number = shed_reply_integer(walk.found[i].answer[0]);
            if (number >= 0)
                keep(t, walk.found[i].name,
                     t->has_frequency ? number : -number);
        }
    sift(t);
}

/* Find out which candidates were used in the last second. */
static void look(struct top *t)
{
    for (size_t from = 0; from < t->count; from += PAGE) {
        size_t to = t->count - from > PAGE ? from + PAGE : t->count;
        cli_rate_keep(&t->rate, to - from);
        for (size_t i = from; i < to; i++)
            cli_redis_send_key(t->call->redis, question(t), t->keys[i].name);
        for (size_t i = from; i < to; i++) {
            struct shed_reply *idle =
                cli_redis_hear_key(t->call->redis, "OBJECT");
            t->keys[i].rank += shed_reply_integer(idle) == 0;
            shed_reply_free(idle);
        }
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

/* How many of the keys are shown. */
static size_t shown(const struct top *t)
{
    size_t count = 0;

    while (count < t->count && count < t->call->top &&
           (t->has_frequency || t->keys[count].rank > 0))
        count++;
    return count;
}

static void show_key(const struct top *t, const struct hot *hot, long long most,
                     json_t *out, json_t *item)
{
    struct cli_key key;

    (void)cli_key_parse(&key, t->call->words[0], hot->name);
    cli_out_print(out, "%6lld  %-*.*s  %s\n", hot->rank, BAR_WIDTH,
                  (int)(hot->rank * BAR_WIDTH / most),
                  "##############################",
                  cli_word(cli_key_bytes(&key)).at);
    cli_out_bytes(item, "key", cli_key_bytes(&key));
    cli_out_bytes(item, "redis_key", hot->name);
    cli_out_number(item, t->has_frequency ? "frequency" : "seconds",
                   (uint64_t)hot->rank);
}

static void show(const struct top *t, json_t *out)
{
    const char *cache = t->call->words[0];
    size_t count = shown(t);
    long long most = count > 0 && t->keys[0].rank > 0 ? t->keys[0].rank : 1;
    json_t *list = cli_out_list(out, "keys");

    cli_out_text(out, "method", t->has_frequency ? "frequency" : "idle time");
    cli_out_number(out, "looks", t->looks);
    for (size_t i = 0; i < count; i++)
        show_key(t, &t->keys[i], most, out, cli_out_item(list));
    if (t->count == 0)
        cli_cache_print_none(t->call, "");
    else if (t->has_frequency)
        cli_out_print(out, "\nBy Redis's counter of uses (OBJECT FREQ): "
                           "logarithmic, at most 255, decaying.\n");
    else if (count == 0)
        cli_out_print(out,
                      "none of the entries of '%s' was used in %" PRIu64
                      " seconds\n",
                      cache, t->looks);
    else
        cli_out_print(out,
                      "\nSeconds, of %" PRIu64 ", in which each was used "
                      "(OBJECT IDLETIME). Keys that are used each\nsecond "
                      "cannot be told apart; an LFU maxmemory-policy would "
                      "count uses.\n",
                      t->looks);
}

int cli_top(struct cli_call *call)
{
    uint64_t rate = call->rate;
    struct top t = {.call = call,
                    .rate = {.per_s = rate},
                    .candidates =
                        rate < CANDIDATES_MAX ? (size_t)rate : CANDIDATES_MAX};
    struct shed_reply *info;
    int status;

    info = cli_redis_check(call->redis,
                           cli_redis_ask(call->redis, "INFO memory"), "INFO");
    t.has_frequency =
        strstr(cli_info(info, "maxmemory_policy").at, "lfu") != NULL;
    shed_reply_free(info);
    t.keys = cli_alloc(2 * t.candidates, sizeof(*t.keys));
    walk_keys(&t);
    if (!t.has_frequency && t.count > 0)
        count_seconds(&t);
    show(&t, call->out);
    status = t.count > 0 ? CLI_YES : CLI_NO;
    cut(&t, 0);
    free(t.keys);
    return status;
}
