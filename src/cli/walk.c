/* SCAN, paced. */
#include "cli/walk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "entry/entry.h"

/* Pages per second, within this bound on their size: a page of 500 keys blocks
 * a server for well below a millisecond. */
#define PAGES_PER_S 20
#define PAGE_MAX 500

void cli_walk_begin_pattern(struct cli_walk *walk, struct cli_redis *redis,
                            const char *pattern, uint64_t rate)
{
    *walk = (struct cli_walk){
        .redis = redis, .cursor = "0", .rate = {.per_s = rate}};
    walk->page = rate / PAGES_PER_S + 1;
    if (walk->page > PAGE_MAX)
        walk->page = PAGE_MAX;
    (void)snprintf(walk->pattern, sizeof(walk->pattern), "%s", pattern);
    for (size_t i = 0; cli_redis_next(redis, &i); i++)
        shed_reply_free(cli_redis_ask(redis, "CLIENT NO-TOUCH ON"));
}

void cli_walk_begin(struct cli_walk *walk, struct cli_redis *redis,
                    const char *cache, uint64_t rate)
{
    char pattern[CLI_PATTERN_BYTES] = "*:{*}", *at = pattern;

    for (const char *c = cache; c != NULL && *c != '\0'; c++) {
        if (strchr("*?[]\\^-", *c) != NULL)
            *at++ = '\\';
        *at++ = *c;
    }
    if (cache != NULL)
        memcpy(at, ":{*", sizeof(":{*"));
    cli_walk_begin_pattern(walk, redis, pattern, rate);
    walk->cache = cache;
}

/* ----------------------------------------------------------------- a page */

void cli_walk_end(struct cli_walk *walk)
{
    for (size_t i = 0; i < walk->count; i++)
        shed_reply_free_all(walk->found[i].answer, CLI_WALK_ASKS);
    free(walk->found);
    shed_reply_free(walk->keys);
    walk->found = NULL;
    walk->keys = NULL;
    walk->count = 0;
}

static void scan(struct cli_walk *walk)
{
    struct shed_reply *reply;
    struct shed_bytes cursor;

    cli_redis_send(walk->redis, "SCAN %s MATCH %s COUNT %s", walk->cursor,
                   walk->pattern, cli_format("%zu", walk->page).at);
    reply = cli_redis_hear(walk->redis, "SCAN");
    cursor = cli_redis_bytes(shed_reply_at(reply, 0));
    walk->looked += walk->page;
    if (cursor.data != NULL && cursor.size < sizeof(walk->cursor))
        memcpy(walk->cursor, cursor.data, cursor.size + 1);
    else
        memcpy(walk->cursor, "0", sizeof("0"));
    walk->server += strcmp(walk->cursor, "0") == 0; /* all of its keys */
    walk->keys = shed_reply_take(reply, 1);
    shed_reply_free(reply);
}

/* NAME:{KEY}, and not NAME:{a}b, which another program may have made. */
static void name(const struct cli_walk *walk, size_t i)
{
    struct cli_found *f = &walk->found[i];
    struct shed_bytes of = cli_redis_bytes(shed_reply_at(walk->keys, i));

    f->name = of;
    if (of.data == NULL)
        return;
    of = shed_entry_key_of(of);
    f->is_entry = cli_key_parse(&f->key, walk->cache, of);
    f->is_refresh = of.size < f->name.size;
}

/* Ask about the entries, or hear the answers. Errors about the key, and not
 * about the question, are answers. */
static void for_each_question(struct cli_walk *walk, bool is_asked)
{
    for (size_t i = 0; i < walk->count; i++) {
        struct cli_found *f = &walk->found[i];
        size_t asks = f->is_entry && !f->is_refresh ? CLI_WALK_ASKS : 0;
        for (size_t j = 0; j < asks && walk->ask[j] != NULL; j++)
            if (is_asked)
                cli_redis_send_key(walk->redis, walk->ask[j], f->name);
            else
                f->answer[j] = cli_redis_hear_key(walk->redis, walk->ask[j],
                                                  walk->passes_denied);
    }
}

bool cli_walk_next(struct cli_walk *walk)
{
    cli_walk_end(walk);
    if (!cli_redis_next(walk->redis, &walk->server))
        return false;
    cli_rate_keep(&walk->rate, walk->page);
    scan(walk);
    walk->count = shed_reply_count(walk->keys);
    walk->found = cli_alloc(walk->count, sizeof(*walk->found));
    for (size_t i = 0; i < walk->count; i++)
        name(walk, i);
    if (walk->count > 0 && walk->ask[0] != NULL) {
        cli_redis_send(walk->redis, "TIME");
        for_each_question(walk, true);
        walk->now_ms = cli_redis_hear_clock_ms(walk->redis);
        for_each_question(walk, false);
    }
    return true;
}
