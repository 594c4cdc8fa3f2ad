/* The get of many keys: one pipeline for what is cached, one wait for the
 * rest. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "cache/get.h"
#include "wire/parser.h"

/* Keys of one MGET, which blocks the server for as long as it takes. */
#define TOGETHER_MAX 100
#define FRAME_MARGIN_BYTES 65536

/* What a call owns; arrays of as many as it has keys. */
struct batch {
    size_t count;
    struct shed_key_get *gets;
    char *names; /* of their keys */
    /* of the gets that ask Redis */
    struct shed_args *asked; /* the key of each */
    size_t asked_count;
    unsigned together;          /* of them in one MGET; 1: each in a GET */
    struct shed_args *commands; /* for these */
    size_t command_count;
    struct shed_reply **replies;
    struct shed_link_use *uses;
};

static void destroy_batch(struct batch *b)
{
    for (size_t i = 0; b->gets != NULL && i < b->count; i++)
        free(b->gets[i].caller.why);
    free(b->gets);
    free(b->names);
    free(b->asked);
    free(b->commands);
    free(b->replies);
    free(b->uses);
}

static size_t size_names(const struct shed_cache *cache,
                         const struct shed_item *items, size_t count)
{
    const size_t around = strlen(cache->name) + strlen(":{\\}");
    size_t size = 0;

    for (size_t i = 0; i < count; i++)
        size += around + items[i].key.size;
    return size;
}

static void name_keys(struct shed_cache *cache, const struct shed_item *items,
                      struct batch *b, const struct shed_terms *terms)
{
    char *at = b->names;

    for (size_t i = 0; i < b->count; i++) {
        struct shed_key_get *g = &b->gets[i];
        struct shed_named_key named;
        shed_key_name(cache->name, items[i].key, &named);
        g->cache = cache;
        g->terms = terms;
        g->key = named.key;
        g->key.redis.data = at;
        memcpy(at, named.bytes, named.key.redis.size);
        at += named.key.redis.size;
    }
}

static enum shed_code create_batch(struct shed_cache *cache,
                                   const struct shed_item *items,
                                   struct batch *b, size_t count,
                                   const struct shed_terms *terms,
                                   struct shed_error *err)
{
    b->count = count;
    b->gets = calloc(count, sizeof(*b->gets));
    b->names = malloc(size_names(cache, items, count));
    b->asked = calloc(count, sizeof(*b->asked));
    /* one more, for the log of tags */
    b->commands = calloc(count + 1, sizeof(*b->commands));
    b->replies = calloc(count + 1, sizeof(struct shed_reply *));
    b->uses = calloc(count + 1, sizeof(*b->uses));
    if (b->gets == NULL || b->names == NULL || b->asked == NULL ||
        b->commands == NULL || b->replies == NULL || b->uses == NULL) {
        destroy_batch(b);
        return shed_fail_nomem(err, "shed_get_many");
    }
    name_keys(cache, items, b, terms);
    return SHED_OK;
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

/* How many keys fit into the bound of a reply. In a cluster only those of one
 * slot could go together. */
static unsigned together_of(const struct shed_cache *cache, size_t count)
{
    const struct shed_address *address = cache->client->address;
    uint64_t fit = SHED_PARSER_MAX_BYTES /
                   (cache->options.value_limit_bytes + FRAME_MARGIN_BYTES);

    if (count < 2 || fit < 2 || address->seeds != NULL ||
        atomic_load(&address->is_mget_refused))
        return 1;
    return fit < TOGETHER_MAX ? (unsigned)fit : TOGETHER_MAX;
}

/* Note that a key is to be asked for. Returns: until when to wait for it. */
static uint64_t add_key(struct batch *b, struct shed_key_get *g)
{
    struct shed_args *args = &b->asked[b->asked_count++];

    shed_look_begin(g->cache, &g->key, &g->look);
    shed_args_add(args, g->key.redis.data, g->key.redis.size);
    return shed_look_until_ms(g->cache, &g->key, g->terms);
}

/* Make the commands for the keys. */
static void make_commands(struct batch *b)
{
    struct shed_args *last = NULL;

    b->command_count = 0;
    for (size_t i = 0; i < b->asked_count; i++) {
        struct shed_args *key = &b->asked[i];
        if (i % b->together > 0) {
            last->more = key;
            last = key;
            last->more = NULL;
            continue;
        }
        last = &b->commands[b->command_count++];
        shed_args_begin(last, b->together > 1 ? "MGET" : "GET");
        last->is_guarded = true;
        shed_args_add(last, key->at[0], key->size[0]);
    }
}

/* Whether the server, or our user's rights, have no MGET. */
static bool is_mget_refused(const struct batch *b)
{
    bool is_refused = false;

    for (size_t i = 0; b->together > 1 && i < b->command_count; i++)
        is_refused |= shed_reply_error(b->replies[i]) != NULL &&
                      shed_reply_code(b->replies[i]) == SHED_EDENIED;
    return is_refused;
}

/* Ask for all keys in one pipeline. */
static enum shed_code ask(struct shed_cache *cache, struct batch *b,
                          uint64_t until_ms, struct shed_error *err)
{
    enum shed_code code;

    b->together = together_of(cache, b->asked_count);
    make_commands(b);
    code = shed_look_call(cache, b->commands, b->command_count, b->replies,
                          b->uses, until_ms, err);
    if (code != SHED_OK || !is_mget_refused(b))
        return code;
    atomic_store(&cache->client->address->is_mget_refused, true);
    shed_reply_free_all(b->replies, b->command_count);
    return ask(cache, b, until_ms, err); /* by GETs */
}

/* Take the reply to the i-th key: an error of MGET is one for each. Returns:
 * NULL: memory is out, or the reply to MGET is malformed. */
static struct shed_reply *take_reply(struct batch *b, size_t i)
{
    struct shed_reply **at = &b->replies[i / b->together], *whole = *at;
    const char *error = shed_reply_error(whole);

    if (b->together > 1)
        return error != NULL ? shed_reply_make_error(error)
                             : shed_reply_take(whole, i % b->together);
    *at = NULL;
    return whole;
}

/* all: NULL, or why nothing came. */
static void take_replies(struct batch *b, const struct shed_error *all)
{
    size_t at = 0;

    for (size_t i = 0; i < b->count; i++) {
        struct shed_key_get *g = &b->gets[i];
        struct shed_reply *reply = NULL;
        struct shed_error why;
        enum shed_code code = SHED_OK;
        if (g->value != NULL) /* it was near */
            continue;
        if (all == NULL)
            reply = take_reply(b, at);
        if (reply != NULL)
            code = shed_look_at(g->cache, &g->key, g->terms, reply,
                                &b->uses[at / b->together], &g->look, &why);
        else if (all == NULL)
            code = shed_fail(&why, SHED_EREDIS,
                             "Redis: a reply to MGET of an unknown form, or no "
                             "memory for it");
        shed_get_take_look(g, code != SHED_OK ? &why : all);
        at++;
    }
    shed_reply_free_all(b->replies, b->command_count); /* of MGET */
}

/* Take what is near, and ask for the others. Afterwards a get has its value, or
 * the code of its failure, or is open. */
static void look(struct shed_cache *cache, struct batch *b)
{
    struct shed_error all;
    uint64_t until_ms = 0;
    enum shed_code code;

    for (size_t i = 0; i < b->count; i++) {
        struct shed_key_get *g = &b->gets[i];
        uint64_t one_ms;
        g->value = shed_look_near(cache, shed_key_bytes(&g->key), g->terms);
        if (g->value != NULL)
            continue;
        one_ms = add_key(b, g);
        until_ms = one_ms > until_ms ? one_ms : until_ms;
    }
    if (b->asked_count == 0)
        return;
    code = ask(cache, b, until_ms, &all);
    take_replies(b, code != SHED_OK ? &all : NULL);
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

/* Get keys that have been checked; ends b. */
static enum shed_code get_many(struct shed_cache *cache,
                               struct shed_item *items,
                               struct shed_error *errors, struct batch *b,
                               struct shed_error *err)
{
    struct shed_error all = {SHED_OK, ""};

    look(cache, b);
    shed_get_slow(b->gets, b->count);
    for (size_t i = 0; i < b->count; i++) {
        const struct shed_key_get *g = &b->gets[i];
        items[i].code = g->code;
        items[i].value = g->value;
        shed_get_conclude(cache, &items[i], i, shed_error_kept(g->caller.why),
                          errors != NULL ? &errors[i] : NULL, &all);
    }
    destroy_batch(b);
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
    struct batch b = {0};
    enum shed_code code = shed_get_check_items(items, count, &why);

    if (code == SHED_OK)
        code =
            shed_get_take_options(cache, options, false, &terms, &errors, &why);
    if (code == SHED_OK && count > 0)
        code = create_batch(cache, items, &b, count, &terms, &why);
    terms.start_us = shed_now_us();
    if (code != SHED_OK || count == 0)
        return fail_items(items, count, errors, &why, err);
    return get_many(cache, items, errors, &b, err);
}
