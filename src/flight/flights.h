/*
 * The flights of one cache. A caller joins the flight of its key, which is made
 * if there is none, and may leave it. Flights are told of changed keys in
 * Redis. What runs a flight on the reactor thread is in flight_task.h.
 */
#ifndef SHED_FLIGHTS_H
#define SHED_FLIGHTS_H

#include <snowshed/snowshed.h>

#include "entry/key.h"
#include "entry/parts.h"
#include "flight/caller.h"
#include "redis/reactor.h"

struct shed_flights;

/* Make the flights of a cache, which is borrowed, and whose other parts but the
 * fleet's have been made.
 * Returns: SHED_OK, SHED_ENOMEM; SHED_EINVAL: another cache of the client has
 * this name. */
SHED_MUST_CHECK enum shed_code shed_flights_create(struct shed_cache *cache,
                                                   struct shed_flights **out,
                                                   struct shed_error *err);

/* Wait until all flights are over, and free them. NULL is allowed. */
void shed_flights_close(struct shed_flights *flights);

/* Join the key's flight, or a new one: those of one turn of the loop load
 * together. Reactor thread; not in a flight's step.
 *
 * A flight that is joined may answer with the aged value nonetheless.
 *
 * Returns: SHED_OK: the caller will be told of its answer, unless it leaves.
 * SHED_ENOMEM: it will not. */
SHED_MUST_CHECK enum shed_code shed_flights_join(struct shed_flights *flights,
                                                 const struct shed_key *key,
                                                 struct shed_seen seen,
                                                 struct shed_caller *caller,
                                                 struct shed_error *err);

/* Load the key's value again in the background, unless this process does so
 * already: if it still has this identity (see shed_entry_identity; NULL: any),
 * or is no longer fresh. One of all processes does the work. This process takes
 * no part while its source's breaker refuses loads, or without memory. Any
 * thread; not in a flight's step. */
void shed_flights_refresh(struct shed_flights *flights,
                          const struct shed_key *key,
                          const unsigned char *identity);

/* Whether a flight of the key can be joined now, in place of a look into Redis.
 * Any thread. */
bool shed_flights_has(struct shed_flights *flights, const struct shed_key *key);

/* Whether the row that the last flight of the key has brought has ended just
 * now, as far as is remembered: all who read it come at once, and a flight asks
 * for all of them. The row may have been replaced meanwhile. now_ms:
 * shed_now_ms. Any thread. */
bool shed_flights_is_over(const struct shed_flights *flights,
                          const struct shed_key *key, uint64_t now_ms);

/* Leave a flight before it has answered. Reactor thread.
 * Returns: true if caller was still waiting; it has left, and its awaited is
 * set. False: it has been answered. */
bool shed_flights_leave(struct shed_caller *caller, enum shed_leave how);

/* From now on callers of the key start another flight. Any thread. */
void shed_flights_detach(struct shed_flights *flights,
                         const struct shed_key *key);

#endif
