/* Making entries reach the end of their time to live, in all lanes. */
#include <inttypes.h>
#include <stdio.h>

#include "stage_actions.h"
#include "stage_ask.h"

#define EXPIRE_MS "1"
#define BATCH_KEYS 10000 /* in one pipeline */
#define EXPIRE_MAX_MS 10000
#define TRIES 3 /* an instance may have been killed */

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

/* With the library an expired row stays for the stale windows. So an instance
 * is asked, which knows how. */
static bool expire_snowshed(struct actions *a, uint64_t first, uint64_t count,
                            struct action_result *result)
{
    int status = 0;

    for (uint64_t i = 0; i < count; i += ASK_ITEMS_MAX) {
        uint64_t left = count - i;
        status = 0;
        for (int n = 0; n < TRIES && status != 200; n++)
            status = ask_items(actions_port(a->stage, LANE_SNOWSHED), "POST",
                               "/items/expire", first + i,
                               left < ASK_ITEMS_MAX ? left : ASK_ITEMS_MAX,
                               EXPIRE_MAX_MS);
        if (status != 200) {
            actions_refuse(result, 502,
                           "an instance of snowshed answered the expiry with "
                           "%d; try again",
                           status);
            return false;
        }
    }
    return true;
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
