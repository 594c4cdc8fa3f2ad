/*
 * A source's slots. Its invariant: as far as Redis answers, each load under way
 * has a slot that Redis was asked for, with an answer, before the load began.
 *
 * Design notes
 *
 * A slot lasts as long as a load may take, so that the queries of a process
 * that has died are counted until the server has ended them. A load takes the
 * place of no slot in particular: the newest slots are at least as new as the
 * newest loads, so it is the oldest one that leaves. A load that takes longer,
 * because its query is still alive in the server, keeps a slot: after half of a
 * slot's life all are prolonged.
 *
 * When an exchange has failed, nobody knows whether Redis carried it out. The
 * next one says of all numbers that Redis may have whether it is to have them.
 */
#include "source/slots.h"

#include <assert.h>
#include <stdio.h>

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
                     uint64_t name)
{
    *s = (struct shed_slots){.budget = budget,
                             .life_ms = life_ms,
                             .is_away = true,
                             .load_us = LOAD_US};
    (void)snprintf(s->name, sizeof(s->name), "%016llx",
                   (unsigned long long)name);
}

/* ------------------------------------------------------------------- loads */

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

uint64_t shed_slots_begin(struct shed_slots *s, uint64_t now_us)
{
    uint64_t waited_us = s->refused_us > 0 ? now_us - s->refused_us : 0;

    s->refused_us = s->is_refused && s->wanted > 1 ? now_us : 0;
    s->busy++;
    if (s->ready > 0)
        s->ready--;
    return waited_us;
}

/* One less is needed: the first one. While Redis is away the numbers stay where
 * they are, so that they are few however long that is. */
static void leave(struct shed_slots *s)
{
    if (!s->is_away)
        s->first++;
}

void shed_slots_end(struct shed_slots *s, uint64_t cost_us)
{
    assert(s->busy > 0);
    s->load_us += cost_us / AVERAGED;
    s->load_us -= s->load_us / (AVERAGED + 1);
    s->busy--;
    leave(s);
}

bool shed_slots_is_idle(const struct shed_slots *s)
{
    return s->busy + s->ready == 0 && s->in_redis[0] == s->in_redis[1];
}

/* ----------------------------------------------------------- the exchanges */

static uint64_t end_of(const struct shed_slots *s)
{
    return s->first + s->busy + s->ready;
}

/* What could be sent now. Where Redis may have other slots than it should, all
 * slots are given back, and the needed ones are taken whatever the budget is.
 */
static struct shed_slots_exchange prepare(const struct shed_slots *s,
                                          uint64_t now_ms, bool may_ask)
{
    uint64_t end = end_of(s);
    bool is_known = !s->is_away && end == s->in_redis[1];
    bool is_due = !is_known || now_ms >= s->keep_ms;
    struct shed_slots_exchange x = {
        .give = {s->in_redis[0], is_known ? s->first : s->in_redis[1]},
        .keep = {is_due ? s->first : end, end},
        /* at first as long as a slot lasts: the slots from before that are
           over */
        .passed_ms = s->heard_ms > 0 ? now_ms - s->heard_ms : s->life_ms};

    /* slots that are given back are left to processes that wait */
    if (may_ask && !s->is_away && s->wanted > s->ready &&
        (x.give[0] == x.give[1] || s->others == 0))
        x.take = s->wanted - s->ready;
    return x;
}

bool shed_slots_next(struct shed_slots *s, uint64_t now_ms,
                     struct shed_slots_exchange *out, uint64_t *delay_ms)
{
    uint64_t next_ms = UINT64_MAX;
    bool may_ask = s->ask_ms <= now_ms;
    struct shed_slots_exchange x;

    *delay_ms = UINT64_MAX;
    if (s->is_asking)
        return false;
    for (; s->ready > s->wanted; s->ready--)
        leave(s);
    x = prepare(s, now_ms, may_ask);
    /* while Redis is away, with nothing too: to see whether it is back */
    s->is_asking = s->is_away ? may_ask
                              : x.give[0] < x.give[1] ||
                                    x.keep[0] < x.keep[1] || x.take > 0;
    if (s->is_asking) {
        *out = s->asked = x;
        s->asked_first = s->first;
        s->asked_ms = now_ms;
        if (x.keep[1] + x.take > s->in_redis[1])
            s->in_redis[1] = x.keep[1] + x.take;
        return true;
    }
    if (!s->is_away && s->busy + s->ready > 0)
        next_ms = s->keep_ms;
    if (!may_ask && s->ask_ms < next_ms)
        next_ms = s->ask_ms;
    if (next_ms != UINT64_MAX)
        *delay_ms = next_ms - now_ms;
    return false;
}

/* ------------------------------------------------------------- the answers */

/* Redis has exactly what it was asked for. */
static void settle(struct shed_slots *s, size_t taken)
{
    const struct shed_slots_exchange *x = &s->asked;

    if (taken > x->take)
        taken = x->take;
    if (x->keep[0] == s->asked_first)
        s->keep_ms = s->asked_ms + s->life_ms / 2;
    s->ready += taken;
    s->in_redis[0] = s->asked_first;
    s->in_redis[1] = x->keep[1] + taken;
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

    assert(s->is_asking);
    s->is_asking = false;
    s->is_away = answer == NULL;
    if (answer == NULL) {
        s->is_refused = false;
        s->ask_ms = now_ms + AWAY_MS / 2 + random % (AWAY_MS / 2);
        return;
    }
    settle(s, answer->taken);
    s->heard_ms = s->asked_ms;
    s->in_use = answer->in_use;
    if (s->asked.take > 0)
        s->is_refused = answer->taken < s->asked.take;
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
    s->keep_ms = 0; /* Redis may lack slots that it was asked for in vain */
}

void shed_slots_go_without(struct shed_slots *s)
{
    s->is_away = true;
}
