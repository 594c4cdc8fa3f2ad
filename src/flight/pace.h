/*
 * When a waiter that hears of no change looks again: what it knows of how long
 * loads take. Pure.
 *
 * A cache's loads are much alike, so the last ones foretell the next: the first
 * look comes when the load under way is likely to end, and others follow it. A
 * waiter looks no more often than a loop that looks every 10 ms does, give or
 * take one look.
 */
#ifndef SHED_PACE_H
#define SHED_PACE_H

#include <stdbool.h>
#include <stdint.h>

/* The longest time between two looks, so that a failure, and a holder that has
 * died, is noticed long before a slow load would have ended. */
#define SHED_PACE_LONGEST_MS 100

/* How long loads take. One thread only. Begins as zero. */
struct shed_pace {
    bool is_known;
    double mean_ms, deviation_ms; /* moving averages */
};

/* Note a load that ended well: span_ms is from the lease to its publish. */
void shed_pace_note(struct shed_pace *pace, uint64_t span_ms);

struct shed_pace_wait {
    uint64_t age_ms;    /* of the lease */
    uint64_t waited_ms; /* since the waiter's first look */
    unsigned looks;     /* since then, the first one included */
};

/* How long to wait before the next look, in [1, SHED_PACE_LONGEST_MS] unless
 * the looks so far came faster than every 10 ms. random is any 64 bits. */
uint64_t shed_pace_look_ms(const struct shed_pace *pace,
                           const struct shed_pace_wait *wait, uint64_t random);

#endif
