/*
 * The pace of looks. Pure; its one invariant: the first look is followed by the
 * n-th at least (n - 1/2) * LOOP_MS later, so that there are at most half a
 * look more than of such a loop, on average, however loads vary.
 *
 * Design notes
 *
 * The loads noted are a sample of how long loads take. Given the age of the one
 * that is awaited, those longer than that tell when it may end. Loads that end
 * within a few ms of each other are met by one look behind the last of them: it
 * costs the early ones a few ms, where a look behind each would cost commands.
 * From the shortest on, the load may also end where the sample has a gap.
 *
 * A load that takes longer than all in the sample ends at any time. The looks
 * are then spaced in proportion to how late it is already, from a few ms on, as
 * a back-off with full jitter (M. Brooker, "Exponential Backoff And Jitter",
 * AWS Architecture Blog, 2015). The same holds where nothing is known yet.
 */
#include "flight/pace.h"

#include <stdbool.h>

/* Loads whose ends are met by one look. */
#define TOGETHER_MS 4
/* How far waiters of different processes are spread behind that end. */
#define JITTER_MS 2
/* The first spacing of looks for a load that is late, and the part of its
 * lateness that they grow to. */
#define LATE_MIN_MS 5
#define LATE_PART 4
/* A hand-written lock with SETNX looks this often: we do not look more. */
#define LOOP_MS 10

void shed_pace_note(struct shed_pace *p, uint64_t span_ms)
{
    p->span_ms[p->next] = span_ms;
    p->next = (p->next + 1) % SHED_PACE_LOADS;
    if (p->count < SHED_PACE_LOADS)
        p->count++;
}

/* The shortest span above age_ms. Returns: false if there is none; then
 * *span_ms is the longest of all, 0 without any. */
static bool find_next(const struct shed_pace *p, uint64_t age_ms,
                      uint64_t *span_ms)
{
    uint64_t next = UINT64_MAX, longest = 0;

    for (unsigned i = 0; i < p->count; i++) {
        if (p->span_ms[i] > age_ms && p->span_ms[i] < next)
            next = p->span_ms[i];
        if (p->span_ms[i] > longest)
            longest = p->span_ms[i];
    }
    *span_ms = next < UINT64_MAX ? next : longest;
    return next < UINT64_MAX;
}

/* From what age on a load may end at any time. */
static uint64_t soonest_ms(const struct shed_pace *p)
{
    uint64_t shortest = UINT64_MAX;

    for (unsigned i = 0; i < p->count; i++)
        if (p->span_ms[i] < shortest)
            shortest = p->span_ms[i];
    return shortest;
}

static uint64_t last_together(const struct shed_pace *p, uint64_t span_ms)
{
    uint64_t last = span_ms;

    for (unsigned i = 0; i < p->count; i++)
        if (p->span_ms[i] > last && p->span_ms[i] - span_ms <= TOGETHER_MS)
            last = p->span_ms[i];
    return last;
}

static uint64_t to_likely_end_ms(const struct shed_pace *p, uint64_t span_ms,
                                 uint64_t age_ms, uint64_t random)
{
    uint64_t left = last_together(p, span_ms) - age_ms;

    if (left < SHED_PACE_LONGEST_MS - JITTER_MS)
        return left + 1 + random % JITTER_MS;
    return SHED_PACE_LONGEST_MS - random % (SHED_PACE_LONGEST_MS / 2);
}

/* A wait that is not far too long if the load ends sooner than likely. */
static uint64_t bound_ms(const struct shed_pace *p, uint64_t age_ms)
{
    uint64_t gap = age_ms / LATE_PART;

    if (age_ms < soonest_ms(p))
        return UINT64_MAX;
    return gap < LOOP_MS ? LOOP_MS : gap;
}

static uint64_t late_ms(uint64_t late, uint64_t random)
{
    uint64_t bound = late / LATE_PART;

    if (bound < LATE_MIN_MS)
        bound = LATE_MIN_MS;
    if (bound > SHED_PACE_LONGEST_MS)
        bound = SHED_PACE_LONGEST_MS;
    return 1 + random % bound;
}

uint64_t shed_pace_look_ms(const struct shed_pace *p,
                           const struct shed_pace_wait *wait, uint64_t random)
{
    uint64_t span, delay, earliest = LOOP_MS / 2;
    uint64_t bound = bound_ms(p, wait->age_ms);

    if (find_next(p, wait->age_ms, &span))
        delay = to_likely_end_ms(p, span, wait->age_ms, random);
    else
        delay = late_ms(wait->age_ms - span, random);
    if (delay > bound)
        delay = bound;
    if (wait->looks > 1)
        earliest += (uint64_t)(wait->looks - 1) * LOOP_MS;
    if (wait->waited_ms + delay < earliest)
        delay = earliest - wait->waited_ms;
    return delay;
}
