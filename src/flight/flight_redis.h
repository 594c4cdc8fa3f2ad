/*
 * A flight's calls to Redis: what its machine wants to send becomes calls of
 * scripts, and their replies become its events. Reactor thread only, but for
 * the function that says otherwise.
 */
#ifndef SHED_FLIGHT_REDIS_H
#define SHED_FLIGHT_REDIS_H

#include "flight/flight_exchange.h"

/* Send ACQUIRE, PUBLISH, FAIL or RELEASE. Its reply becomes an event with the
 * number of the request, never before the return. No other may be under way. */
void shed_flight_redis_send(struct shed_flight_exchange *exchange,
                            enum shed_flight_send what, uint64_t request);

/* Send a renewal, unless the last one is still under way. */
void shed_flight_redis_renew(struct shed_flight_exchange *exchange,
                             uint64_t request);

/* Whether something is still to come back. */
bool shed_flight_redis_is_busy(const struct shed_flight_exchange *exchange);

/* Drop the entry that it has kept. */
void shed_flight_redis_fini(struct shed_flight_exchange *exchange);

#endif
