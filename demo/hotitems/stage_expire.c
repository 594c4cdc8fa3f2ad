/*
 * Letting the time to live of entries end, in all lanes at one time. It is a
 * moment ahead, so that callers read an entry up to its end, as they do in the
 * course of time, and the lane snowshed refreshes what is read, as it does
 * then.
 */
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>

#include "stage_actions.h"
#include "stage_ask.h"

#define ALL_IN_MS 1000   /* all have been told by then */
#define BATCH_KEYS 10000 /* in one pipeline */
#define EXPIRE_MAX_MS 10000
#define TRIES 5        /* an instance may be slow, or have been killed */
#define BATCH_ASKED 25 /* an instance has a deadline for a request */
#define PARTS 4

/* As the library names it, and as the lanes none and setnx do. */
void actions_key(char key[ACTIONS_KEY_BYTES], enum stage_lane lane,
                 uint64_t item)
{
    if (lane == LANE_SNOWSHED)
        (void)snprintf(key, ACTIONS_KEY_BYTES, "hotitem:{%" PRIu64 "}", item);
    else
        (void)snprintf(key, ACTIONS_KEY_BYTES, "hotitems:%s:%" PRIu64,
                       stage_lane_names[lane], item);
}

/* What is told late ends at once. */
static uint64_t left_ms(uint64_t end_ms)
{
    uint64_t now_ms = http_now_ms();

    return end_ms > now_ms ? end_ms - now_ms : 1;
}

/* Without the library what has expired is gone. */
static bool append_expiry(struct actions *a, uint64_t item, uint64_t end_ms)
{
    bool is_good = true;

    for (int i = 0; i < LANE_SNOWSHED; i++) {
        char key[ACTIONS_KEY_BYTES];
        actions_key(key, (enum stage_lane)i, item);
        is_good &=
            redisAppendCommand(a->redis, "PEXPIRE %s %llu", key,
                               (unsigned long long)left_ms(end_ms)) == REDIS_OK;
    }
    return is_good;
}

/* Items from first, count of them, in pipelines. */
static bool expire_plain(struct actions *a, uint64_t first, uint64_t count,
                         uint64_t end_ms, struct action_result *result)
{
    for (uint64_t i = 0; i < count; i++) {
        bool is_last = i + 1 == count || (i + 1) % BATCH_KEYS == 0;
        if (!append_expiry(a, first + i, end_ms)) {
            actions_drop_redis(a);
            actions_refuse(result, 500, "out of memory");
            return false;
        }
        if (is_last &&
            !actions_replies(a, LANE_SNOWSHED * (size_t)(i % BATCH_KEYS + 1),
                             result))
            return false;
    }
    return true;
}

/* A part of the items, on a thread of its own. */
struct part {
    struct stage *stage;
    pthread_t thread;
    bool is_started;
    uint64_t first, count, end_ms;
    int status; /* of the last answer */
};

static int ask_expiry(const struct part *p, uint64_t first, uint64_t count)
{
    char path[64];

    (void)snprintf(path, sizeof(path),
                   "/items/expire?in_ms=%" PRIu64 "&ids=", left_ms(p->end_ms));
    return ask_items(actions_port(p->stage, LANE_SNOWSHED), "POST", path, first,
                     count, EXPIRE_MAX_MS);
}

static void *expire_part(void *user)
{
    struct part *p = user;

    p->status = 200;
    for (uint64_t i = 0; i < p->count && p->status == 200; i += BATCH_ASKED) {
        uint64_t left = p->count - i;
        p->status = 0;
        for (int n = 0; n < TRIES && p->status != 200; n++)
            p->status = ask_expiry(p, p->first + i,
                                   left < BATCH_ASKED ? left : BATCH_ASKED);
    }
    return NULL;
}

/* With the library an expired row stays for the stale windows. So instances are
 * asked, which know how; it is a round trip to Redis for each item, so some at
 * a time. */
static bool expire_snowshed(struct actions *a, uint64_t first, uint64_t count,
                            uint64_t end_ms, struct action_result *result)
{
    uint64_t each = (count + PARTS - 1) / PARTS;
    struct part part[PARTS] = {0};
    int status = 200;

    for (uint64_t i = 0; i < PARTS && i * each < count; i++) {
        uint64_t left = count - i * each;
        part[i] = (struct part){.stage = a->stage,
                                .first = first + i * each,
                                .count = left < each ? left : each,
                                .end_ms = end_ms};
        part[i].is_started =
            pthread_create(&part[i].thread, NULL, expire_part, &part[i]) == 0;
        if (!part[i].is_started)
            status = 0;
    }
    for (int i = 0; i < PARTS; i++) {
        if (!part[i].is_started)
            continue;
        (void)pthread_join(part[i].thread, NULL);
        if (part[i].status != 200)
            status = part[i].status;
    }
    if (status != 200)
        actions_refuse(result, 502,
                       "an instance of snowshed answered the expiry with %d; "
                       "try again",
                       status);
    return status == 200;
}

/* Items from first, count of them, end together in in_ms. */
static bool expire(struct actions *a, uint64_t first, uint64_t count,
                   uint64_t in_ms, struct action_result *result)
{
    uint64_t end_ms = http_now_ms() + in_ms;

    if (actions_redis(a, result) == NULL ||
        !expire_plain(a, first, count, end_ms, result) ||
        !expire_snowshed(a, first, count, end_ms, result))
        return false;
    (void)poll(NULL, 0, (int)left_ms(end_ms));
    return true;
}

bool actions_expire(struct actions *a, uint64_t item, uint64_t in_ms,
                    struct action_result *result)
{
    return expire(a, item, 1, in_ms, result);
}

bool actions_expire_all(struct actions *a, struct action_result *result)
{
    return expire(a, 1, a->stage->options.items, ALL_IN_MS, result);
}
