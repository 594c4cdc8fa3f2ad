/*
 * The replies to a flight's calls: each becomes an event of the flight's
 * machine, and what it carries (an entry, an error, the right to load) is kept
 * in the exchange. Reactor thread only.
 */
#ifndef SHED_FLIGHT_REPLY_H
#define SHED_FLIGHT_REPLY_H

#include "flight/flight_exchange.h"

/* The event of what came of ACQUIRE, PUBLISH, FAIL or RELEASE, whichever was
 * sent. The arguments are those of shed_pipe_fn. */
struct shed_flight_event
shed_flight_reply_event(struct shed_flight_exchange *exchange,
                        struct shed_reply *reply, enum shed_trouble trouble,
                        const struct shed_error *err);

/* The event of an error reply, or of none at all; sets the exchange's error. */
struct shed_flight_event shed_flight_reply_trouble(
    struct shed_flight_exchange *exchange, const struct shed_reply *reply,
    enum shed_trouble trouble, const struct shed_error *err);

#endif
