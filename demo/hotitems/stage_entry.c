/* One item's key, decoded by the tool that an operator uses. */
#include "stage_entry.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stage_actions.h"

#define TOOL_MS 4000
#define ID_DIGITS_MAX 19

static bool is_id(const char *id)
{
    size_t size = strlen(id);

    return size > 0 && size <= ID_DIGITS_MAX &&
           strspn(id, "0123456789") == size;
}

/* What the tool prints; NULL if that is no JSON. */
static json_t *run_tool(struct stage *stage, const char *command,
                        const char *id)
{
    const char *argv[] = {
        stage->options.snowshed, command, "--json", "hotitem", id, NULL};
    int status;
    char *text = child_read(argv, TOOL_MS, &status);
    json_t *answer = text != NULL ? json_loads(text, 0, NULL) : NULL;

    free(text);
    return answer;
}

static void reply_decoded(struct stage *stage, const char *id,
                          struct http_reply *reply)
{
    json_t *why = run_tool(stage, "why", id);
    json_t *entry = why != NULL ? run_tool(stage, "get", id) : NULL;

    if (entry != NULL) {
        http_reply_json(reply, 200,
                        json_pack("{s:o,s:o}", "why", why, "entry", entry));
        return;
    }
    json_decref(why);
    http_reply_error(reply, 502, "%.80s cannot be run, or says nothing",
                     stage->options.snowshed);
}

static bool read_number(redisContext *redis, json_int_t *out)
{
    redisReply *reply = NULL;
    bool is_number = redisGetReply(redis, (void **)&reply) == REDIS_OK &&
                     reply->type == REDIS_REPLY_INTEGER;

    if (is_number)
        *out = reply->integer;
    freeReplyObject(reply);
    return is_number;
}

/* Under busy. */
static void reply_plain(struct actions *a, enum stage_lane lane, uint64_t id,
                        struct http_reply *reply)
{
    struct action_result refusal = {0};
    char key[ACTIONS_KEY_BYTES];
    json_int_t ttl_ms, size, lock_ms;

    if (actions_redis(a, &refusal) == NULL) {
        http_reply_error(reply, refusal.status, "%s", refusal.text);
        return;
    }
    actions_key(key, lane, id);
    if (redisAppendCommand(a->redis, "PTTL %s", key) == REDIS_OK &&
        redisAppendCommand(a->redis, "STRLEN %s", key) == REDIS_OK &&
        redisAppendCommand(a->redis, "PTTL hotitems:setnx:lock:%llu",
                           (unsigned long long)id) == REDIS_OK &&
        read_number(a->redis, &ttl_ms) && read_number(a->redis, &size) &&
        read_number(a->redis, &lock_ms)) {
        http_reply_json(reply, 200,
                        json_pack("{s:I,s:I,s:I}", "ttl_ms", ttl_ms, "size",
                                  size, "lock_ms",
                                  lane == LANE_SETNX ? lock_ms : -2));
        return;
    }
    actions_drop_redis(a);
    http_reply_error(reply, 502, "Redis does not answer as it should");
}

void entry_reply(struct stage *stage, const char *lane, const char *id,
                 struct http_reply *reply)
{
    int number = 0;

    while (number < STAGE_LANES && strcmp(lane, stage_lane_names[number]) != 0)
        number++;
    if (number == STAGE_LANES || !is_id(id)) {
        http_reply_error(reply, 400,
                         "give lane=none, setnx or snowshed, and id=NUMBER");
    } else if (number == LANE_SNOWSHED) {
        reply_decoded(stage, id, reply);
    } else if (pthread_mutex_trylock(&stage->actions->busy) != 0) {
        reply->retry_after_s = 1;
        http_reply_error(reply, 503, "an action is under way");
    } else {
        reply_plain(stage->actions, (enum stage_lane)number,
                    strtoull(id, NULL, 10), reply);
        (void)pthread_mutex_unlock(&stage->actions->busy);
    }
}
