/*
 * Who waits for a flight. A caller is part of a get. It is linked to its flight
 * until it is taken, to be answered, or leaves, at its deadline.
 */
#ifndef SHED_CALLER_H
#define SHED_CALLER_H

#include <stdbool.h>
#include <stdint.h>

#include <snowshed/snowshed.h>

#include "base/list.h"
#include "flight/flight.h"

struct shed_flight_task;

/* What a flight waits for. A caller that leaves at its deadline gets this as
 * the reason. */
enum shed_awaited {
    SHED_AWAITS_REDIS,  /* a connection, or the answer to a command */
    SHED_AWAITS_HOLDER, /* another flight has the lease, and loads */
    SHED_AWAITS_QUEUE,  /* the source is busy with other loads */
    SHED_AWAITS_LOAD    /* the source is loading it */
};

struct shed_caller {
    /* Set by the caller: what is called once it is answered, in a step of the
     * flight. */
    void (*on_answer)(struct shed_caller *caller);
    bool is_counted; /* towards callers_limit: a thread waits */
    /* the answer */
    unsigned char awaited; /* what the flight waited for when the caller left:
                              an enum shed_awaited */
    enum shed_code code;
    struct shed_value *value;
    struct shed_error *why; /* of a failure (shed_error_keep), its owner's to
                               free */
    uint64_t load_began_ms; /* what the flight knew of its load when the caller
                               joined; UINT64_MAX: nothing */
    /* used by the table */
    struct shed_flight_task *task; /* NULL once taken */
    struct shed_node node;
    uint64_t number;
};

/* What a caller that leaves its flight wants of it. */
enum shed_leave {
    SHED_LEAVE_GIVES_UP, /* nothing: without a caller there is no need to load
                          */
    SHED_LEAVE_GOES_ON /* that it does all it would have done for the caller */
};

/* What the caller of a new flight has found. */
struct shed_seen {
    /* a value that is to be replaced even if it is fresh */
    const unsigned char *aged; /* its identity; NULL: there is none */
    bool is_revoked; /* it is a miss by one of its tags, so the row has to be
                        loaded even if it has not changed */
    enum shed_flight_first first; /* what it makes likely */
};

#endif
