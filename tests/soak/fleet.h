/*
 * The loads of all processes together, as the database has them, and whether
 * there may be so many: fleet_loads is a bound while Redis answers every
 * process in time, and has what it was told of the loads under way.
 *
 * Time is an argument. All functions may be called by any process.
 */
#ifndef SOAK_FLEET_H
#define SOAK_FLEET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "soak/account.h"

enum {
    /* Fewer than all processes together would begin, and more than the slots of
     * those that were killed in the last 2 s: with 4, loads waited for one
     * until their load_timeout_ms was over. */
    SOAK_FLEET_LOADS = 8,
    SOAK_LOAD_MS = 1000 /* of every load, at most; the slots of a process that
                           was killed are free a second after that */
};

struct soak_fleet {
    /* Set at the beginning. From the exchange that takes a slot to the load;
     * how late a process may tell that it has gone on without slots; and after
     * which pause between looks this machine must have stopped. */
    uint64_t slot_ms, event_ms, stall_ms;
    _Atomic uint64_t unseen_ms; /* when a fault by which loads may be alive that
                                   Redis does not count was over; UINT64_MAX: it
                                   is not */
    atomic_bool is_away[SOAK_WORKERS]; /* a process goes on without slots */
    _Atomic uint64_t away_ms;          /* when one of those last changed */
    _Atomic uint64_t stalled_ms; /* when such a pause, or a look that took as
                                    long, was last over */
    /* Looks at the loads, and the most at a time; and while they were bound. */
    _Atomic uint64_t looks, bound_looks, most, bound_most;
    _Atomic uint64_t waits; /* loads that waited for a slot */
};

/* What the one that looks remembers. */
struct soak_watch {
    uint64_t looked_ms; /* 0: not yet */
    unsigned excess;    /* loads that were too many; 0: not yet */
    uint64_t excess_ms; /* when they were seen */
    uint64_t since_ms;  /* all of those had begun after it */
};

/* A process goes on without slots, or with them (again). */
void soak_fleet_tell(struct soak_fleet *fleet, unsigned process, bool is_away,
                     uint64_t now_ms);

/* A fault by which loads may be alive that Redis does not count begins, and
 * ends. */
void soak_fleet_trouble(struct soak_fleet *fleet);
void soak_fleet_calm(struct soak_fleet *fleet, uint64_t now_ms);

/* This many loads are alive, the oldest for age_ms. Returns: 0, or how many
 * were more than allowed when no process has told since why. */
unsigned soak_fleet_look(struct soak_fleet *fleet, struct soak_watch *watch,
                         unsigned loads, uint64_t age_ms, uint64_t now_ms);

#endif
