/*
 * What is told to all listeners of the stage's /events: see sse.h.
 */
#ifndef HOTITEMS_STAGE_HUB_H
#define HOTITEMS_STAGE_HUB_H

#include <stdint.h>

#include <jansson.h>

#include "sse.h"

#define HUB_LISTENERS_MAX 32

struct sse *hub_new(void); /* NULL: out of memory */

/* Something was done, at the time before it. id 0: it is not about one item. */
void hub_mark(struct sse *hub, const char *action, uint64_t time_ms,
              uint64_t id, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* Send an event; data is consumed, and may be NULL (out of memory): then
 * nothing is sent. */
void hub_tell(struct sse *hub, const char *event, json_t *data);

uint64_t hub_time_ms(void); /* unix time */

#endif
