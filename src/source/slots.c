/*
 * A source's slots. Its invariant: as far as Redis answers, each load under way
 * has a slot that Redis was asked for, with an answer, before the load began.
 *
 * Design notes
 *
 * A slot lasts as long as a load may take, so that the queries of a process
 * that has died are counted until the server has ended them. A load that takes
 * longer, because its query is still alive in the server, keeps its slot: half
 * of a slot's life before its end it is prolonged.
 *
 * When an exchange has failed, nobody knows whether Redis carried it out. What
 * it was to take is given back then by the next one, and what it was to give
 * back is given back again.
 */
#include "source/slots.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#define US_PER_MS 1000
/* The longest interval between asks that are refused. The script counts those
 * as waiting that have asked within 300 ms. */
#define ASK_MAX_MS 100
#define ASKS_PER_SLOT 4
/* While Redis is away it is asked this seldom, with jitter down to half. */
#define AWAY_MS 1000
/* Before any load has ended. */
#define LOAD_US 10000
#define AVERAGED 8 /* loads */

void shed_slots_init(struct shed_slots *s, size_t budget, uint64_t life_ms,
                     uint64_t name, struct shed_slot *at, size_t capacity)
{
    *s = (struct shed_slots){.budget = budget,
                             .life_ms = life_ms,
                             .at = at,
                             .capacity = capacity,
                             .is_away = true,
                             .load_us = LOAD_US};
    (void)snprintf(s->name, sizeof(s->name), "%016llx",
                   (unsigned long long)name);
}

/* ------------------------------------------------------------------- loads */

static size_t find(const struct shed_slots *s, enum shed_slot_state state)
{
    for (size_t i = 0; i < s->capacity; i++)
        if (s->at[i].state == state)
            return i;
    return SHED_SLOTS_NONE;
}

/* Make a free element a slot. Returns: SHED_SLOTS_NONE if there is none. */
static size_t make(struct shed_slots *s, enum shed_slot_state state)
{
    size_t i = find(s, SHED_SLOT_FREE);

    if (i != SHED_SLOTS_NONE)
        s->at[i] = (struct shed_slot){.state = state, .number = ++s->last};
    return i;
}

void shed_slots_want(struct shed_slots *s, size_t wanted)
{
    s->wanted = wanted;
    if (wanted == 0)
        s->refused_us = 0;
}

bool shed_slots_may_begin(const struct shed_slots *s)
{
    return s->is_away || s->ready > 0;
}

size_t shed_slots_begin(struct shed_slots *s, uint64_t now_us,
                        uint64_t *waited_us)
{
    size_t i;

    *waited_us = s->refused_us > 0 ? now_us - s->refused_us : 0;
    s->refused_us = s->is_refused && s->wanted > 1 ? now_us : 0;
    if (s->ready == 0)
        return make(s, SHED_SLOT_BUSY);
    i = find(s, SHED_SLOT_READY);
    s->at[i].state = SHED_SLOT_BUSY;
    s->ready--;
    return i;
}

/* Give a slot back, if Redis may have it. */
static void leave(struct shed_slot *slot)
{
    slot->state = slot->sent_ms > 0 ? SHED_SLOT_LEAVING : SHED_SLOT_FREE;
}

void shed_slots_end(struct shed_slots *s, size_t slot, uint64_t cost_us)
{
    s->load_us += cost_us / AVERAGED;
    s->load_us -= s->load_us / (AVERAGED + 1);
    if (slot != SHED_SLOTS_NONE)
        leave(&s->at[slot]);
}

bool shed_slots_is_idle(const struct shed_slots *s)
{
    for (size_t i = 0; i < s->capacity; i++)
        if (s->at[i].state != SHED_SLOT_FREE)
            return false;
    return true;
}

/* ----------------------------------------------------------- the exchanges */

static void add_id(const struct shed_slots *s, const struct shed_slot *slot,
                   char *list, size_t *count)
{
    (void)snprintf(list + *count * SHED_SLOTS_ID_BYTES, SHED_SLOTS_ID_BYTES + 1,
                   "%s%08lx", s->name, (unsigned long)slot->number);
    (*count)++;
}

/* One that nobody needs any longer, or that has ended. */
static void drop_surplus(struct shed_slots *s, struct shed_slot *slot,
                         uint64_t now_ms)
{
    if (slot->state == SHED_SLOT_READY && s->ready > s->wanted) {
        leave(slot);
        s->ready--;
    }
    if (slot->state == SHED_SLOT_LEAVING && !slot->is_kept &&
        slot->sent_ms <= now_ms)
        slot->state = SHED_SLOT_FREE;
}

/* When a slot is to be prolonged. */
static uint64_t keep_ms(const struct shed_slots *s,
                        const struct shed_slot *slot)
{
    return slot->until_ms > s->life_ms / 2 ? slot->until_ms - s->life_ms / 2
                                           : 0;
}

/* Give one back, or prolong it, if it is time for that; *next_ms is then. */
static void add_one(struct shed_slots *s, struct shed_slot *slot,
                    uint64_t now_ms, struct shed_slots_exchange *x,
                    uint64_t *next_ms)
{
    if (slot->state == SHED_SLOT_LEAVING) {
        if (x->give_count == SHED_SLOTS_EXCHANGE_MAX)
            return;
        slot->state = SHED_SLOT_GIVEN;
        add_id(s, slot, x->give, &x->give_count);
    } else if (slot->state == SHED_SLOT_BUSY ||
               slot->state == SHED_SLOT_READY) {
        if (keep_ms(s, slot) > now_ms ||
            x->keep_count == SHED_SLOTS_EXCHANGE_MAX) {
            if (keep_ms(s, slot) < *next_ms)
                *next_ms = keep_ms(s, slot);
            return;
        }
        slot->is_kept = true;
        slot->sent_ms = now_ms + s->life_ms;
        add_id(s, slot, x->keep, &x->keep_count);
    }
}

/* While Redis is away loads begin anyway, and are added when it is back. */
static void add_taken(struct shed_slots *s, uint64_t now_ms,
                      struct shed_slots_exchange *x)
{
    while (!s->is_away && s->ready + x->take_count < s->wanted &&
           x->take_count < SHED_SLOTS_EXCHANGE_MAX) {
        size_t i = make(s, SHED_SLOT_ASKED);
        if (i == SHED_SLOTS_NONE)
            return;
        s->at[i].sent_ms = now_ms + s->life_ms;
        add_id(s, &s->at[i], x->take, &x->take_count);
    }
}

bool shed_slots_next(struct shed_slots *s, uint64_t now_ms,
                     struct shed_slots_exchange *x, uint64_t *delay_ms)
{
    uint64_t next_ms = UINT64_MAX;
    bool may_ask = s->ask_ms <= now_ms;

    /* at first as long as a slot lasts: the slots from before that are over */
    *x = (struct shed_slots_exchange){
        .passed_ms = s->heard_ms > 0 ? now_ms - s->heard_ms : s->life_ms};
    *delay_ms = UINT64_MAX;
    if (s->is_asking)
        return false;
    for (size_t i = 0; i < s->capacity; i++) {
        drop_surplus(s, &s->at[i], now_ms);
        if (may_ask || !s->is_away)
            add_one(s, &s->at[i], now_ms, x, &next_ms);
    }
    /* what is given back is for those that wait */
    if (may_ask && (x->give_count == 0 || s->others == 0))
        add_taken(s, now_ms, x);
    /* while Redis is away, with nothing too: to see whether it is back */
    s->is_asking = x->give_count + x->keep_count + x->take_count > 0 ||
                   (s->is_away && may_ask);
    if (s->is_asking)
        s->asked_ms = now_ms;
    else if (!may_ask && s->ask_ms < next_ms)
        next_ms = s->ask_ms;
    if (!s->is_asking && next_ms != UINT64_MAX)
        *delay_ms = next_ms > now_ms ? next_ms - now_ms : 0;
    return s->is_asking;
}

/* ------------------------------------------------------------- the answers */

/* Returns: how many were to be taken. */
static size_t settle(struct shed_slots *s,
                     const struct shed_slots_answer *answer)
{
    size_t asked = 0;

    for (size_t i = 0; i < s->capacity; i++) {
        struct shed_slot *slot = &s->at[i];
        bool is_asked = slot->state == SHED_SLOT_ASKED;
        bool is_taken = is_asked && answer != NULL && asked < answer->taken;
        if (answer != NULL && (slot->is_kept || is_taken))
            slot->until_ms = slot->sent_ms;
        slot->is_kept = false;
        asked += is_asked;
        if (is_taken) {
            slot->state = SHED_SLOT_READY;
            s->ready++;
        } else if (is_asked || slot->state == SHED_SLOT_GIVEN) {
            slot->state = answer != NULL ? SHED_SLOT_FREE : SHED_SLOT_LEAVING;
        }
    }
    return asked;
}

/* The interval of all that wait together follows how often slots become free.
 */
static uint64_t pause_ms(const struct shed_slots *s, size_t waiting,
                         uint64_t random)
{
    uint64_t ms = s->load_us / US_PER_MS * (waiting > 0 ? waiting : 1) /
                  (ASKS_PER_SLOT * s->budget);

    if (ms < SHED_SLOTS_ASK_MIN_MS)
        ms = SHED_SLOTS_ASK_MIN_MS;
    if (ms > ASK_MAX_MS)
        ms = ASK_MAX_MS;
    return ms + random % ms;
}

void shed_slots_settle(struct shed_slots *s,
                       const struct shed_slots_answer *answer, uint64_t now_us,
                       uint64_t random)
{
    uint64_t now_ms = now_us / US_PER_MS;
    size_t asked = settle(s, answer);

    assert(s->is_asking);
    s->is_asking = false;
    s->is_away = answer == NULL;
    if (answer == NULL) {
        s->is_refused = false;
        s->ask_ms = now_ms + AWAY_MS / 2 + random % (AWAY_MS / 2);
        return;
    }
    s->heard_ms = s->asked_ms;
    s->in_use = answer->in_use;
    if (asked > 0)
        s->is_refused = answer->taken < asked;
    s->others = answer->waiting;
    if (s->is_refused && s->others > 0)
        s->others--; /* this one */
    if (s->is_refused && s->refused_us == 0 && s->wanted > s->ready)
        s->refused_us = now_us;
    if (s->ask_ms <= now_ms && (s->is_refused || s->others > 0))
        s->ask_ms = now_ms + pause_ms(s, answer->waiting, random);
}

void shed_slots_attach(struct shed_slots *s)
{
    s->is_away = false;
    s->ask_ms = 0;
}

void shed_slots_go_without(struct shed_slots *s)
{
    s->is_away = true;
}
