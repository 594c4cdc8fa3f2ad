/* clear: headers of entries, page by page. */
#include "cli/clear.h"

#include <stdlib.h>

#include "cli/entry_view.h"
#include "cli/walk.h"

#define ROWS_ENOUGH 100

struct page {
    struct cli_redis *redis;
    const char *cache;
    const struct shed_reply *keys;
};

static const char *key_at(const struct page *p, size_t i, size_t *size)
{
    return shed_reply_bytes(shed_reply_at(p->keys, i), size);
}

/* Ask for the header of each key of the cache. *is_asked: which they are. */
static void ask_for_headers(const struct page *p, bool *is_asked)
{
    for (size_t i = 0; i < shed_reply_count(p->keys); i++) {
        struct cli_key key;
        size_t size = 0;
        const char *name = key_at(p, i, &size);
        is_asked[i] = cli_key_parse(&key, p->cache, name, size);
        if (is_asked[i])
            cli_entry_send_header(p->redis, name, size);
    }
}

/* Returns: whether the key has an entry that the log does not reach. Of one
 * that is damaged the header decides, too. */
static bool count_entry(struct cli_clear *c, const struct shed_reply *head)
{
    struct shed_entry entry;
    size_t size = 0;
    const char *bytes = shed_reply_bytes(head, &size);

    if (bytes == NULL ||
        shed_entry_decode_header(bytes, size, &entry) == SHED_ENTRY_FOREIGN)
        return false;
    if (entry.type == SHED_ENTRY_LEASE || entry.type == SHED_ENTRY_FAILURE)
        return true;
    if ((entry.flags & SHED_ENTRY_POSITION) != 0) {
        c->reached++;
        return false;
    }
    c->others++;
    return true;
}

/* is_asked: which keys are; then, which entries the log does not reach. */
static void count_page(const struct page *p, struct cli_clear *c,
                       bool *is_asked)
{
    for (size_t i = 0; i < shed_reply_count(p->keys); i++) {
        struct shed_reply *head;
        if (!is_asked[i])
            continue;
        head =
            cli_redis_check_key(p->redis, cli_redis_hear(p->redis), "GETRANGE");
        is_asked[i] = count_entry(c, head);
        shed_reply_free(head);
    }
}

static void remove_missed(const struct page *p, struct cli_clear *c,
                          const bool *is_missed)
{
    size_t size = 0, sent = 0;

    for (size_t i = 0; i < shed_reply_count(p->keys); i++) {
        const char *name = key_at(p, i, &size);
        if (!is_missed[i])
            continue;
        cli_entry_send_unlink(p->redis, name, size);
        sent++;
    }
    for (; sent > 0; sent--) {
        struct shed_reply *reply =
            cli_redis_check(p->redis, cli_redis_hear(p->redis), "UNLINK");
        c->removed += shed_reply_integer(reply) > 0;
        shed_reply_free(reply);
    }
}

static void take_page(const struct page *p, struct cli_clear *c, bool removes)
{
    bool *marks = cli_alloc(shed_reply_count(p->keys) + 1, sizeof(*marks));

    ask_for_headers(p, marks);
    count_page(p, c, marks);
    if (removes)
        remove_missed(p, c, marks);
    free(marks);
}

static bool is_enough(const struct cli_clear *c, bool removes)
{
    if (removes)
        return c->others == 0 && c->reached >= ROWS_ENOUGH;
    return c->reached > 0 || c->others >= ROWS_ENOUGH;
}

static void walk_over(struct cli_redis *redis, const struct cli_call *call,
                      uint64_t keys_max, bool removes, struct cli_clear *out)
{
    struct page page = {.redis = redis, .cache = call->words[0]};
    struct shed_reply *keys;
    struct cli_walk walk;

    *out = (struct cli_clear){.removed = 0};
    cli_walk_begin(&walk, redis, page.cache, call->rate);
    while (!is_enough(out, removes) && walk.looked < keys_max &&
           (keys = cli_walk_next(&walk)) != NULL) {
        page.keys = keys;
        take_page(&page, out, removes);
        shed_reply_free(keys);
    }
    cli_walk_end(&walk);
}

void cli_clear_rows(struct cli_redis *redis, const struct cli_call *call,
                    struct cli_clear *out)
{
    walk_over(redis, call, UINT64_MAX, true, out);
}

void cli_clear_look(struct cli_redis *redis, const struct cli_call *call,
                    uint64_t keys_max, struct cli_clear *out)
{
    walk_over(redis, call, keys_max, false, out);
}
