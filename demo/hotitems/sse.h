/*
 * Server-sent events for many listeners
 * (https://html.spec.whatwg.org/multipage/server-sent-events.html).
 *
 * A listener is sent the events at the pace at which it takes them. One that is
 * slower than the ring misses what was overwritten: nobody waits for it.
 */
#ifndef HOTITEMS_SSE_H
#define HOTITEMS_SSE_H

#include <stdbool.h>
#include <stddef.h>

#include "http.h"

struct sse_options {
    const char *greeting; /* static: what a listener is sent first */
    size_t ring;          /* the last events, for listeners that are late */
    size_t kept; /* the last of those to keep, for listeners that are new */
    size_t listeners_max;
};

struct sse;

struct sse *sse_new(const struct sse_options *options); /* NULL: no memory */
void sse_free(struct sse *sse); /* there are no listeners any more */

/* Send the whole text of an event to all listeners, and if it is to be kept, to
 * those that come later. Without memory it is not sent. */
void sse_publish(struct sse *sse, const char *text, size_t size, bool is_kept);

/* Answer with the stream. If there are listeners_max, the oldest one's ends. */
void sse_listen(struct sse *sse, struct http_reply *reply);
size_t sse_listeners(struct sse *sse);

/* End all streams; nobody can listen any more. */
void sse_end(struct sse *sse);

#endif
