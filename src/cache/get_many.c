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

/* What a call owns; arrays of as many as it has keys. */
struct batch {
    struct shed_cache *cache;
    const struct shed_terms *terms;
    size_t count;
    struct shed_pending **gets;
    /* of the gets that ask Redis */
    struct shed_key_get **asked;
    size_t asked_count;
    unsigned together;      /* of them in one MGET */
    struct shed_args *keys; /* behind the first one of an MGET */
    struct shed_args *commands;
    size_t command_count;
    struct shed_reply **replies;
};

static void destroy_batch(struct batch *b)
{
    for (size_t i = 0; b->gets != NULL && i < b->count; i++) {
        struct shed_key_get *g;
        if (b->gets[i] == NULL) /* it is a call now */
            continue;
        g = shed_async_get_of(b->gets[i]);
        shed_value_unref(g->look.value);
        free(g->caller.why);
        free(b->gets[i]);
    }
    free(b->gets);
    free(b->asked);
    free(b->keys);
    free(b->commands);
    free(b->replies);
}

static enum shed_code create_batch(struct batch *b,
                                   const struct shed_item *items,
                                   struct shed_error *err)
{
    struct shed_named_key named;
    size_t made = 0;

    b->gets = calloc(b->count, sizeof(struct shed_pending *));
    b->asked = calloc(b->count, sizeof(struct shed_key_get *));
    b->keys = calloc(b->count, sizeof(*b->keys));
    b->commands = calloc(b->count, sizeof(*b->commands));
    b->replies = calloc(b->count, sizeof(struct shed_reply *));
    if (b->gets == NULL || b->asked == NULL || b->keys == NULL ||
        b->commands == NULL || b->replies == NULL)
        goto fail;
    for (; made < b->count; made++) {
        shed_key_name(b->cache->name, items[made].key, &named);
        b->gets[made] =
            shed_async_get_create(b->cache, &named.key, b->terms, true);
        if (b->gets[made] == NULL)
            goto fail;
        shed_async_get_of(b->gets[made])->caller.is_counted = true;
    }
    return SHED_OK;
fail:
    destroy_batch(b);
    return shed_fail_nomem(err, "shed_get_many");
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
        (cache->tag_log != NULL && !shed_tag_log_is_known(cache->tag_log)))
        return 1;
    return fit < TOGETHER_MAX ? (unsigned)fit : TOGETHER_MAX;
}

/* Take what is near, and make the commands for the other keys. Returns: until
 * when to wait for them. */
static uint64_t make_commands(struct batch *b)
{
    uint64_t until_ms = 0, one_ms;
    struct shed_args *last = NULL;

    for (size_t i = 0; i < b->count; i++) {
        struct shed_key_get *g = shed_async_get_of(b->gets[i]);
        struct shed_args *args;
        g->value = shed_look_near(b->cache, shed_key_bytes(&g->key), b->terms);
        if (g->value != NULL)
            continue;
        shed_look_begin(b->cache, &g->key, &g->look);
        one_ms = shed_look_until_ms(b->cache, &g->key, b->terms);
        until_ms = one_ms > until_ms ? one_ms : until_ms;
        if (b->asked_count % b->together > 0) {
            args = &b->keys[b->asked_count];
            last->more = args;
        } else {
            args = &b->commands[b->command_count++];
            *args = shed_args_of("MGET", NULL);
            args->is_guarded = true;
        }
        shed_args_add(args, g->key.redis.data, g->key.redis.size);
        last = args;
        b->asked[b->asked_count++] = g;
    }
    return until_ms;
}

/* Whether the server, or our user's rights, have no MGET. */
static bool is_mget_refused(const struct batch *b)
{
    bool is_refused = false;

    for (size_t i = 0; i < b->command_count; i++)
        is_refused |= shed_reply_error(b->replies[i]) != NULL &&
                      shed_reply_code(b->replies[i]) == SHED_EDENIED;
    return is_refused;
}

/* Take the reply to a get: an error of MGET is one for each. */
static enum shed_code take_reply(struct batch *b, size_t i,
                                 const struct shed_link_use *use,
                                 struct shed_error *why)
{
    struct shed_key_get *g = b->asked[i];
    struct shed_reply *whole = b->replies[i / b->together], *reply;
    const char *error = shed_reply_error(whole);

    reply = error != NULL ? shed_reply_make_error(error)
                          : shed_reply_take(whole, i % b->together);
    if (reply == NULL)
        return shed_fail(why, SHED_EREDIS,
                         "Redis: a reply to MGET of an unknown form, or no "
                         "memory for it");
    return shed_look_at(b->cache, &g->key, b->terms, reply, use, &g->look, why);
}

/* By MGETs in this thread. Afterwards a get has its value, or the code of its
 * failure, or is open. */
static void look_here(struct batch *b)
{
    struct shed_link_use use;
    struct shed_error all, one;
    uint64_t until_ms;
    enum shed_code code, mine;

    b->together = together_of(b->cache);
    if (b->together < 2)
        return;
    until_ms = make_commands(b);
    if (b->asked_count == 0)
        return;
    code = shed_client_call(b->cache->client, b->commands, b->command_count,
                            b->replies, &use, NULL, until_ms, &all);
    if (code == SHED_OK && is_mget_refused(b)) {
        atomic_store(&b->cache->client->address->is_mget_refused, true);
        shed_reply_free_all(b->replies, b->command_count);
        return;
    }
    for (size_t i = 0; i < b->asked_count; i++) {
        struct shed_key_get *g = b->asked[i];
        mine = code == SHED_OK ? take_reply(b, i, &use, &one) : code;
        shed_get_take_look(g, mine == SHED_OK   ? NULL
                              : code == SHED_OK ? &one
                                                : &all);
        g->is_looked = true;
    }
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

/* Begin the gets that are open as calls. Returns: the wait for them; NULL:
 * there are none, or no memory, which *why says. */
static struct shed_await *begin_open(struct batch *b, struct shed_error *why)
{
    struct shed_await *await;
    size_t open = 0, k = 0;

    for (size_t i = 0; i < b->count; i++)
        open += shed_get_is_open(shed_async_get_of(b->gets[i]));
    if (open == 0)
        return NULL;
    await = shed_await_create(open);
    if (await == NULL)
        (void)shed_fail_nomem(why, "shed_get_many");
    for (size_t i = 0; await != NULL && i < b->count; i++) {
        if (!shed_get_is_open(shed_async_get_of(b->gets[i])))
            continue;
        shed_await_begin(await, k++, b->gets[i]);
        b->gets[i] = NULL;
    }
    return await;
}

/* Take how get i has ended. *outcome is that of the next one that was a call of
 * its own; why: NULL, or why none of those has ended. Returns: the reason of a
 * failure. */
static const char *take_end(struct batch *b, size_t i,
                            struct shed_outcome **outcome,
                            const struct shed_error *why,
                            struct shed_item *item)
{
    struct shed_key_get *g;
    struct shed_outcome *o;

    if (b->gets[i] != NULL) {
        g = shed_async_get_of(b->gets[i]);
        if (shed_get_is_open(g))
            shed_get_fail(g, why);
        item->code = g->code;
        item->value = g->value;
        return shed_error_kept(g->caller.why);
    }
    if (why != NULL) {
        item->code = why->code;
        return why->reason;
    }
    o = (*outcome)++;
    item->code = o->code;
    item->value = o->value;
    o->value = NULL;
    return shed_error_kept(o->why);
}

/* Get keys that have been checked. */
static enum shed_code get_many(struct batch *b, struct shed_item *items,
                               struct shed_error *errors,
                               struct shed_error *err)
{
    struct shed_error all = {SHED_OK, ""}, why = {SHED_OK, ""};
    struct shed_await *await;
    struct shed_outcome *outcome = NULL;

    look_here(b);
    await = begin_open(b, &why);
    if (await != NULL) {
        outcome = await->outcome;
        why.code =
            shed_await_ends(await, shed_terms_deadline_ms(b->terms), &why);
    }
    for (size_t i = 0; i < b->count; i++) {
        const char *reason = take_end(
            b, i, &outcome, why.code != SHED_OK ? &why : NULL, &items[i]);
        shed_get_conclude(b->cache, &items[i], i, reason,
                          errors != NULL ? &errors[i] : NULL, &all);
    }
    if (await != NULL)
        shed_await_leave(await);
    if (all.code != SHED_OK && err != NULL)
        *err = all;
    return all.code;
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

enum shed_code shed_get_many(struct shed_cache *cache, struct shed_item *items,
                             size_t count,
                             const struct shed_get_options *options,
                             struct shed_error *err)
{
    struct shed_terms terms = {0};
    struct shed_error *errors = NULL;
    struct shed_error why = {SHED_OK, ""};
    struct batch b = {.cache = cache, .terms = &terms, .count = count};
    enum shed_code code = shed_get_check_items(items, count, &why);

    if (code == SHED_OK)
        code =
            shed_get_take_options(cache, options, false, &terms, &errors, &why);
    terms.start_us = shed_now_us();
    if (code == SHED_OK && count > 0)
        code = create_batch(&b, items, &why);
    if (code != SHED_OK || count == 0)
        return fail_items(items, count, errors, &why, err);
    code = get_many(&b, items, errors, err);
    destroy_batch(&b);
    return code;
}
