/*
 * The breaker. Its invariants: while it is open nothing passes, and while it is
 * half-open no more than SHED_BREAKER_PROBES passes are in use; a call says
 * something only about the term in which it began.
 *
 * What fails again and again under one id counts once: a single broken row must
 * not keep all the others from being loaded.
 */
#include "base/breaker.h"

#include <assert.h>
#include <string.h>

#include "base/backoff.h"
#include "base/clock.h"
#include "base/error.h"

#define PERCENT 100

/* The ranges that snowshed.h states. */
#define MIN_CALLS_MAX 1000000
#define WINDOW_MIN_MS 100
#define WINDOW_MAX_MS 600000
#define OPEN_MAX_MS 3600000
#define SLOW_MAX_MS 600000

static void move_to(struct shed_breaker *b, enum shed_breaker_state state,
                    uint64_t now_ms)
{
    if (state == SHED_BREAKER_CLOSED || b->state == SHED_BREAKER_CLOSED)
        b->changed_ms = now_ms;
    b->state = state;
    b->term++;
    b->passed = 0;
    b->successes = 0;
    b->waited_ms = 0;
    b->last_failed_id = 0;
    memset(b->slices, 0, sizeof(b->slices));
}

enum shed_code shed_breaker_check(const struct shed_breaker_options *o,
                                  struct shed_error *err)
{
    const struct shed_range ranges[] = {
        {o->failure_pct, 0, PERCENT, "breaker.failure_pct"},
        {o->min_calls, 1, MIN_CALLS_MAX, "breaker.min_calls"},
        {o->window_ms, WINDOW_MIN_MS, WINDOW_MAX_MS, "breaker.window_ms"},
        {o->open_ms, 1, OPEN_MAX_MS, "breaker.open_ms"},
        {o->slow_ms, 0, SLOW_MAX_MS, "breaker.slow_ms"},
    };

    return shed_check_ranges(ranges, sizeof(ranges) / sizeof(*ranges), err);
}

void shed_breaker_init(struct shed_breaker *b,
                       const struct shed_breaker_options *rule,
                       uint64_t patience_ms, uint64_t now_ms)
{
    memset(b, 0, sizeof(*b));
    b->rule = *rule;
    b->patience_ms = patience_ms;
    move_to(b, SHED_BREAKER_CLOSED, now_ms);
}

enum shed_breaker_state shed_breaker_look(struct shed_breaker *b,
                                          uint64_t now_ms)
{
    if (b->state == SHED_BREAKER_OPEN && now_ms >= b->until_ms)
        move_to(b, SHED_BREAKER_HALF_OPEN, now_ms);
    return b->state;
}

struct shed_breaker_status shed_breaker_read(struct shed_breaker *b,
                                             uint64_t now_ms)
{
    enum shed_breaker_state state = shed_breaker_look(b, now_ms);
    bool is_open = state == SHED_BREAKER_OPEN;

    return (struct shed_breaker_status){
        .state = state,
        .openings = b->openings,
        .left_ms = is_open ? shed_left_ms(b->until_ms, now_ms) : 0};
}

bool shed_breaker_has_pass(struct shed_breaker *b, uint64_t now_ms)
{
    enum shed_breaker_state state = shed_breaker_look(b, now_ms);

    return state == SHED_BREAKER_CLOSED ||
           (state == SHED_BREAKER_HALF_OPEN && b->passed < SHED_BREAKER_PROBES);
}

bool shed_breaker_pass(struct shed_breaker *b, uint64_t now_ms)
{
    if (!shed_breaker_has_pass(b, now_ms))
        return false;
    if (b->state == SHED_BREAKER_HALF_OPEN)
        b->passed++;
    return true;
}

void shed_breaker_return(struct shed_breaker *b, uint64_t passes)
{
    if (b->state != SHED_BREAKER_HALF_OPEN)
        return;
    assert(b->passed >= passes);
    b->passed -= passes;
}

static void open_it(struct shed_breaker *b, uint64_t now_ms, uint64_t random)
{
    move_to(b, SHED_BREAKER_OPEN, now_ms);
    b->openings++;
    b->until_ms = now_ms + shed_backoff_equal_ms(b->opened++, b->rule.open_ms,
                                                 SHED_BREAKER_OPEN_FACTOR *
                                                     b->rule.open_ms,
                                                 random);
}

/* --------------------------------------------------------------- the window */

static uint64_t width_ms(const struct shed_breaker *b)
{
    uint64_t width = b->rule.window_ms / SHED_BREAKER_SLICES;

    return width > 0 ? width : 1;
}

uint64_t shed_breaker_slice_end_ms(const struct shed_breaker *b,
                                   uint64_t now_ms)
{
    return (now_ms / width_ms(b) + 1) * width_ms(b);
}

/* Forget what has slid out of the window. Returns: the present slice. */
static struct shed_breaker_slice *slide(struct shed_breaker *b, uint64_t now_ms)
{
    uint64_t slice = now_ms / width_ms(b);

    for (size_t i = 0; i < SHED_BREAKER_SLICES && b->slice < slice; i++)
        b->slices[++b->slice % SHED_BREAKER_SLICES] =
            (struct shed_breaker_slice){0, 0};
    b->slice = slice;
    return &b->slices[slice % SHED_BREAKER_SLICES];
}

static bool is_too_much(const struct shed_breaker *b)
{
    uint64_t calls = 0, failures = 0;

    for (size_t i = 0; i < SHED_BREAKER_SLICES; i++) {
        calls += b->slices[i].calls;
        failures += b->slices[i].failures;
    }
    return calls >= b->rule.min_calls &&
           failures * PERCENT >= calls * b->rule.failure_pct;
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
    slice = slide(b, now_ms);
    slice->calls++;
    if (!sample->has_failed) {
        b->waited_ms = 0;
        return false;
    }
    slice->failures++;
    b->last_failed_id = sample->id;
    if (!is_too_much(b))
        return false;
    open_it(b, now_ms, random);
    return true;
}

/* Of the time that a call has waited until now_ms, what no other has. */
static uint64_t alone_ms(const struct shed_breaker *b, uint64_t waited_ms,
                         uint64_t now_ms)
{
    uint64_t since_ms = now_ms - b->waited_until_ms;

    return waited_ms < since_ms ? waited_ms : since_ms;
}

bool shed_breaker_give_up(struct shed_breaker *b, uint64_t waited_ms,
                          uint64_t now_ms, uint64_t random)
{
    const struct shed_breaker_sample failure = {.has_failed = true};
    bool is_closed = b->state == SHED_BREAKER_CLOSED;
    uint64_t enough_ms = b->patience_ms * (is_closed ? 1 : SHED_BREAKER_PROBES);

    assert(b->state != SHED_BREAKER_OPEN);
    shed_breaker_return(b, 1);
    b->waited_ms += is_closed ? alone_ms(b, waited_ms, now_ms) : waited_ms;
    b->waited_until_ms = now_ms;
    if (b->rule.failure_pct == 0 || enough_ms == 0 || b->waited_ms < enough_ms)
        return false;
    if (is_closed)
        return count(b, &failure, now_ms, random);
    open_it(b, now_ms, random);
    return true;
}

/* Whether it opened or closed. */
static bool try_again(struct shed_breaker *b,
                      const struct shed_breaker_sample *sample, uint64_t now_ms,
                      uint64_t random)
{
    shed_breaker_return(b, sample->passes);
    if (sample->has_failed) {
        open_it(b, now_ms, random);
        return true;
    }
    b->waited_ms = 0;
    if (++b->successes < SHED_BREAKER_PROBES)
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

void shed_breaker_add_successes(struct shed_breaker *b, uint64_t term,
                                uint64_t count, uint64_t now_ms)
{
    if (term != b->term || b->state != SHED_BREAKER_CLOSED)
        return;
    slide(b, now_ms)->calls += count;
    b->waited_ms = 0;
}
