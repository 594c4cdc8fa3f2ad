/* SCAN, paced. */
#include "cli/walk.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

#define RATE_DEFAULT 20000
/* Pages per second, within these bounds on their size: a page of 500 keys
 * blocks a server for well below a millisecond. */
#define PAGES_PER_S 20
#define PAGE_MIN 10
#define PAGE_MAX 500

#define SHOW_EVERY_MS 200
#define BAR_WIDTH 40

static size_t page_of(uint64_t rate)
{
    uint64_t page = rate / PAGES_PER_S;

    if (page < PAGE_MIN)
        return rate < PAGE_MIN ? (size_t)rate : PAGE_MIN;
    return page > PAGE_MAX ? PAGE_MAX : (size_t)page;
}

static void begin(struct cli_walk *walk, struct cli_redis *redis, uint64_t rate)
{
    struct shed_reply *reply;
    long long size;

    *walk = (struct cli_walk){.redis = redis,
                              .cursor = "0",
                              .rate = {.per_s = rate > 0 ? rate : RATE_DEFAULT},
                              .is_shown = isatty(STDERR_FILENO) != 0};
    walk->page = page_of(walk->rate.per_s);
    shed_reply_free(cli_redis_ask(redis, "CLIENT NO-TOUCH ON"));
    reply = cli_redis_ask(redis, "DBSIZE");
    size = shed_reply_integer(reply); /* -1: no right to ask */
    walk->total = size > 0 ? (uint64_t)size : 0;
    shed_reply_free(reply);
}

void cli_walk_begin_pattern(struct cli_walk *walk, struct cli_redis *redis,
                            const char *pattern, uint64_t rate)
{
    begin(walk, redis, rate);
    (void)snprintf(walk->pattern, sizeof(walk->pattern), "%s", pattern);
}

void cli_walk_begin(struct cli_walk *walk, struct cli_redis *redis,
                    const char *cache, uint64_t rate)
{
    char *at = walk->pattern;

    begin(walk, redis, rate);
    for (const char *c = cache; *c != '\0'; c++) {
        if (strchr("*?[]\\^-", *c) != NULL)
            *at++ = '\\';
        *at++ = *c;
    }
    memcpy(at, ":{*", sizeof(":{*"));
}

static void show(struct cli_walk *walk)
{
    uint64_t now_ms = shed_now_ms();
    uint64_t done = walk->looked < walk->total ? walk->looked : walk->total;
    int width;

    if (!walk->is_shown || now_ms < walk->shown_ms + SHOW_EVERY_MS)
        return;
    walk->shown_ms = now_ms;
    if (walk->total == 0) {
        (void)fprintf(stderr, "\r%llu keys looked at ",
                      (unsigned long long)walk->looked);
        return;
    }
    width = (int)(done * BAR_WIDTH / walk->total);
    (void)fprintf(stderr, "\r[%.*s%*s] %3d %% of %llu keys ", width,
                  "########################################", BAR_WIDTH - width,
                  "", (int)(done * 100 / walk->total),
                  (unsigned long long)walk->total);
}

struct shed_reply *cli_walk_next(struct cli_walk *walk)
{
    struct shed_args args = {0};
    struct shed_reply *reply, *keys;
    const char *cursor;
    char count[24];
    size_t size = 0;

    if (walk->is_over)
        return NULL;
    cli_rate_keep(&walk->rate, walk->page);
    show(walk);
    (void)snprintf(count, sizeof(count), "%zu", walk->page);
    shed_args_add_text(&args, "SCAN");
    shed_args_add_text(&args, walk->cursor);
    shed_args_add_text(&args, "MATCH");
    shed_args_add_text(&args, walk->pattern);
    shed_args_add_text(&args, "COUNT");
    shed_args_add_text(&args, count);
    reply = cli_redis_check(walk->redis, cli_redis_call(walk->redis, &args),
                            "SCAN");
    walk->looked += walk->page;
    cursor = shed_reply_bytes(shed_reply_at(reply, 0), &size);
    walk->is_over = cursor == NULL || size >= sizeof(walk->cursor) ||
                    strcmp(cursor, "0") == 0;
    if (!walk->is_over)
        memcpy(walk->cursor, cursor, size + 1);
    keys = shed_reply_take(reply, 1);
    shed_reply_free(reply);
    return keys;
}

void cli_walk_end(struct cli_walk *walk)
{
    if (walk->is_shown)
        (void)fprintf(stderr, "\r%*s\r", BAR_WIDTH + 32, "");
}
