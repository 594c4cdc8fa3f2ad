/* The buttons, and what most of them need: Redis, keys, the hottest item. */
#include "stage_actions.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/redis.h"

#define REDIS_TIMEOUT_MS 2000
#define EXPIRE_IN_MS 200
#define SLOW_FACTOR 5
#define SLOW_MAX_MS 60000
#define BUSY_MAX_MS 10000

/* -------------------------------------------------------------- results */

void actions_refuse(struct action_result *result, unsigned status,
                    const char *format, ...)
{
    va_list args;

    result->status = status;
    va_start(args, format);
    (void)vsnprintf(result->text, sizeof(result->text), format, args);
    va_end(args);
}

void actions_say(struct action_result *result, const char *format, ...)
{
    va_list args;

    result->status = 200;
    va_start(args, format);
    (void)vsnprintf(result->text, sizeof(result->text), format, args);
    va_end(args);
}

/* ---------------------------------------------------------------- Redis */

redisContext *actions_redis(struct actions *a, struct action_result *result)
{
    const struct server *server = &a->stage->server[SERVER_REDIS];
    enum server_state state;
    unsigned starts;
    char why[128];

    stage_lock(a->stage);
    state = server->state;
    starts = server->starts;
    stage_unlock(a->stage);
    if (state != SERVER_UP) { /* connecting would wait for it, or fail */
        actions_refuse(result, 503,
                       state == SERVER_STOPPED
                           ? "Redis is stopped; continue it first"
                           : "Redis is down; start it first");
        return NULL;
    }
    if (starts != a->redis_starts)
        actions_drop_redis(a);
    a->redis_starts = starts;
    if (a->redis == NULL) {
        a->redis = demo_redis_open_within(a->stage->options.redis,
                                          REDIS_TIMEOUT_MS, why, sizeof(why));
        if (a->redis == NULL)
            actions_refuse(result, 502, "%s; is it running?", why);
    }
    return a->redis;
}

bool actions_has_database(struct actions *a, struct action_result *result)
{
    bool is_up;

    stage_lock(a->stage);
    is_up = a->stage->server[SERVER_DATABASE].state == SERVER_UP;
    stage_unlock(a->stage);
    if (!is_up)
        actions_refuse(result, 503, "the database is down; start it first");
    return is_up;
}

void actions_drop_redis(struct actions *a)
{
    if (a->redis != NULL)
        redisFree(a->redis);
    a->redis = NULL;
}

bool actions_replies(struct actions *a, size_t count,
                     struct action_result *result)
{
    bool is_good = true;

    for (size_t i = 0; i < count && is_good; i++) {
        void *reply = NULL;
        is_good = redisGetReply(a->redis, &reply) == REDIS_OK &&
                  ((redisReply *)reply)->type != REDIS_REPLY_ERROR;
        if (!is_good)
            actions_refuse(result, 502, "Redis: %.150s",
                           reply != NULL ? ((redisReply *)reply)->str
                                         : a->redis->errstr);
        freeReplyObject(reply);
    }
    if (!is_good)
        actions_drop_redis(a);
    return is_good;
}

/* ------------------------------------------------------------ the hottest */

/* One item and how often it was wanted, in all instances. */
static uint64_t wanted_locked(const struct stage *stage, uint64_t id)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < stage->instances; i++) {
        const struct sample *s = &stage->instance[i].sample;
        for (size_t n = 0; n < s->hots; n++)
            sum += s->hot[n].id == id ? s->hot[n].wanted : 0;
    }
    return sum;
}

uint64_t actions_hottest(struct stage *stage)
{
    uint64_t hottest = traffic_item(stage, 0), most;

    stage_lock(stage);
    most = wanted_locked(stage, hottest);
    for (size_t i = 0; i < stage->instances; i++) {
        const struct sample *s = &stage->instance[i].sample;
        for (size_t n = 0; n < s->hots; n++) {
            uint64_t id = s->hot[n].id, wanted = wanted_locked(stage, id);
            if (wanted > most && id <= stage->options.items) {
                most = wanted;
                hottest = id;
            }
        }
    }
    stage_unlock(stage);
    return hottest;
}

uint16_t actions_port(struct stage *stage, enum stage_lane lane)
{
    uint16_t port = 0;

    stage_lock(stage);
    for (size_t i = 0; i < stage->instances && port == 0; i++)
        if (stage->instance[i].lane == lane &&
            stage->instance[i].state == INSTANCE_UP)
            port = stage->instance[i].port;
    stage_unlock(stage);
    return port;
}

/* -------------------------------------------------------------- buttons */

static void expire_hottest(struct actions *a, struct action_result *result)
{
    uint64_t item = actions_hottest(a->stage), time_ms = hub_time_ms();

    if (!actions_expire(a, item, EXPIRE_IN_MS, result))
        return;
    actions_say(result, "the hottest item (%" PRIu64 ") expired", item);
    hub_mark(a->stage->hub, "expire-hottest", time_ms, item, "%s",
             result->text);
}

static void expire_all(struct actions *a, struct action_result *result)
{
    uint64_t time_ms = hub_time_ms();

    if (!actions_expire_all(a, result))
        return;
    actions_say(result, "all %" PRIu64 " items expired",
                a->stage->options.items);
    hub_mark(a->stage->hub, "expire-all", time_ms, 0, "%s", result->text);
}

/* The main thread starts those who ask. */
static void absent(struct actions *a, struct action_result *result)
{
    stage_lock(a->stage);
    a->stage->absent_wanted++;
    stage_unlock(a->stage);
    actions_say(result, "each lane is asked for %d items that do not exist",
                TRAFFIC_ABSENT);
    hub_mark(a->stage->hub, "absent", hub_time_ms(), 0, "%s", result->text);
    stage_wake(a->stage);
}

static void empty_redis(struct actions *a, struct action_result *result)
{
    uint64_t time_ms = hub_time_ms();

    if (actions_redis(a, result) == NULL)
        return;
    if (redisAppendCommand(a->redis, "FLUSHDB") != REDIS_OK ||
        !actions_replies(a, 1, result))
        return;
    actions_say(result, "Redis was emptied");
    hub_mark(a->stage->hub, "empty-redis", time_ms, 0, "%s", result->text);
}

static void switch_database(struct actions *a, uint64_t cost_ms,
                            uint64_t until_ms, struct action_result *result)
{
    if (!actions_has_database(a, result))
        return;
    if (!database_set_cost(&a->stage->options, cost_ms, result->text,
                           sizeof(result->text))) {
        result->status = 502;
        return;
    }
    stage_lock(a->stage);
    a->slow_until_ms = until_ms;
    stage_unlock(a->stage);
    actions_say(result, "a query takes %" PRIu64 " ms now", cost_ms);
    hub_tell(a->stage->hub, "lanes", lanes_json(a->stage));
}

/* Nothing is loaded unless items expire. */
static void slow_db(struct actions *a, struct action_result *result)
{
    struct action_result ignored = {0};
    uint64_t time_ms = hub_time_ms();
    bool does_expire;

    switch_database(a, a->stage->options.db_cost_ms * SLOW_FACTOR,
                    http_now_ms() + SLOW_MAX_MS, result);
    if (result->status != 200)
        return;
    does_expire = actions_redis(a, &ignored) != NULL;
    hub_mark(a->stage->hub, "slow-db", time_ms, 0, "the database is slow: %s%s",
             result->text, does_expire ? ", and all items expire" : "");
    if (does_expire)
        (void)actions_expire_all(a, &ignored);
}

static void restore_db(struct actions *a, struct action_result *result)
{
    uint64_t time_ms = hub_time_ms();

    switch_database(a, a->stage->options.db_cost_ms, 0, result);
    if (result->status == 200)
        hub_mark(a->stage->hub, "restore-db", time_ms, 0,
                 "the database is restored: %s", result->text);
}

/* ---------------------------------------------------------------- table */

static const struct button {
    const char *name, *label;
    void (*act)(struct actions *a, struct action_result *result);
} buttons[] = {
    {"expire-hottest", "Expire the hottest item", expire_hottest},
    {"expire-all", "Expire everything", expire_all},
    {"absent", "Ask for items that do not exist", absent},
    {"empty-redis", "Empty Redis", empty_redis},
    {"stop-redis", "Stop Redis for 5 s", action_stop_redis},
    {"continue-redis", "Continue Redis", action_continue_redis},
    {"kill-redis", "Kill Redis", action_kill_redis},
    {"leave-redis", "Shut Redis down", action_leave_redis},
    {"start-redis", "Start Redis", action_start_redis},
    {"slow-db", "Slow the database", slow_db},
    {"restore-db", "Restore the database", restore_db},
    {"db-down", "Kill the database", action_db_down},
    {"db-up", "Start the database", action_db_up},
    {"kill-loader", "Kill the loading process", action_kill_loader},
    {"change-price", "Change a price", action_change_price},
};
#define BUTTONS (sizeof(buttons) / sizeof(buttons[0]))

static const struct button *find_button(const char *name)
{
    for (size_t i = 0; i < BUTTONS; i++)
        if (strcmp(buttons[i].name, name) == 0)
            return &buttons[i];
    return NULL;
}

bool actions_exists(const char *name)
{
    return find_button(name) != NULL;
}

/* Whether what a button does lasts now. */
static bool is_on_locked(const struct stage *stage, const struct button *b)
{
    const struct server *redis = &stage->server[SERVER_REDIS];

    if (b->act == action_stop_redis)
        return redis->state == SERVER_STOPPED;
    if (b->act == action_kill_redis || b->act == action_leave_redis)
        return redis->state >= SERVER_DOWN &&
               redis->keeps_data == (b->act == action_leave_redis);
    if (b->act == action_db_down)
        return stage->server[SERVER_DATABASE].state >= SERVER_DOWN;
    return b->act == slow_db && stage->actions != NULL &&
           stage->actions->slow_until_ms != 0;
}

json_t *actions_json(struct stage *stage)
{
    json_t *list = json_array();

    stage_lock(stage);
    for (size_t i = 0; i < BUTTONS; i++)
        (void)json_array_append_new(
            list, json_pack("{s:s,s:s,s:b}", "name", buttons[i].name, "label",
                            buttons[i].label, "is_on",
                            is_on_locked(stage, &buttons[i])));
    stage_unlock(stage);
    return list;
}

/* Some take a second; another button that is pressed meanwhile waits. */
static bool lock_busy(struct actions *a)
{
    struct timespec until;

    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += BUSY_MAX_MS / 1000;
    return pthread_mutex_timedlock(&a->busy, &until) == 0;
}

void actions_run(struct stage *stage, const char *name,
                 struct action_result *result)
{
    const struct button *b = find_button(name);
    struct actions *a = stage->actions;

    if (b == NULL) {
        actions_refuse(result, 404, "there is no such action");
    } else if (!lock_busy(a)) {
        actions_refuse(result, 503, "another action is still under way");
    } else {
        b->act(a, result);
        (void)pthread_mutex_unlock(&a->busy);
    }
}

/* ------------------------------------------------------- open and close */

struct actions *actions_new(struct stage *stage, char *why, size_t size)
{
    struct action_result result = {0};
    struct actions *a = calloc(1, sizeof(*a));

    (void)snprintf(why, size, "out of memory");
    if (a == NULL)
        return NULL;
    a->stage = stage;
    (void)pthread_mutex_init(&a->busy, NULL);
    if (actions_redis(a, &result) == NULL)
        (void)snprintf(why, size, "%s", result.text);
    else if (/* until all is warm */
             database_set_cost(&stage->options, 0, why, size) &&
             minder_start(a))
        return a;
    actions_free(a);
    return NULL;
}

void actions_free(struct actions *a)
{
    char why[STAGE_TEXT_BYTES];

    if (a == NULL)
        return;
    minder_stop(a);
    if (a->slow_until_ms != 0 &&
        !database_set_cost(&a->stage->options, a->stage->options.db_cost_ms,
                           why, sizeof(why)))
        (void)fprintf(stderr, "hotitems-stage: the database stays slow: %s\n",
                      why);
    actions_drop_redis(a);
    (void)pthread_mutex_destroy(&a->busy);
    free(a);
}
