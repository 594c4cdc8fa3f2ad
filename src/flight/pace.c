/*
 * The pace of looks. Pure; its one invariant: the first look is followed by the
 * n-th at least (n - 1/2) * LOOP_MS later, so that there are at most half a
 * look more than of such a loop, on average, however loads vary.
 *
 * Design notes
 *
 * How long loads take is estimated as TCP estimates a round trip: by the moving
 * averages of their spans and of how far these deviate (V. Jacobson,
 * "Congestion Avoidance and Control", SIGCOMM 1988). Where spans differ little,
 * one look comes behind almost all of them. Where they differ much, looks begin
 * with the short ones.
 *
 * From then on the load may end at any time. The looks are spaced in proportion
 * to how late it is already, as a back-off with full jitter (M. Brooker,
 * "Exponential Backoff And Jitter", AWS Architecture Blog, 2015). The same
 * holds where nothing is known yet.
 */
#include "flight/pace.h"

#include <math.h>

/* The weights of one more load in the averages, and how many deviations from
 * the mean almost all loads are: those of TCP, or close to them. */
#define MEAN_GAIN (1.0 / 8)
#define DEVIATION_GAIN (1.0 / 4)
#define DEVIATIONS 2
/* How far waiters of different processes are spread behind a likely end. */
#define JITTER_MS 2
/* Looks for a load that is late are spaced by this part of its lateness. */
#define LATE_PART 4
/* A hand-written lock with SETNX looks this often: we do not look more. */
#define LOOP_MS 10
/* No load takes as long; a number that converts. */
#define SPAN_MAX_MS 1e15

void shed_pace_note(struct shed_pace *p, uint64_t span_ms)
{
    double span = fmin((double)span_ms, SPAN_MAX_MS);
    double error = p->is_known ? span - p->mean_ms : 0;

    if (!p->is_known)
        p->mean_ms = span;
    p->is_known = true;
    p->mean_ms += MEAN_GAIN * error;
    p->deviation_ms += DEVIATION_GAIN * (fabs(error) - p->deviation_ms);
}

/* The age of a load at which a look for its end is worth while. */
static uint64_t likely_end_ms(const struct shed_pace *p)
{
    double spread = DEVIATIONS * p->deviation_ms;

    if (2 * spread <= LOOP_MS)
        return (uint64_t)(p->mean_ms + spread);
    return (uint64_t)fmax(0, p->mean_ms - spread);
}

uint64_t shed_pace_look_ms(const struct shed_pace *p,
                           const struct shed_pace_wait *wait, uint64_t random)
{
    uint64_t end = likely_end_ms(p), earliest = LOOP_MS / 2, delay, bound;

    if (wait->age_ms < end) {
        delay = end - wait->age_ms + 1 + random % JITTER_MS;
        if (delay > SHED_PACE_LONGEST_MS)
            delay = SHED_PACE_LONGEST_MS - random % (SHED_PACE_LONGEST_MS / 2);
    } else {
        bound = (wait->age_ms - end) / LATE_PART;
        if (bound < LOOP_MS)
            bound = LOOP_MS;
        if (bound > SHED_PACE_LONGEST_MS)
            bound = SHED_PACE_LONGEST_MS;
        delay = bound - random % (bound / 2 + 1);
    }
    if (wait->looks > 1)
        earliest += (uint64_t)(wait->looks - 1) * LOOP_MS;
    if (wait->waited_ms + delay < earliest)
        delay = earliest - wait->waited_ms;
    return delay;
}
