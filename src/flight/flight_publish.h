/*
 * Stores loaded rows in Redis. The rows of one turn of the loop go together, a
 * few in each call of a script. Reactor thread only.
 */
#ifndef SHED_FLIGHT_PUBLISH_H
#define SHED_FLIGHT_PUBLISH_H

#include "flight/flight_exchange.h"

/* Publish what was loaded, soon. The reply becomes an event; until then
 * is_publishing is set. */
void shed_flight_publish(struct shed_flight_exchange *exchange);

/* For the timer publish of a cache's flights, whose argument is the struct
 * shed_flight_shared: send what is to be published. */
void shed_flight_publish_all(void *shared);

#endif
