/*
 * The replies to a flight's calls: each becomes an event of the flight's
 * machine, and what it carries (an entry, an error, the right to load) is kept
 * in the exchange. Reactor thread only.
 */
#ifndef SHED_FLIGHT_REPLY_H
#define SHED_FLIGHT_REPLY_H

#include "flight/flight_exchange.h"

/* The event of what came of ACQUIRE, PUBLISH, FAIL or RELEASE, whichever was
 * sent. */
struct shed_flight_event
shed_flight_reply_event(struct shed_flight_exchange *exchange,
                        const struct shed_call_result *result);

/* The event of what came of the command that goes first, in place of an
 * acquire. Returns: false: it has not decided. */
bool shed_flight_reply_decides(struct shed_flight_exchange *exchange,
                               const struct shed_call_result *result,
                               struct shed_flight_event *event);

/* The event of an error reply, or of none at all; sets the exchange's error. */
struct shed_flight_event
shed_flight_reply_trouble(struct shed_flight_exchange *exchange,
                          const struct shed_call_result *result);

#endif
