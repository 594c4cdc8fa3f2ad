/* Changing a price while the item is being loaded, and watching how long each
 * instance answers with the old one. */
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stage_actions.h"
#include "stage_ask.h"

#define ASK_MS 5000
#define CHANGE_MS 20000 /* a PATCH may wait for a slow database */
#define CHANGE_AGAIN_MS 50
#define EXPIRE_IN_MS 1    /* early enough for a load to be under way */
#define LOAD_BEGINS_MS 20 /* many requests come in that time */
#define RAISE_CENTS 100
#define PRICE_MAX_CENTS 99900
#define OFTEN_MS 5        /* between two looks, ... */
#define OFTEN_FOR_MS 2000 /* ... this long; then */
#define SELDOM_MS 200
#define TELL_EVERY_MS 1000 /* as long as the price is still the old one */
#define WATCH_MAX_MS 120000

/* One instance is watched by one thread. */
struct watch {
    struct actions *a;
    enum stage_lane lane;
    uint16_t port;
    unsigned number; /* of the change */
    uint64_t item;
    int64_t price_cents;
    uint64_t since_ms; /* when its lane's PATCH was answered */
};

/* Returns the price, or -1. */
static int64_t read_price(uint16_t port, uint64_t item)
{
    char path[48];
    json_t *answer, *price;
    int64_t cents = -1;

    (void)snprintf(path, sizeof(path), "/items/%" PRIu64, item);
    if (ask(port, "GET", path, NULL, ASK_MS, &answer) == 200) {
        price = json_object_get(answer, "price_cents");
        if (json_is_integer(price))
            cents = json_integer_value(price);
    }
    json_decref(answer);
    return cents;
}

static void tell(const struct watch *w, uint64_t old_ms, bool is_over)
{
    struct stage *stage = w->a->stage;
    struct price_state *state = &w->a->price[w->lane];

    stage_lock(stage);
    if (w->a->prices == w->number) {
        state->old_ms = old_ms > state->old_ms ? old_ms : state->old_ms;
        state->showing -= is_over;
    }
    stage_unlock(stage);
    hub_tell(stage->hub, "price",
             json_pack("{s:i,s:I,s:s,s:i,s:I,s:b}", "change", (int)w->number,
                       "id", (json_int_t)w->item, "lane",
                       stage_lane_names[w->lane], "port", (int)w->port,
                       "old_ms", (json_int_t)old_ms, "is_over", is_over));
}

/* ---------------------------------------------------------------- watch */

/* Returns false if the watch is over. */
static bool pause_watch(const struct watch *w, uint64_t ms)
{
    uint64_t until_ms = http_now_ms() + ms;
    struct stage *stage = w->a->stage;
    bool is_over;

    stage_lock(stage);
    while (!w->a->is_ending && w->a->prices == w->number &&
           stage_wait_locked(stage, until_ms))
        ;
    is_over = w->a->is_ending || w->a->prices != w->number;
    stage_unlock(stage);
    return !is_over;
}

static void watch_price(const struct watch *w)
{
    uint64_t old_ms = 0, told_ms = 0, asked_ms;

    do {
        int64_t cents;
        asked_ms = http_now_ms();
        cents = read_price(w->port, w->item);
        if (cents == w->price_cents) {
            tell(w, old_ms, true);
            return;
        }
        if (cents != -1)
            old_ms = asked_ms - w->since_ms;
        if (cents != -1 && asked_ms >= told_ms + TELL_EVERY_MS) {
            told_ms = asked_ms;
            tell(w, old_ms, false);
        }
    } while (asked_ms - w->since_ms < WATCH_MAX_MS &&
             pause_watch(w, asked_ms - w->since_ms < OFTEN_FOR_MS ? OFTEN_MS
                                                                  : SELDOM_MS));
}

static void *run_watch(void *user)
{
    struct watch *w = user;
    struct stage *stage = w->a->stage;

    watch_price(w);
    stage_lock(stage);
    w->a->watchers--;
    (void)pthread_cond_broadcast(&stage->changed);
    stage_unlock(stage);
    free(w);
    return NULL;
}

/* Counted under the lock that the thread takes before it counts itself out. */
static void start_watch(const struct watch *like, uint16_t port)
{
    struct watch *w = malloc(sizeof(*w));
    struct stage *stage = like->a->stage;
    pthread_t thread;
    bool is_started;

    if (w == NULL)
        return;
    *w = *like;
    w->port = port;
    stage_lock(stage);
    is_started = pthread_create(&thread, NULL, run_watch, w) == 0;
    w->a->watchers += is_started;
    w->a->price[w->lane].showing += is_started;
    stage_unlock(stage);
    if (is_started)
        (void)pthread_detach(thread);
    else
        free(w);
}

static void watch_lane(const struct watch *like)
{
    struct stage *stage = like->a->stage;
    uint16_t port[STAGE_INSTANCES_MAX];
    size_t count = 0;

    stage_lock(stage);
    for (size_t i = 0; i < stage->instances; i++)
        if (stage->instance[i].lane == like->lane &&
            stage->instance[i].state == INSTANCE_UP)
            port[count++] = stage->instance[i].port;
    stage_unlock(stage);
    for (size_t i = 0; i < count; i++)
        start_watch(like, port[i]);
}

/* --------------------------------------------------------------- change */

/* One lane's PATCH, on a thread of its own. */
struct change {
    struct watch watch;
    pthread_t thread;
    bool is_started;
    int status;
};

/* A lane that is not told keeps the old price for the time to live, though the
 * row has changed: so it is told again, by another instance if one has died. */
static void *change_lane(void *user)
{
    struct change *c = user;
    uint64_t end_ms = http_now_ms() + CHANGE_MS, now_ms;
    char path[48], body[48];

    (void)snprintf(path, sizeof(path), "/items/%" PRIu64, c->watch.item);
    (void)snprintf(body, sizeof(body), "{\"price_cents\": %" PRId64 "}",
                   c->watch.price_cents);
    while ((now_ms = http_now_ms()) < end_ms) {
        uint16_t port = actions_port(c->watch.a->stage, c->watch.lane);
        c->status = ask(port, "PATCH", path, body, end_ms - now_ms, NULL);
        if (c->status == 200 || stage_is_ending(c->watch.a->stage))
            break;
        (void)poll(NULL, 0, CHANGE_AGAIN_MS);
    }
    c->watch.since_ms = http_now_ms();
    if (c->status != 0)
        watch_lane(&c->watch);
    return NULL;
}

/* All lanes have one table, so each is told of the same change. Returns 200 if
 * one has made it: another may have made it, too, and failed to read the item
 * again. Else the status of one. */
static int change_lanes(const struct watch *like)
{
    struct change change[STAGE_LANES];
    int status = 0;

    for (int i = 0; i < STAGE_LANES; i++) {
        change[i] = (struct change){.watch = *like};
        change[i].watch.lane = (enum stage_lane)i;
        change[i].is_started = pthread_create(&change[i].thread, NULL,
                                              change_lane, &change[i]) == 0;
    }
    for (int i = 0; i < STAGE_LANES; i++) {
        if (change[i].is_started)
            (void)pthread_join(change[i].thread, NULL);
        if (status != 200)
            status = change[i].status;
    }
    return status;
}

void action_change_price(struct actions *a, struct action_result *result)
{
    struct watch like = {.a = a, .item = actions_hottest(a->stage)};
    uint64_t time_ms;
    int64_t old = read_price(actions_port(a->stage, LANE_SNOWSHED), like.item);
    int status;

    if (!actions_has_database(a, result))
        return;
    if (old == -1) {
        actions_refuse(result, 502, "item %" PRIu64 " cannot be read",
                       like.item);
        return;
    }
    like.price_cents = old % PRICE_MAX_CENTS + RAISE_CENTS;
    stage_lock(a->stage);
    like.number = ++a->prices;
    memset(a->price, 0, sizeof(a->price));
    stage_unlock(a->stage);
    time_ms = hub_time_ms();
    if (!actions_expire(a, like.item, EXPIRE_IN_MS, result))
        return;
    (void)poll(NULL, 0, LOAD_BEGINS_MS);
    status = change_lanes(&like);
    if (status != 200) {
        actions_refuse(result, 502,
                       "an instance answered the change with %d; try again",
                       status);
        return;
    }
    actions_say(result,
                "the price of item %" PRIu64 " was changed to %" PRId64
                ".%02" PRId64 " during a load",
                like.item, like.price_cents / 100, like.price_cents % 100);
    hub_mark(a->stage->hub, "change-price", time_ms, like.item, "%s",
             result->text);
}
