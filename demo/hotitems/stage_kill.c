/* Killing the process that loads the hottest item, in each lane. */
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stage_actions.h"

#define TRY_MS 10000  /* in all */
#define AGAIN_MS 1000 /* a load that was missed is made again */
#define TOOL_MS 3000  /* for an answer of the command-line tool */
#define TURN_MS 2

/* What the kill has reached so far. */
struct kill {
    uint64_t item;
    pid_t killed[STAGE_LANES]; /* 0: none yet */
};

/* The process that has the lock of the lane setnx; 0: none. */
static pid_t find_locker(struct actions *a, uint64_t item)
{
    char key[ACTIONS_KEY_BYTES];
    redisReply *reply;
    pid_t pid = 0;

    (void)snprintf(key, sizeof(key), "hotitems:setnx:lock:%" PRIu64, item);
    reply = redisCommand(a->redis, "GET %s", key);
    if (reply != NULL && reply->type == REDIS_REPLY_STRING)
        pid = (pid_t)strtol(reply->str, NULL, 10);
    freeReplyObject(reply);
    return pid;
}

/* The library's name for the process that has the lease on an item, as the
 * command-line tool prints it; "" without one. */
static void find_leader(struct actions *a, uint64_t item,
                        char name[STAGE_PROCESS_BYTES])
{
    char key[24];
    const char *argv[] = {
        a->stage->options.snowshed, "why", "--json", "hotitem", key, NULL};
    const char *process;
    json_t *answer, *holder;
    char *text;
    int status;

    (void)snprintf(key, sizeof(key), "%" PRIu64, item);
    text = child_read(argv, TOOL_MS, &status);
    answer = text != NULL ? json_loads(text, 0, NULL) : NULL;
    holder = json_object_get(json_object_get(answer, "entry"), "holder");
    process = json_string_value(json_object_get(holder, "process"));
    (void)snprintf(name, STAGE_PROCESS_BYTES, "%s",
                   process != NULL ? process : "");
    json_decref(answer);
    free(text);
}

/* ----------------------------------------------------------------- kill */

/* An instance by its process: by id, or by the library's name. */
static struct instance *find_instance_locked(struct stage *stage,
                                             enum stage_lane lane, pid_t pid,
                                             const char *name)
{
    for (size_t i = 0; i < stage->instances; i++) {
        struct instance *it = &stage->instance[i];
        if (it->lane == lane && it->state == INSTANCE_UP &&
            (pid == 0 || it->service.pid == pid) &&
            (name == NULL || strcmp(it->process, name) == 0))
            return it;
    }
    return NULL;
}

static void kill_it(struct actions *a, struct kill *kill, enum stage_lane lane,
                    pid_t pid, const char *name)
{
    struct instance *it;

    stage_lock(a->stage);
    it = find_instance_locked(a->stage, lane, pid, name);
    pid = it != NULL ? it->service.pid : 0;
    stage_unlock(a->stage);
    if (it != NULL && lanes_kill(a->stage, it, pid))
        kill->killed[lane] = pid;
}

/* Without protection every process that is asked for the item loads it. */
static void kill_in_lanes(struct actions *a, struct kill *kill)
{
    char name[STAGE_PROCESS_BYTES];
    pid_t pid;

    if (kill->killed[LANE_SNOWSHED] == 0) {
        find_leader(a, kill->item, name);
        if (name[0] != '\0')
            kill_it(a, kill, LANE_SNOWSHED, 0, name);
    }
    if (kill->killed[LANE_SETNX] == 0 &&
        (pid = find_locker(a, kill->item)) != 0)
        kill_it(a, kill, LANE_SETNX, pid, NULL);
    if (kill->killed[LANE_NONE] == 0)
        kill_it(a, kill, LANE_NONE, 0, NULL);
}

static bool is_complete(const struct kill *kill)
{
    bool is = true;

    for (int i = 0; i < STAGE_LANES; i++)
        is &= kill->killed[i] != 0;
    return is;
}

/* Lanes in which it was found are not made to load again. The entry of snowshed
 * goes, too: then its lease is where it was. */
static bool expire_again(struct actions *a, const struct kill *kill,
                         struct action_result *result)
{
    for (int i = 0; i < STAGE_LANES; i++) {
        char key[ACTIONS_KEY_BYTES];
        if (kill->killed[i] != 0)
            continue;
        actions_key(key, (enum stage_lane)i, kill->item);
        if (redisAppendCommand(a->redis, "PEXPIRE %s 1", key) != REDIS_OK ||
            !actions_replies(a, 1, result))
            return false;
    }
    return true;
}

static void describe(struct actions *a, const struct kill *kill,
                     uint64_t time_ms, struct action_result *result)
{
    char list[120] = "";

    for (int i = 0; i < STAGE_LANES; i++) {
        size_t size = strlen(list);
        if (kill->killed[i] != 0)
            (void)snprintf(list + size, sizeof(list) - size, "%s%s %d",
                           size > 0 ? ", " : "", stage_lane_names[i],
                           (int)kill->killed[i]);
    }
    if (list[0] == '\0') {
        actions_refuse(result, 409,
                       "nobody loads item %" PRIu64 ": there is no traffic",
                       kill->item);
        return;
    }
    actions_say(result, "killed while item %" PRIu64 " was loaded: %s",
                kill->item, list);
    hub_mark(a->stage->hub, "kill-loader", time_ms, kill->item, "%s",
             result->text);
}

void action_kill_loader(struct actions *a, struct action_result *result)
{
    struct kill kill = {.item = actions_hottest(a->stage)};
    uint64_t time_ms = hub_time_ms(), end_ms = http_now_ms() + TRY_MS;
    uint64_t again_ms = http_now_ms() + AGAIN_MS;

    if (actions_redis(a, result) == NULL || !expire_again(a, &kill, result))
        return;
    while (!is_complete(&kill) && http_now_ms() < end_ms &&
           !stage_is_ending(a->stage)) {
        kill_in_lanes(a, &kill);
        if (http_now_ms() >= again_ms) {
            again_ms = http_now_ms() + AGAIN_MS;
            if (!expire_again(a, &kill, result))
                return;
        }
        (void)poll(NULL, 0, TURN_MS);
    }
    describe(a, &kill, time_ms, result);
}
