/*
 * GET /events: what the instance counts, as server-sent events for a page
 * (https://html.spec.whatwg.org/multipage/server-sent-events.html).
 *
 * One thread publishes samples. A listener is sent the newest when it is ready
 * for one, so a slow one misses some, and nobody waits for it.
 */
#ifndef HOTITEMS_EVENTS_H
#define HOTITEMS_EVENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "http.h"

#define EVENTS_LISTENERS_MAX 32
#define EVENTS_BYTES 4096 /* of one event */

struct events;

struct events *events_new(void); /* NULL: out of memory */
void events_free(struct events *events);

/* Send this to all listeners: the whole text of an event, at most EVENTS_BYTES.
 */
void events_publish(struct events *events, const char *text, size_t size);

/* Answer with the stream; with 503 if there are EVENTS_LISTENERS_MAX. */
void events_listen(struct events *events, struct http_reply *reply);
size_t events_listeners(struct events *events);

/* End all streams; nobody can listen any more. */
void events_end(struct events *events);

#endif
