/* The get of many keys: one pipeline for what is cached, one wait for the
 * rest. */
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
    struct shed_key *keys;
    struct shed_look *looks;
    struct shed_caller *callers;
    /* in the first get_count: of the GETs, in their order */
    struct shed_args *args;
    struct shed_reply **replies;
    struct shed_link_use *uses;
    size_t *gets; /* which key it is of */
    size_t get_count;
    unsigned together; /* how many of them may be one MGET */
};

static void destroy_batch(struct batch *b)
{
    for (size_t i = 0; b->callers != NULL && i < b->count; i++)
        free(b->callers[i].why);
    free(b->keys);
    free(b->args);
    free(b->replies);
    free(b->looks);
    free(b->uses);
    free(b->callers);
    free(b->gets);
}

/* Name the keys of items, all of them in one block for free(). Returns: NULL
 * when out of memory. */
static struct shed_key *name_keys(const struct shed_cache *cache,
                                  const struct shed_item *items, size_t count)
{
    const size_t around = strlen(cache->name) + strlen(":{\\}");
    size_t size = count * sizeof(struct shed_key);
    struct shed_key *keys;
    char *at;

    for (size_t i = 0; i < count; i++)
        size += around + items[i].key.size;
    keys = malloc(size);
    if (keys == NULL)
        return NULL;
    at = (char *)(keys + count);
    for (size_t i = 0; i < count; i++) {
        struct shed_named_key named;
        shed_key_name(cache->name, items[i].key, &named);
        keys[i] = named.key;
        keys[i].redis = at;
        memcpy(at, named.bytes, named.key.redis_size);
        at += named.key.redis_size;
    }
    return keys;
}

static enum shed_code create_batch(const struct shed_cache *cache,
                                   const struct shed_item *items,
                                   struct batch *b, size_t count,
                                   struct shed_error *err)
{
    b->count = count;
    b->keys = name_keys(cache, items, count);
    /* one more, for the log of tags */
    b->args = calloc(count + 1, sizeof(*b->args));
    b->replies = calloc(count + 1, sizeof(struct shed_reply *));
    b->looks = calloc(count, sizeof(*b->looks));
    b->uses = calloc(count + 1, sizeof(*b->uses));
    b->callers = calloc(count, sizeof(*b->callers));
    b->gets = calloc(count, sizeof(*b->gets));
    if (b->keys != NULL && b->args != NULL && b->replies != NULL &&
        b->looks != NULL && b->uses != NULL && b->callers != NULL &&
        b->gets != NULL)
        return SHED_OK;
    destroy_batch(b);
    return shed_fail_nomem(err, "shed_get_many");
}

enum shed_code shed_get_check_items(struct shed_item *items, size_t count,
                                    struct shed_error *err)
{
    enum shed_code code = SHED_OK;

    if (items == NULL && count > 0)
        return shed_fail(err, SHED_EINVAL, "shed_get_many: items is NULL");
    for (size_t i = 0; i < count; i++) {
        items[i].value = NULL;
        items[i].code = SHED_EINVAL;
    }
    if (count > SHED_MANY_MAX)
        return shed_fail(err, SHED_EINVAL,
                         "shed_get_many: %zu keys, the limit is %d", count,
                         SHED_MANY_MAX);
    for (size_t i = 0; i < count && code == SHED_OK; i++)
        code = shed_cache_check_at(items[i].key, SHED_KEY_MAX_BYTES, "items", i,
                                   ".key", err);
    return code;
}

/* How many fit into the bound of a reply. */
static unsigned together_of(const struct shed_cache *cache)
{
    uint64_t fit = SHED_PARSER_MAX_BYTES /
                   (cache->options.value_limit_bytes + FRAME_MARGIN_BYTES);

    return fit < TOGETHER_MAX ? (unsigned)fit : TOGETHER_MAX;
}

/* Prepare the GET of item i. Returns: until when to wait for it. */
static uint64_t add_get(struct shed_cache *cache, struct batch *b, size_t i,
                        const struct shed_terms *terms)
{
    const struct shed_key *key = &b->keys[i];
    struct shed_args *args = &b->args[b->get_count];

    shed_look_begin(cache, key, &b->looks[i]);
    b->gets[b->get_count++] = i;
    args->is_guarded = true;
    args->together = b->together;
    shed_args_add_text(args, "GET");
    shed_args_add(args, key->redis, key->redis_size);
    return shed_look_until_ms(cache, key, terms);
}

/* Take what is near, and all GETs of the others in one pipeline. Afterwards an
 * item has its value, or the code of its failure, or is a miss. */
static void try_get_many(struct shed_cache *cache, struct batch *b,
                         struct shed_item *items, size_t count,
                         const struct shed_terms *terms)
{
    struct shed_error all = {0};
    uint64_t until_ms = 0;
    enum shed_code code;

    b->together = together_of(cache);
    for (size_t i = 0; i < count; i++) {
        uint64_t one_ms;
        items[i].value =
            shed_look_near(cache, &b->keys[i], terms->rule, terms->only_cached);
        items[i].code = SHED_OK;
        if (items[i].value != NULL)
            continue;
        one_ms = add_get(cache, b, i, terms);
        until_ms = one_ms > until_ms ? one_ms : until_ms;
    }
    if (b->get_count == 0)
        return;
    code = shed_look_call(cache, b->args, b->get_count, b->replies, b->uses,
                          until_ms, &all);
    for (size_t g = 0; g < b->get_count; g++) {
        size_t i = b->gets[g];
        const struct shed_key *key = &b->keys[i];
        struct shed_error why = all;
        enum shed_code item_code = code;
        if (code == SHED_OK)
            item_code = shed_look_at(cache, key, terms, b->replies[g],
                                     &b->uses[g], &b->looks[i], &why);
        if (item_code != SHED_OK)
            item_code =
                shed_look_without_redis(cache, key, terms, &why, &b->looks[i]);
        items[i].value = b->looks[i].value;
        items[i].code = item_code;
        if (item_code != SHED_OK)
            b->callers[i].why = shed_error_keep(&why);
    }
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
                               struct shed_item *items, size_t count,
                               const struct shed_terms *terms, struct batch *b,
                               struct shed_error *err)
{
    struct shed_gets gets = {items,      b->keys, b->looks,
                             b->callers, count,   terms};
    struct shed_error all = {SHED_OK, ""};

    try_get_many(cache, b, items, count, terms);
    shed_get_slow(cache, &gets);
    for (size_t i = 0; i < count; i++)
        shed_get_conclude(
            cache, &items[i], i, shed_error_kept(b->callers[i].why),
            terms->errors != NULL ? &terms->errors[i] : NULL, &all);
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
    struct shed_freshness_rule rule;
    struct shed_terms terms = {0};
    struct shed_error why = {SHED_OK, ""};
    struct batch b = {0};
    enum shed_code code = shed_get_check_items(items, count, &why);

    if (code == SHED_OK)
        code =
            shed_get_take_options(cache, options, false, &rule, &terms, &why);
    if (code == SHED_OK && count > 0)
        code = create_batch(cache, items, &b, count, &why);
    shed_get_begin(&terms, shed_now_ms());
    if (code != SHED_OK || count == 0)
        return fail_items(items, count, terms.errors, &why, err);
    return get_many(cache, items, count, &terms, &b, err);
}
