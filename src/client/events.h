/*
 * What a client tells its program: events, and lines for its log. Both are
 * bounded in number per second, and told on the reactor thread, whatever thread
 * they come from.
 */
#ifndef SHED_CLIENT_EVENTS_H
#define SHED_CLIENT_EVENTS_H

#include <stdbool.h>

#include <snowshed/event.h>
#include <snowshed/snowshed.h>

#include "redis/reactor.h"

struct shed_events;

/* Borrows nothing but reactor. Any thread.
 * Returns: SHED_OK, SHED_ENOMEM. */
SHED_MUST_CHECK enum shed_code
shed_events_create(struct shed_reactor *reactor,
                   const struct shed_client_options *options,
                   struct shed_events **out, struct shed_error *err);

/* Whether anybody is told of such an event. To be asked before one is put
 * together where that costs something. Any thread. */
bool shed_events_are_wanted(const struct shed_events *events,
                            enum shed_event_kind kind, enum shed_code outcome);

/* Tell of an event; what it points to is copied, its size, count and about are
 * set here. reason may be NULL. The hook is called later, on the reactor
 * thread, never before the return. Any thread, with any lock held but the
 * reactor's. */
void shed_events_tell(struct shed_events *events,
                      const struct shed_event *event);

/* The same where several keys have one cause. In the log the first of them
 * speaks for all: keys is how many; the others are no line: 0. Other events
 * have 1. */
void shed_events_tell_of(struct shed_events *events,
                         const struct shed_event *event, size_t keys);

/* Tell what is still to be told of what was left out, and end. Reactor thread;
 * what was told before has been posted, and is called before the reactor
 * stops. NULL is allowed. */
void shed_events_close(struct shed_events *events);

/* When the reactor has stopped, or in a forked child. NULL is allowed. */
void shed_events_destroy(struct shed_events *events);

#endif
