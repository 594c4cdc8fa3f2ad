/*
 * The breaker. Its invariants: while it is open nothing passes, and while it is
 * half-open no more than rule.probes keys are on their way; a load says
 * something only about the term in which it began.
 *
 * A key whose loads fail again and again counts once: a single broken row must
 * not keep all the others from being loaded.
 */
#include "base/breaker.h"

#include <assert.h>
#include <string.h>

#include "base/backoff.h"

#define PERCENT 100

static void move_to(struct shed_breaker *b, enum shed_breaker_state state,
                    uint64_t now_ms)
{
    if (state == SHED_BREAKER_CLOSED || b->state == SHED_BREAKER_CLOSED)
        b->changed_ms = now_ms;
    b->state = state;
    b->term++;
    b->passed = 0;
    b->successes = 0;
    b->last_failed_id = 0;
    memset(b->slices, 0, sizeof(b->slices));
}

void shed_breaker_init(struct shed_breaker *b,
                       const struct shed_breaker_rule *rule, uint64_t now_ms)
{
    memset(b, 0, sizeof(*b));
    b->rule = *rule;
    move_to(b, SHED_BREAKER_CLOSED, now_ms);
}

enum shed_breaker_state shed_breaker_look(struct shed_breaker *b,
                                          uint64_t now_ms)
{
    if (b->state == SHED_BREAKER_OPEN && now_ms >= b->until_ms)
        move_to(b, SHED_BREAKER_HALF_OPEN, now_ms);
    return b->state;
}

bool shed_breaker_pass(struct shed_breaker *b, uint64_t now_ms)
{
    switch (shed_breaker_look(b, now_ms)) {
    case SHED_BREAKER_CLOSED:
        return true;
    case SHED_BREAKER_HALF_OPEN:
        if (b->passed >= b->rule.probes)
            return false;
        b->passed++;
        return true;
    case SHED_BREAKER_OPEN:
        break;
    }
    return false;
}

void shed_breaker_return(struct shed_breaker *b, uint64_t keys)
{
    if (b->state != SHED_BREAKER_HALF_OPEN)
        return;
    assert(b->passed >= keys);
    b->passed -= keys;
}

static void open_it(struct shed_breaker *b, uint64_t now_ms, uint64_t random)
{
    move_to(b, SHED_BREAKER_OPEN, now_ms);
    b->until_ms = now_ms + shed_backoff_equal_ms(b->opened++, b->rule.open_ms,
                                                 b->rule.open_max_ms, random);
}

/* --------------------------------------------------------------- the window */

/* Forget what has slid out of the window. */
static void slide(struct shed_breaker *b, uint64_t now_ms)
{
    uint64_t width_ms = b->rule.window_ms / SHED_BREAKER_SLICES;
    uint64_t slice = now_ms / (width_ms > 0 ? width_ms : 1);

    if (slice - b->slice >= SHED_BREAKER_SLICES)
        memset(b->slices, 0, sizeof(b->slices));
    else
        for (uint64_t i = b->slice + 1; i <= slice; i++)
            b->slices[i % SHED_BREAKER_SLICES] =
                (struct shed_breaker_slice){0, 0};
    b->slice = slice;
}

static bool is_too_much(const struct shed_breaker *b)
{
    uint64_t loads = 0, failures = 0;

    for (size_t i = 0; i < SHED_BREAKER_SLICES; i++) {
        loads += b->slices[i].loads;
        failures += b->slices[i].failures;
    }
    return loads >= b->rule.min_loads &&
           failures * PERCENT >= loads * b->rule.failure_pct;
}

/* Whether it opened. */
static bool count(struct shed_breaker *b,
                  const struct shed_breaker_sample *sample, uint64_t now_ms,
                  uint64_t random)
{
    struct shed_breaker_slice *slice;

    if (sample->has_failed && sample->id != 0 &&
        sample->id == b->last_failed_id)
        return false;
    slide(b, now_ms);
    slice = &b->slices[b->slice % SHED_BREAKER_SLICES];
    slice->loads++;
    if (!sample->has_failed)
        return false;
    slice->failures++;
    b->last_failed_id = sample->id;
    if (!is_too_much(b))
        return false;
    open_it(b, now_ms, random);
    return true;
}

/* Whether it opened or closed. */
static bool try_again(struct shed_breaker *b,
                      const struct shed_breaker_sample *sample, uint64_t now_ms,
                      uint64_t random)
{
    shed_breaker_return(b, sample->keys);
    if (sample->has_failed) {
        open_it(b, now_ms, random);
        return true;
    }
    if (++b->successes < b->rule.probes)
        return false;
    b->opened = 0;
    move_to(b, SHED_BREAKER_CLOSED, now_ms);
    return true;
}

bool shed_breaker_add(struct shed_breaker *b,
                      const struct shed_breaker_sample *sample, uint64_t now_ms,
                      uint64_t random)
{
    if (b->rule.failure_pct == 0 || sample->term != b->term)
        return false;
    if (b->state == SHED_BREAKER_CLOSED)
        return count(b, sample, now_ms, random);
    assert(b->state == SHED_BREAKER_HALF_OPEN);
    return try_again(b, sample, now_ms, random);
}
