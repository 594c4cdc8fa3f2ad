/*
 * What is told to all listeners of /events, each of which reads at its own
 * pace. One that is slower than the ring is misses what was overwritten: nobody
 * waits for it.
 */
#ifndef HOTITEMS_STAGE_HUB_H
#define HOTITEMS_STAGE_HUB_H

#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "http.h"

#define HUB_LISTENERS_MAX 32

struct hub;

struct hub *hub_new(void); /* NULL: out of memory */
void hub_free(struct hub *hub);

/* Something was done, at the time before it. id 0: it is not about one item. */
void hub_mark(struct hub *hub, const char *action, uint64_t time_ms,
              uint64_t id, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* Send an event; data is consumed, and may be NULL (out of memory): then
 * nothing is sent. */
void hub_tell(struct hub *hub, const char *event, json_t *data);

uint64_t hub_time_ms(void); /* unix time */

/* Answer with the stream of events, the last marks first; with 503 if there are
 * HUB_LISTENERS_MAX. */
void hub_listen(struct hub *hub, struct http_reply *reply);

/* End all streams; nobody can listen any more. */
void hub_end(struct hub *hub);

#endif
