/*
 * When something was wrong: faults that calls can feel, and times when this
 * machine stood still. What overlaps one may be late by its length.
 *
 * Time is an argument. All functions may be called by any process; one that is
 * killed in soak_trouble_begin leaves a trouble without an end.
 */
#ifndef SOAK_TROUBLE_H
#define SOAK_TROUBLE_H

#include <stdatomic.h>
#include <stdint.h>

/* Four of them a second, at most, for longer than anything is judged for. */
enum { SOAK_TROUBLES = 256 };

struct soak_troubles {
    /* Set at the beginning. For how long after its end a trouble counts:
     * connections come back meanwhile. */
    uint64_t after_ms;
    atomic_uint count; /* ever; the newest are remembered */
    _Atomic uint64_t begun_ms[SOAK_TROUBLES];
    _Atomic uint64_t ended_ms[SOAK_TROUBLES]; /* 0: none; UINT64_MAX: it is not
                                                 over */
};

/* Returns: the number with which it is to be ended. */
unsigned soak_trouble_begin(struct soak_troubles *troubles, uint64_t now_ms);
void soak_trouble_end(struct soak_troubles *troubles, unsigned number,
                      uint64_t now_ms);

/* How long those were, together, that overlap these times; each for as long as
 * it counts. 0: there was none. */
uint64_t soak_trouble_ms(const struct soak_troubles *troubles, uint64_t from_ms,
                         uint64_t to_ms);

#endif
