/* One item's key, decoded by the tool that an operator uses. */
#include "stage_entry.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/redis.h"
#include "stage_actions.h"

#define TOOL_MS 2000 /* it, or Redis, answers by then */
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

/* Redis being down is what a page asks to see, and no fault of the stage. */
static void reply_unknown(struct http_reply *reply, const char *why)
{
    http_reply_json(reply, 200, json_pack("{s:s}", "error", why));
}

static void reply_decoded(struct stage *stage, const char *id,
                          struct http_reply *reply)
{
    json_t *why = run_tool(stage, "why", id);
    json_t *entry = why != NULL ? run_tool(stage, "get", id) : NULL;
    const char *error = json_string_value(json_object_get(entry, "error"));

    if (error != NULL) {
        reply_unknown(reply, error);
        json_decref(why);
        json_decref(entry);
        return;
    }
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

static bool read_key(redisContext *redis, enum stage_lane lane, uint64_t id,
                     struct http_reply *reply)
{
    char key[ACTIONS_KEY_BYTES];
    json_int_t ttl_ms, size, lock_ms;

    actions_key(key, lane, id);
    if (redisAppendCommand(redis, "PTTL %s", key) != REDIS_OK ||
        redisAppendCommand(redis, "STRLEN %s", key) != REDIS_OK ||
        redisAppendCommand(redis, "PTTL hotitems:setnx:lock:%llu",
                           (unsigned long long)id) != REDIS_OK ||
        !read_number(redis, &ttl_ms) || !read_number(redis, &size) ||
        !read_number(redis, &lock_ms))
        return false;
    http_reply_json(reply, 200,
                    json_pack("{s:I,s:I,s:I}", "ttl_ms", ttl_ms, "size", size,
                              "lock_ms", lane == LANE_SETNX ? lock_ms : -2));
    return true;
}

/* A connection of its own: the buttons' one is theirs while they last. */
static void reply_plain(struct stage *stage, enum stage_lane lane, uint64_t id,
                        struct http_reply *reply)
{
    char why[128] = "Redis does not answer as it should";
    redisContext *redis =
        demo_redis_open_within(stage->options.redis, TOOL_MS, why, sizeof(why));

    if (redis == NULL || !read_key(redis, lane, id, reply))
        reply_unknown(reply, why);
    if (redis != NULL)
        redisFree(redis);
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
    } else {
        reply_plain(stage, (enum stage_lane)number, strtoull(id, NULL, 10),
                    reply);
    }
}
