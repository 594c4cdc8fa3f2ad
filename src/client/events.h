/*
 * What a client reports to its program: events, and lines for its log. Both are
 * limited, each in its way, and delivered on the reactor thread, whatever
 * thread they come from.
 */
#ifndef SHED_CLIENT_EVENTS_H
#define SHED_CLIENT_EVENTS_H

#include <stdbool.h>

#include <snowshed/event.h>
#include <snowshed/snowshed.h>

#include "redis/reactor.h"

struct shed_events;

/* Borrows reactor; options are copied. Any thread.
 * Returns: SHED_OK, SHED_ENOMEM. */
SHED_MUST_CHECK enum shed_code
shed_events_create(struct shed_reactor *reactor,
                   const struct shed_client_options *options,
                   struct shed_events **out, struct shed_error *err);

/* Report an event. What it points to is copied; size, count and about are set
 * here. reason may be NULL. The hook is called later, on the reactor thread,
 * never before this returns. Any thread; any lock except the reactor's may be
 * held. */
void shed_events_tell(struct shed_events *events,
                      const struct shed_event *event);

/* The same for an event of several keys with one cause. Only the first gets a
 * line in the log: its keys is their number, that of the others is 0. An event
 * of a single key has 1. */
void shed_events_tell_of(struct shed_events *events,
                         const struct shed_event *event, size_t keys);

/* Returns: how many events on_event was told of only in a number, or will be.
 * Any thread. */
uint64_t shed_events_left_out(struct shed_events *events);

/* Report the numbers that were left out and are still unreported, and end.
 * Reactor thread. Earlier events have been posted, and are delivered before the
 * reactor stops. NULL is allowed. */
void shed_events_close(struct shed_events *events);

/* To be called after the reactor has stopped, or in a forked child. NULL is
 * allowed. */
void shed_events_destroy(struct shed_events *events);

#endif
