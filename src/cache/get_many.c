/*
 * The get of many keys that blocks: one pipeline for what is cached, in the
 * caller's thread, and a call for each of the others, all of which it awaits.
 */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/value.h"
#include "cache/await.h"
#include "cache/get.h"
#include "wire/parser.h"

/* Keys of one MGET, which blocks the server for as long as it takes. */
#define TOGETHER_MAX 100
#define FRAME_MARGIN_BYTES 65536

/* One key of a call. */
struct one {
    struct shed_key key;
    struct shed_look look; /* what its call begins with */
    bool is_looked;        /* by MGET */
};

struct batch {
    struct shed_cache *cache;
    const struct shed_terms *terms;
    struct shed_item *items; /* of those with a value nothing is awaited */
    size_t count;
    struct one *one;
    char *names; /* of the keys in Redis */
    struct shed_await *await;
    /* MGETs, of so many keys each, and behind them blocks of their arguments */
    unsigned together;
    size_t command_count;
    struct shed_args *commands;
    struct shed_reply **replies;
};

static void destroy_batch(struct batch *b)
{
    free(b->one);
    free(b->names);
    free(b->commands);
    free(b->replies);
}

static size_t names_size(const struct batch *b)
{
    size_t size = b->count * (SHED_REDIS_KEY_MAX_BYTES - SHED_KEY_MAX_BYTES);

    for (size_t i = 0; i < b->count; i++)
        size += b->items[i].key.size;
    return size;
}

static enum shed_code create_batch(struct batch *b, struct shed_error *err)
{
    b->one = calloc(b->count, sizeof(*b->one));
    b->names = malloc(names_size(b));
    b->await = shed_await_create(b->count);
    if (b->one != NULL && b->names != NULL && b->await != NULL)
        return SHED_OK;
    free(b->await);
    destroy_batch(b);
    return shed_fail_nomem(err, "shed_get_many");
}

/* Take the rows that are near, and name the other keys. */
static void begin_keys(struct batch *b)
{
    struct shed_named_key named;
    char *name = b->names;

    for (size_t i = 0; i < b->count; i++) {
        struct shed_item *item = &b->items[i];
        item->value = shed_look_near(b->cache, item->key, b->terms);
        if (item->value != NULL)
            continue;
        shed_key_name(b->cache->name, item->key, &named);
        b->one[i].key = named.key;
        b->one[i].key.redis.data =
            memcpy(name, named.bytes, named.key.redis.size);
        name += named.key.redis.size;
    }
}

_Static_assert(offsetof(struct shed_item, key) == 0, "as an array's rule says");

enum shed_code shed_get_check_items(struct shed_item *items, size_t count,
                                    struct shed_error *err)
{
    static const struct shed_array_rule rule = {
        "shed_get_many",    "items",       ".key", SHED_MANY_MAX,
        SHED_KEY_MAX_BYTES, sizeof(*items)};

    for (size_t i = 0; items != NULL && i < count; i++) {
        items[i].value = NULL;
        items[i].code = SHED_EINVAL;
    }
    return shed_cache_check_array(&rule, items, count, err);
}

/* How many keys fit into the bound of a reply; 1: they are to be asked for one
 * by one, over the loop. */
static unsigned together_of(const struct shed_cache *cache)
{
    const struct shed_address *address = cache->client->address;
    uint64_t fit = SHED_PARSER_MAX_BYTES /
                   (cache->options.value_limit_bytes + FRAME_MARGIN_BYTES);

    if (fit < 2 || atomic_load(&address->is_mget_refused) ||
        address->seeds != NULL || /* only those of one slot go together */
        !shed_tag_log_is_known(cache->tag_log))
        return 1;
    return fit < TOGETHER_MAX ? (unsigned)fit : TOGETHER_MAX;
}

/* Make room for MGETs. Returns: false: without memory each key is asked for on
 * its own. */
static bool create_commands(struct batch *b)
{
    size_t blocks = 1 + b->together / SHED_ARGS_MAX;

    b->command_count = (b->count + b->together - 1) / b->together;
    b->commands = calloc(b->command_count * blocks, sizeof(*b->commands));
    b->replies = calloc(b->command_count, sizeof(struct shed_reply *));
    return b->commands != NULL && b->replies != NULL;
}

/* Add the keys to MGETs. Returns: until when to wait for them. */
static uint64_t make_commands(struct batch *b)
{
    struct shed_args *next = b->commands + b->command_count, *args = NULL;
    uint64_t until_ms = 0;

    for (size_t i = 0; i < b->count; i++) {
        struct one *one = &b->one[i];
        uint64_t one_ms;
        shed_look_begin(b->cache, &one->key, &one->look);
        one_ms = shed_look_until_ms(b->cache, &one->key, b->terms);
        until_ms = one_ms > until_ms ? one_ms : until_ms;
        if (i % b->together == 0) {
            args = &b->commands[i / b->together];
            *args = shed_args_of("MGET", NULL);
            args->is_guarded = true;
        } else if (args->count == SHED_ARGS_MAX) {
            args->more = next;
            args = next++;
        }
        shed_args_add(args, one->key.redis.data, one->key.redis.size);
    }
    return until_ms;
}

/* Take the replies. What is no entry, nor nil, is left to the call of the key.
 */
static void take_replies(struct batch *b, const struct shed_link_use *use)
{
    for (size_t i = 0; i < b->count; i++) {
        struct one *one = &b->one[i];
        struct shed_reply *whole = b->replies[i / b->together];
        struct shed_reply *reply = shed_reply_take(whole, i % b->together);
        struct shed_error unused;
        if (shed_reply_error(whole) != NULL &&
            shed_reply_code(whole) == SHED_EDENIED)
            atomic_store(&b->cache->client->address->is_mget_refused, true);
        if (reply == NULL)
            continue;
        one->is_looked = shed_look_at(b->cache, &one->key, b->terms, reply, use,
                                      &one->look, &unused) == SHED_OK;
        b->items[i].value = shed_look_take(&one->look, SHED_LOOK_ANSWERS);
    }
}

/* By MGETs in this thread. */
static void look_here(struct batch *b)
{
    struct shed_link_use use;
    struct shed_error unused;
    uint64_t until_ms;

    b->together = together_of(b->cache);
    if (b->together < 2 || !create_commands(b))
        return;
    until_ms = make_commands(b);
    if (shed_client_call(b->cache->client, b->commands, b->command_count,
                         b->replies, &use, NULL, until_ms, &unused) != SHED_OK)
        return;
    take_replies(b, &use);
    shed_reply_free_all(b->replies, b->command_count);
}

void shed_get_conclude(struct shed_cache *cache, const struct shed_item *item,
                       size_t i, const char *reason, struct shed_error *own,
                       struct shed_error *all)
{
    enum shed_code code = item->code;

    shed_count_code(&cache->counters, code);
    if (own != NULL)
        *own = (struct shed_error){SHED_OK, ""};
    if (code == SHED_OK)
        return;
    if (own != NULL)
        (void)shed_fail(own, code, "%s", reason);
    if (all->code == SHED_OK || (all->code == SHED_EMISS && code != SHED_EMISS))
        (void)shed_fail(all, code, "items[%zu]: %s", i, reason);
}

/* Nothing was asked, because of why. */
static enum shed_code fail_items(struct shed_item *items, size_t count,
                                 struct shed_error *errors,
                                 const struct shed_error *why,
                                 struct shed_error *err)
{
    for (size_t i = 0; items != NULL && i < count; i++) {
        items[i].code = why->code;
        if (errors != NULL)
            errors[i] = *why;
    }
    if (why->code != SHED_OK && err != NULL)
        *err = *why;
    return why->code;
}

/* Add the call of a key. Returns: false when out of memory. */
static bool add_call(struct batch *b, size_t i)
{
    struct one *one = &b->one[i];
    struct shed_pending *p = shed_async_get_create(
        b->cache, &one->key, b->terms, &b->await->is_let_through);
    struct shed_key_get *g;

    if (p == NULL)
        return false;
    g = shed_async_get_of(p);
    shed_look_share(b->cache, &one->key, &one->look, &g->look);
    g->is_looked = one->is_looked;
    g->caller.is_counted = true;
    shed_await_add(b->await, i, p);
    return true;
}

/* Begin calls of the keys that have no value. */
static void begin_open(struct batch *b)
{
    for (size_t i = b->count; i-- > 0;) {
        if (b->items[i].value == NULL && add_call(b, i))
            continue;
        b->await->outcome[i].code = SHED_ENOMEM; /* or it has a value */
        shed_await_skip(b->await);
    }
    shed_await_begin(b->await);
}

/* The call of get i is no longer waited for, because of late. Returns: the
 * reason of a failure. */
static const char *fall_back(struct batch *b, size_t i,
                             const struct shed_error *late)
{
    struct shed_item *item = &b->items[i];

    item->code = shed_look_fall_back(b->cache, &b->one[i].key, &b->one[i].look,
                                     late->code, late->reason, &item->value);
    return late->reason;
}

/* Take how get i has ended. late: NULL, or why its call is no longer waited
 * for. Returns: the reason of a failure. */
static const char *take_end(struct batch *b, size_t i,
                            const struct shed_error *late)
{
    struct shed_outcome *outcome = &b->await->outcome[i];
    struct shed_item *item = &b->items[i];

    item->code = SHED_OK;
    if (item->value != NULL)
        return "";
    if (late != NULL)
        return fall_back(b, i, late);
    shed_value_unref(b->one[i].look.value);
    item->code = outcome->code;
    item->value = outcome->value;
    outcome->value = NULL;
    return shed_error_kept(outcome->why);
}

/* Get keys that have been checked. */
static enum shed_code get_many(struct batch *b, struct shed_error *errors,
                               struct shed_error *err)
{
    struct shed_error all = {SHED_OK, ""}, late;
    bool is_late;

    begin_keys(b);
    if (!shed_cache_takes_near(b->cache)) /* else all become near */
        look_here(b);
    begin_open(b);
    is_late = shed_await_ends(b->await,
                              shed_terms_deadline_ms(b->terms) +
                                  SHED_AWAIT_READ_LATE_MS,
                              &late) != SHED_OK;
    for (size_t i = 0; i < b->count; i++) {
        const char *reason = take_end(b, i, is_late ? &late : NULL);
        shed_get_conclude(b->cache, &b->items[i], i, reason,
                          errors != NULL ? &errors[i] : NULL, &all);
    }
    shed_await_leave(b->await);
    if (all.code != SHED_OK && err != NULL)
        *err = all;
    return all.code;
}

enum shed_code shed_get_many(struct shed_cache *cache, struct shed_item *items,
                             size_t count,
                             const struct shed_get_options *options,
                             struct shed_error *err)
{
    struct shed_terms terms = {0};
    struct shed_error *errors = NULL;
    struct shed_error why = {SHED_OK, ""};
    struct batch b = {
        .cache = cache, .terms = &terms, .items = items, .count = count};
    enum shed_code code = shed_get_check_items(items, count, &why);

    if (code == SHED_OK)
        code =
            shed_get_take_options(cache, options, false, &terms, &errors, &why);
    terms.start_us = shed_now_us();
    if (code == SHED_OK && count > 0)
        code = create_batch(&b, &why);
    if (code != SHED_OK || count == 0)
        return fail_items(items, count, errors, &why, err);
    code = get_many(&b, errors, err);
    destroy_batch(&b);
    return code;
}
