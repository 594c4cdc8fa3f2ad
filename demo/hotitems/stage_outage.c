/* The buttons that stop, kill and start the servers. The main thread does what
 * needs a parent (see stage_servers.h), and tells the listeners. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>

#include "stage_actions.h"
#include "stage_servers.h"

#define DONE_MAX_MS 10000 /* until the main thread has done it */
#define START_MAX_MS                                                           \
    30000 /* until the server answers; it may have to recover */

static bool may_end(struct actions *a, enum server_id id,
                    struct action_result *result)
{
    const char *why = servers_refusal(&a->stage->server[id]);

    if (why != NULL)
        actions_refuse(result, 409, "%s cannot be ended: %s", servers_name(id),
                       why);
    return why == NULL;
}

/* Returns false when it is not so in time. */
static bool wait_for_state_locked(struct stage *stage, enum server_id id,
                                  enum server_state state, uint64_t for_ms)
{
    uint64_t until_ms = http_now_ms() + for_ms;

    while (stage->server[id].state != state && !stage->is_ending &&
           stage_wait_locked(stage, until_ms))
        ;
    return stage->server[id].state == state;
}

/* ------------------------------------------------------------------- stop */

static void switch_redis(struct actions *a, bool is_stop,
                         struct action_result *result)
{
    struct stage *stage = a->stage;
    struct server *redis = &stage->server[SERVER_REDIS];
    bool is_done = false, is_down;

    if (redis->given == 0) {
        actions_refuse(result, 409,
                       "this stage may not stop Redis: start it with "
                       "--redis-pid");
        return;
    }
    stage_lock(stage);
    is_down = redis->state >= SERVER_DOWN;
    if (!is_down) {
        redis->wants_stop = is_stop;
        redis->wants_continue = !is_stop;
        stage_wake(stage);
        is_done = wait_for_state_locked(stage, SERVER_REDIS,
                                        is_stop ? SERVER_STOPPED : SERVER_UP,
                                        DONE_MAX_MS);
    }
    stage_unlock(stage);
    if (is_down)
        actions_refuse(result, 503, "Redis is down; start it first");
    else if (is_done)
        actions_say(result, is_stop ? "Redis is stopped" : "Redis continues");
    else
        actions_refuse(result, 500, "the process of Redis cannot be signalled");
}

void action_stop_redis(struct actions *a, struct action_result *result)
{
    switch_redis(a, true, result);
}

void action_continue_redis(struct actions *a, struct action_result *result)
{
    switch_redis(a, false, result);
}

/* ------------------------------------------------------------------- kill */

/* Returns whether it has ended, with a refusal. */
static bool kill_server(struct actions *a, enum server_id id,
                        struct action_result *result)
{
    struct stage *stage = a->stage;
    bool is_down;
    pid_t pid;

    if (!may_end(a, id, result))
        return false;
    stage_lock(stage);
    pid = servers_pid_locked(&stage->server[id]);
    if (pid != 0)
        (void)kill(pid, SIGKILL);
    stage_wake(stage);
    is_down = wait_for_state_locked(stage, id, SERVER_DOWN, DONE_MAX_MS);
    stage_unlock(stage);
    if (!is_down)
        actions_refuse(result, 500, "%s cannot be killed", servers_name(id));
    return is_down;
}

void action_kill_redis(struct actions *a, struct action_result *result)
{
    uint64_t time_ms = hub_time_ms();

    if (!kill_server(a, SERVER_REDIS, result))
        return;
    stage_lock(a->stage);
    a->stage->server[SERVER_REDIS].keeps_data = false;
    stage_unlock(a->stage);
    actions_say(result, "Redis is killed, and its data lost");
    hub_mark(a->stage->hub, "kill-redis", time_ms, 0, "%s", result->text);
}

/* SHUTDOWN SAVE: nothing is written between what it saves and its end, so that
 * no acknowledged invalidation is lost. */
void action_leave_redis(struct actions *a, struct action_result *result)
{
    uint64_t time_ms = hub_time_ms();
    struct stage *stage = a->stage;
    bool is_down;

    if (!may_end(a, SERVER_REDIS, result) || actions_redis(a, result) == NULL)
        return;
    stage_lock(stage);
    stage->server[SERVER_REDIS].keeps_data = true;
    stage_unlock(stage);
    freeReplyObject(redisCommand(a->redis, "SHUTDOWN SAVE")); /* no reply */
    actions_drop_redis(a);
    stage_lock(stage);
    stage_wake(stage);
    is_down =
        wait_for_state_locked(stage, SERVER_REDIS, SERVER_DOWN, DONE_MAX_MS);
    stage->server[SERVER_REDIS].keeps_data = is_down;
    stage_unlock(stage);
    if (!is_down) {
        actions_refuse(result, 502, "Redis does not shut down");
        return;
    }
    actions_say(result, "Redis is shut down, and its data saved");
    hub_mark(stage->hub, "leave-redis", time_ms, 0, "%s", result->text);
}

/* Rows in Redis are what the lanes live on without the database: so they
 * expire, as they would in the course of time. */
void action_db_down(struct actions *a, struct action_result *result)
{
    uint64_t time_ms = hub_time_ms();
    struct action_result ignored = {0};
    bool does_expire;

    if (!kill_server(a, SERVER_DATABASE, result))
        return;
    does_expire = actions_redis(a, &ignored) != NULL;
    actions_say(result, "the database is killed%s",
                does_expire ? ", and all items expire" : "");
    hub_mark(a->stage->hub, "db-down", time_ms, 0, "%s", result->text);
    if (does_expire)
        (void)actions_expire_all(a, result);
}

/* ------------------------------------------------------------------ start */

static void start_server(struct actions *a, enum server_id id,
                         struct action_result *result)
{
    struct stage *stage = a->stage;
    bool is_up;

    if (!may_end(a, id, result))
        return;
    stage_lock(stage);
    stage->server[id].due_ms = 0;
    stage_wake(stage);
    is_up = wait_for_state_locked(stage, id, SERVER_UP, START_MAX_MS);
    stage_unlock(stage);
    if (is_up)
        actions_say(result, "%s is back", servers_name(id));
    else
        actions_refuse(result, 502, "%s does not answer yet", servers_name(id));
}

void action_start_redis(struct actions *a, struct action_result *result)
{
    start_server(a, SERVER_REDIS, result);
}

void action_db_up(struct actions *a, struct action_result *result)
{
    start_server(a, SERVER_DATABASE, result);
}
