/* Making entries reach the end of their time to live, in all lanes. */
#include <inttypes.h>
#include <stdio.h>

#include "stage_actions.h"
#include "stage_ask.h"

#define EXPIRE_MS "1"
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

/* Without the library what has expired is gone. */
static bool append_expiry(struct actions *a, uint64_t item)
{
    bool is_good = true;

    for (int i = 0; i < LANE_SNOWSHED; i++) {
        char key[ACTIONS_KEY_BYTES];
        actions_key(key, (enum stage_lane)i, item);
        is_good &= redisAppendCommand(a->redis, "PEXPIRE %s " EXPIRE_MS, key) ==
                   REDIS_OK;
    }
    return is_good;
}

/* Items from first, count of them, in pipelines. */
static bool expire_plain(struct actions *a, uint64_t first, uint64_t count,
                         struct action_result *result)
{
    for (uint64_t i = 0; i < count; i++) {
        bool is_last = i + 1 == count || (i + 1) % BATCH_KEYS == 0;
        if (!append_expiry(a, first + i)) {
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
    uint64_t first, count;
    int status; /* of the last answer */
};

static void *expire_part(void *user)
{
    struct part *p = user;

    p->status = 200;
    for (uint64_t i = 0; i < p->count && p->status == 200; i += BATCH_ASKED) {
        uint64_t left = p->count - i;
        p->status = 0;
        for (int n = 0; n < TRIES && p->status != 200; n++)
            p->status = ask_items(actions_port(p->stage, LANE_SNOWSHED), "POST",
                                  "/items/expire", p->first + i,
                                  left < BATCH_ASKED ? left : BATCH_ASKED,
                                  EXPIRE_MAX_MS);
    }
    return NULL;
}

/* With the library an expired row stays for the stale windows. So instances are
 * asked, which know how; it is a round trip to Redis for each item, so some at
 * a time. */
static bool expire_snowshed(struct actions *a, uint64_t first, uint64_t count,
                            struct action_result *result)
{
    uint64_t each = (count + PARTS - 1) / PARTS;
    struct part part[PARTS] = {0};
    int status = 200;

    for (uint64_t i = 0; i < PARTS && i * each < count; i++) {
        uint64_t left = count - i * each;
        part[i] = (struct part){.stage = a->stage,
                                .first = first + i * each,
                                .count = left < each ? left : each};
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

bool actions_expire(struct actions *a, uint64_t item,
                    struct action_result *result)
{
    return actions_redis(a, result) != NULL &&
           expire_plain(a, item, 1, result) &&
           expire_snowshed(a, item, 1, result);
}

bool actions_expire_all(struct actions *a, struct action_result *result)
{
    uint64_t items = a->stage->options.items;

    return actions_redis(a, result) != NULL &&
           expire_plain(a, 1, items, result) &&
           expire_snowshed(a, 1, items, result);
}
