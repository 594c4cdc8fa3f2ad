/*
 * The steps of a lock's machine: events and facts go in, an act comes out.
 * Pure: no I/O, no clock, no threads, no memory of its own.
 */
#ifndef SHED_LOCK_MACHINE_H
#define SHED_LOCK_MACHINE_H

#include "lock/state.h"

enum shed_lock_event {
    SHED_LOCK_EV_WAKE,     /* a function below has changed something */
    SHED_LOCK_EV_ANSWERED, /* the exchange with a server has ended */
    SHED_LOCK_EV_CHANGE,   /* the key may have changed on a server */
    SHED_LOCK_EV_EPOCH,    /* a server's session has begun or ended */
    SHED_LOCK_EV_TIMER     /* the timer of the last act has expired */
};

/* Make one step. server: of whom the event tells. Once CLOSED, a step does
 * nothing. */
void shed_lock_step(struct shed_lock_machine *m, enum shed_lock_event event,
                    size_t server, const struct shed_lock_facts *facts);

#endif
