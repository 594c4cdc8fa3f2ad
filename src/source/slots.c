/*
 * A source's slots. Its invariant: as far as Redis answers, each load under way
 * has a slot that Redis was asked for, with an answer, before the load began.
 *
 * Design notes
 *
 * The slots of a source last as long as a load may take, from each exchange on.
 * So the queries of a process that has died are counted until the server has
 * ended them, and for a query that takes longer, because it is still alive in
 * the server, the slots are prolonged after half of their life.
 *
 * A source that gives a slot back would always be the first to take it again.
 * So while others wait it asks at a random time, as they do, at intervals by
 * which about four asks come to each slot that is given back.
 */
#include "source/slots.h"

#include <assert.h>

#define US_PER_MS 1000
/* The longest interval between asks that are refused. */
#define ASK_MAX_MS 100
#define ASKS_PER_SLOT 4
/* While Redis is away it is asked this seldom, with jitter down to half. */
#define AWAY_MS 1000
/* Before any load has ended. */
#define LOAD_US 10000
#define AVERAGED 8 /* loads */

void shed_slots_init(struct shed_slots *s, size_t budget, uint64_t life_ms)
{
    *s = (struct shed_slots){.budget = budget,
                             .life_ms = life_ms,
                             .is_away = true,
                             .load_us = LOAD_US};
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

void shed_slots_end(struct shed_slots *s, uint64_t cost_us)
{
    assert(s->busy > 0);
    s->load_us += cost_us / AVERAGED;
    s->load_us -= s->load_us / (AVERAGED + 1);
    s->busy--;
}

bool shed_slots_is_idle(const struct shed_slots *s)
{
    return s->busy + s->ready == 0 && s->held == 0 && !s->is_refused;
}

/* ----------------------------------------------------------- the exchanges */

/* When all slots are to be prolonged. */
static uint64_t keep_ms(const struct shed_slots *s)
{
    return s->heard_ms + s->life_ms / 2;
}

/* What could be sent now. */
static struct shed_slots_exchange prepare(const struct shed_slots *s,
                                          uint64_t now_ms)
{
    size_t keep = s->busy + s->ready;
    struct shed_slots_exchange x = {
        .keep = keep,
        .want = keep,
        /* at first as long as a slot lasts: the slots from before that are
           over */
        .passed_ms = s->heard_ms > 0 ? now_ms - s->heard_ms : s->life_ms};

    /* slots that are given back are left to processes that wait */
    if (!s->is_away && s->ask_ms <= now_ms &&
        (s->held == keep || s->others == 0))
        x.want = s->busy + s->wanted;
    return x;
}

/* Whether it is to be sent now. The first one opens the connection before any
 * load. While Redis is away one shows whether it is back; where Redis takes
 * this source to wait, that it no longer does. */
static bool is_due(const struct shed_slots *s,
                   const struct shed_slots_exchange *x, uint64_t now_ms)
{
    if (s->is_away)
        return s->ask_ms <= now_ms;
    return s->heard_ms == 0 || s->held != x->keep || x->want > x->keep ||
           (s->is_refused && s->wanted <= s->ready) ||
           (x->keep > 0 && keep_ms(s) <= now_ms);
}

bool shed_slots_next(struct shed_slots *s, uint64_t now_ms,
                     struct shed_slots_exchange *out, uint64_t *delay_ms)
{
    uint64_t next_ms = UINT64_MAX;

    *delay_ms = UINT64_MAX;
    if (s->is_asking)
        return false;
    if (s->ready > s->wanted)
        s->ready = s->wanted;
    *out = prepare(s, now_ms);
    if (is_due(s, out, now_ms)) {
        s->is_asking = true;
        s->asked = *out;
        s->asked_ms = now_ms;
        return true;
    }
    if (!s->is_away && out->keep > 0)
        next_ms = keep_ms(s);
    if (now_ms < s->ask_ms && s->ask_ms < next_ms)
        next_ms = s->ask_ms;
    if (next_ms != UINT64_MAX)
        *delay_ms = next_ms - now_ms;
    return false;
}

/* ------------------------------------------------------------- the answers */

static uint64_t pause_ms(const struct shed_slots *s, uint64_t random)
{
    uint64_t ms = s->load_us / US_PER_MS * (s->others + s->is_refused) /
                  (ASKS_PER_SLOT * s->budget);

    if (ms < SHED_SLOTS_ASK_MIN_MS)
        ms = SHED_SLOTS_ASK_MIN_MS;
    if (ms > ASK_MAX_MS)
        ms = ASK_MAX_MS;
    return ms + random % ms;
}

/* Redis has counted so many. Loads that have begun meanwhile without a slot
 * take theirs. */
static void settle(struct shed_slots *s, size_t slots)
{
    s->ready += slots - s->asked.keep;
    s->held = slots;
    if (s->busy + s->ready > slots)
        s->ready = s->busy < slots ? slots - s->busy : 0;
    s->is_refused = slots < s->asked.want;
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
        s->held = SIZE_MAX;
        s->is_refused = false;
        s->ask_ms = now_ms + AWAY_MS / 2 + random % (AWAY_MS / 2);
        return;
    }
    settle(s, answer->slots);
    s->heard_ms = s->asked_ms;
    s->in_use = answer->in_use;
    s->others = answer->others;
    if (s->is_refused && s->refused_us == 0 && s->wanted > s->ready)
        s->refused_us = now_us;
    if (s->ask_ms <= now_ms && (s->is_refused || s->others > 0))
        s->ask_ms = now_ms + pause_ms(s, random);
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
