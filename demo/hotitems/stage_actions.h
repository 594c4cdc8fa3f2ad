/* What the buttons share. One of them runs at a time, under busy. */
#ifndef HOTITEMS_STAGE_ACTIONS_H
#define HOTITEMS_STAGE_ACTIONS_H

#include "stage.h"

#define ACTIONS_KEY_BYTES 64

struct actions {
    struct stage *stage;
    pthread_mutex_t busy;
    /* under busy */
    redisContext *redis;   /* NULL: not connected */
    unsigned redis_starts; /* of the server that it is connected to */
    /* under the stage's mu */
    uint64_t slow_until_ms; /* the database; 0: it is not slow */
    unsigned prices;        /* changed; a watcher of an older one ends */
    unsigned watchers;      /* threads that watch a price */
    struct price_state {
        uint64_t old_ms;  /* of the instance that showed the old one longest */
        unsigned showing; /* instances that still show it */
    } price[STAGE_LANES]; /* of the newest change */
    bool is_ending;
    /* the thread that restores the database and names the processes */
    pthread_t minder;
    bool has_minder;
    struct known *known; /* its own */
};

/* Everything below: under busy, unless it says otherwise. */

void actions_refuse(struct action_result *result, unsigned status,
                    const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void actions_say(struct action_result *result, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* A connection to Redis; NULL with a refusal. Drop it after any failure. */
redisContext *actions_redis(struct actions *a, struct action_result *result);
void actions_drop_redis(struct actions *a);

/* Whether the database is up, with a refusal if not. */
bool actions_has_database(struct actions *a, struct action_result *result);

/* Send what was appended and read as many replies. Returns false with a
 * refusal. */
bool actions_replies(struct actions *a, size_t count,
                     struct action_result *result);

/* The most wanted item, by all instances' counts. */
uint64_t actions_hottest(struct stage *stage);

/* The port of an instance of a lane that is up; 0 without one. Any thread. */
uint16_t actions_port(struct stage *stage, enum stage_lane lane);

/* stage_expire.c: */

/* The key of an item in a lane. */
void actions_key(char key[ACTIONS_KEY_BYTES], enum stage_lane lane,
                 uint64_t item);

/* Let the time to live of the item's entries end in in_ms, in all lanes at
 * once; or of those of all items in a moment. Returns when it has ended; false
 * with a refusal. */
bool actions_expire(struct actions *a, uint64_t item, uint64_t in_ms,
                    struct action_result *result);
bool actions_expire_all(struct actions *a, struct action_result *result);

/* stage_outage.c: */
void action_stop_redis(struct actions *a, struct action_result *result);
void action_continue_redis(struct actions *a, struct action_result *result);
void action_kill_redis(struct actions *a, struct action_result *result);
void action_leave_redis(struct actions *a, struct action_result *result);
void action_start_redis(struct actions *a, struct action_result *result);
void action_db_down(struct actions *a, struct action_result *result);
void action_db_up(struct actions *a, struct action_result *result);

/* stage_kill.c: */
void action_kill_loader(struct actions *a, struct action_result *result);

/* stage_price.c: */
void action_change_price(struct actions *a, struct action_result *result);

/* stage_minder.c: a thread that does what is due. */
bool minder_start(struct actions *a);
void minder_stop(struct actions *a);

/* stage_database.c. Any thread; why on failure. */
bool database_set_cost(const struct stage_options *o, uint64_t cost_ms,
                       char *why, size_t size);

#endif
