/* A thread that does what is due: it restores the database, and finds out which
 * instance the library knows under which name. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "stage_actions.h"

#define TURN_MS 20
#define CHANNEL "snowshed:process:" /* and the library's name for a process */
#define NAMES_MAX 256

/* The names of all processes that are connected; NULL on failure. */
static redisReply *list_names(struct actions *a)
{
    struct action_result ignored = {0};
    redisReply *reply;

    if (actions_redis(a, &ignored) == NULL)
        return NULL;
    reply =
        redisCommand(a->redis, "PUBSUB CHANNELS " CHANNEL "????????????????");
    if (reply == NULL)
        actions_drop_redis(a);
    return reply;
}

/* An instance that has no name yet; NULL without one. */
static struct instance *unnamed_locked(struct stage *stage)
{
    for (size_t i = 0; i < stage->instances; i++) {
        struct instance *it = &stage->instance[i];
        if (it->state == INSTANCE_UP && it->process[0] == '\0')
            return it;
    }
    return NULL;
}

/* Names seen before the one that is looked for; the oldest are forgotten. */
struct known {
    char name[NAMES_MAX][STAGE_PROCESS_BYTES];
    size_t count, next;
};

static bool is_known(const struct known *known, const char *name)
{
    for (size_t i = 0; i < known->count; i++)
        if (strcmp(known->name[i], name) == 0)
            return true;
    return false;
}

static void learn(struct known *known, const char *name)
{
    (void)snprintf(known->name[known->next], STAGE_PROCESS_BYTES, "%s", name);
    known->next = (known->next + 1) % NAMES_MAX;
    if (known->count < NAMES_MAX)
        known->count++;
}

/* Give the instance without a name the name that is new. The first time there
 * is no such instance, so that the names of others are learnt. */
static void match_names(struct stage *stage, struct known *known,
                        const redisReply *names)
{
    struct instance *it;

    stage_lock(stage);
    it = unnamed_locked(stage);
    for (size_t i = 0; i < names->elements; i++) {
        const char *name = names->element[i]->str + strlen(CHANNEL);
        if (is_known(known, name))
            continue;
        learn(known, name);
        if (it != NULL)
            (void)snprintf(it->process, sizeof(it->process), "%s", name);
        it = NULL;
    }
    stage_unlock(stage);
    stage_wake(stage); /* the next one may start */
}

static void name_processes(struct actions *a, bool is_first)
{
    redisReply *names;
    bool is_needed;

    stage_lock(a->stage);
    is_needed = is_first || unnamed_locked(a->stage) != NULL;
    stage_unlock(a->stage);
    if (!is_needed || pthread_mutex_trylock(&a->busy) != 0)
        return;
    names = list_names(a);
    (void)pthread_mutex_unlock(&a->busy);
    if (names != NULL && names->type == REDIS_REPLY_ARRAY)
        match_names(a->stage, a->known, names);
    freeReplyObject(names);
}

static void restore(struct actions *a)
{
    struct action_result result = {0};
    bool is_due;

    stage_lock(a->stage);
    is_due = a->slow_until_ms != 0 && http_now_ms() >= a->slow_until_ms;
    stage_unlock(a->stage);
    if (is_due)
        actions_run(a->stage, "restore-db", &result);
}

/* Returns false when the stage ends. */
static bool pause_turn(struct actions *a)
{
    uint64_t until_ms = http_now_ms() + TURN_MS;
    bool is_ending;

    stage_lock(a->stage);
    while (!a->is_ending && stage_wait_locked(a->stage, until_ms))
        ;
    is_ending = a->is_ending;
    stage_unlock(a->stage);
    return !is_ending;
}

static void *mind(void *user)
{
    struct actions *a = user;

    while (pause_turn(a)) {
        name_processes(a, false);
        restore(a);
    }
    return NULL;
}

bool minder_start(struct actions *a)
{
    a->known = calloc(1, sizeof(*a->known));
    if (a->known == NULL)
        return false;
    name_processes(a, true);
    a->has_minder = pthread_create(&a->minder, NULL, mind, a) == 0;
    return a->has_minder;
}

void minder_stop(struct actions *a)
{
    stage_lock(a->stage);
    a->is_ending = true;
    (void)pthread_cond_broadcast(&a->stage->changed);
    while (a->watchers > 0)
        (void)pthread_cond_wait(&a->stage->changed, &a->stage->mu);
    stage_unlock(a->stage);
    if (a->has_minder)
        (void)pthread_join(a->minder, NULL);
    free(a->known);
}
