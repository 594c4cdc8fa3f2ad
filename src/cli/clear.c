/* clear: headers of entries, page by page. */
#include "cli/clear.h"

#include <stdlib.h>

#include "cli/entry_view.h"
#include "cli/walk.h"

#define ROWS_ENOUGH 100
#define LAST_OF_HEADER "63"

struct page {
    struct cli_redis *redis;
    const char *cache;
    const struct shed_reply *keys;
};

static const char *key_at(const struct page *p, size_t i, size_t *size)
{
    return shed_reply_bytes(shed_reply_at(p->keys, i), size);
}

static bool is_of_cache(const struct page *p, size_t i)
{
    struct cli_key key;
    size_t size = 0;
    const char *name = key_at(p, i, &size);

    return cli_key_parse(&key, p->cache, name, size);
}

static void ask_for_headers(const struct page *p)
{
    for (size_t i = 0; i < shed_reply_count(p->keys); i++) {
        struct shed_args range = {0}, length = {0};
        size_t size = 0;
        const char *name = key_at(p, i, &size);
        if (!is_of_cache(p, i))
            continue;
        shed_args_add_text(&range, "GETRANGE");
        shed_args_add(&range, name, size);
        shed_args_add_text(&range, "0");
        shed_args_add_text(&range, LAST_OF_HEADER);
        cli_redis_send(p->redis, &range);
        shed_args_add_text(&length, "STRLEN");
        shed_args_add(&length, name, size);
        cli_redis_send(p->redis, &length);
    }
}

static struct shed_reply *hear(const struct page *p, const char *command)
{
    struct shed_reply *reply = cli_redis_hear(p->redis);

    if (!shed_reply_begins(reply, "WRONGTYPE"))
        (void)cli_redis_check(p->redis, reply, command);
    return reply;
}

/* Returns: whether the key has an entry that the log does not reach. One that
 * changes between the two replies is taken for damaged, and removed. */
static bool count_entry(struct cli_clear *c, const struct shed_reply *head,
                        long long length)
{
    enum shed_entry_state state = SHED_ENTRY_FOREIGN;
    struct shed_entry entry;
    size_t size = 0;
    const char *bytes = shed_reply_bytes(head, &size);

    if (size >= SHED_ENTRY_HEADER_BYTES)
        state = shed_entry_decode_header(bytes, length > 0 ? (size_t)length : 0,
                                         &entry);
    if (state == SHED_ENTRY_FOREIGN)
        return false;
    if (state == SHED_ENTRY_CORRUPT || entry.type == SHED_ENTRY_LEASE ||
        entry.type == SHED_ENTRY_FAILURE)
        return true;
    if ((entry.flags & SHED_ENTRY_POSITION) != 0) {
        c->reached++;
        return false;
    }
    c->others++;
    return true;
}

static void count_page(const struct page *p, struct cli_clear *c,
                       bool *is_missed)
{
    for (size_t i = 0; i < shed_reply_count(p->keys); i++) {
        struct shed_reply *head, *length;
        is_missed[i] = false;
        if (!is_of_cache(p, i))
            continue;
        head = hear(p, "GETRANGE");
        length = hear(p, "STRLEN");
        is_missed[i] = count_entry(c, head, shed_reply_integer(length));
        shed_reply_free(head);
        shed_reply_free(length);
    }
}

static void remove_missed(const struct page *p, struct cli_clear *c,
                          const bool *is_missed)
{
    char refresh[SHED_REDIS_KEY_MAX_BYTES + SHED_ENTRY_REFRESH_SUFFIX_BYTES];
    size_t sent = 0;

    for (size_t i = 0; i < shed_reply_count(p->keys); i++) {
        struct shed_args args = {0};
        size_t size = 0;
        const char *name = key_at(p, i, &size);
        if (!is_missed[i])
            continue;
        shed_args_add_text(&args, "UNLINK");
        shed_args_add(&args, name, size);
        shed_args_add(&args, refresh,
                      shed_entry_refresh_key(name, size, refresh));
        cli_redis_send(p->redis, &args);
        sent++;
    }
    for (; sent > 0; sent--) {
        struct shed_reply *reply =
            cli_redis_check(p->redis, cli_redis_hear(p->redis), "UNLINK");
        c->removed += shed_reply_integer(reply) > 0;
        shed_reply_free(reply);
    }
}

static void take_page(struct page *p, struct cli_clear *c, bool removes)
{
    bool *is_missed =
        cli_alloc(shed_reply_count(p->keys) + 1, sizeof(*is_missed));

    ask_for_headers(p);
    count_page(p, c, is_missed);
    if (removes)
        remove_missed(p, c, is_missed);
    free(is_missed);
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
    cli_walk_begin(&walk, redis, page.cache);
    cli_walk_set_rate(&walk, call->rate);
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
