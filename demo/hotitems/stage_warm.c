/* Filling the lanes' caches before there are clients, so that afterwards
 * nothing is loaded unless a button is pressed. The database costs nothing
 * meanwhile. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stage.h"
#include "stage_actions.h"
#include "stage_ask.h"

#define PAGE_MS 10000

/* What fails here is loaded when a client asks for it. */
static void warm_lane(struct stage *stage, enum stage_lane lane)
{
    uint64_t items = stage->options.items;
    uint16_t port = actions_port(stage, lane);

    for (uint64_t first = 1; first <= items && !stage_is_ending(stage);
         first += ASK_ITEMS_MAX) {
        uint64_t left = items - first + 1;
        (void)ask_items(port, "GET", "/items?ids=", first,
                        left < ASK_ITEMS_MAX ? left : ASK_ITEMS_MAX, PAGE_MS);
    }
}

static void *warm(void *user)
{
    struct stage *stage = user;
    char why[STAGE_TEXT_BYTES];
    bool is_good;

    for (int i = 0; i < STAGE_LANES; i++)
        warm_lane(stage, (enum stage_lane)i);
    is_good = database_set_cost(&stage->options, stage->options.db_cost_ms, why,
                                sizeof(why));
    if (!is_good)
        (void)fprintf(stderr, "hotitems-stage: %s\n", why);
    stage_lock(stage);
    stage->is_warm = is_good;
    stage->is_cold = !is_good;
    stage_unlock(stage);
    stage_wake(stage);
    return NULL;
}

bool warm_start(struct stage *stage)
{
    stage->has_warmer = pthread_create(&stage->warmer, NULL, warm, stage) == 0;
    return stage->has_warmer;
}

void warm_stop(struct stage *stage)
{
    if (stage->has_warmer)
        (void)pthread_join(stage->warmer, NULL);
    stage->has_warmer = false;
}
