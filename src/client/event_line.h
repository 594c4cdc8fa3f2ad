/*
 * What the log says of an event: whether anything, at which level, in which
 * words, and with which other lines it is limited. Pure.
 */
#ifndef SHED_EVENT_LINE_H
#define SHED_EVENT_LINE_H

#include <stdbool.h>
#include <stddef.h>

#include <snowshed/event.h>

#include "client/log_lines.h"

/* Whether the outcome is one that somebody may have to look into. */
bool shed_event_is_trouble(enum shed_event_kind kind, enum shed_code outcome);

/* Whether such an event has a line. */
bool shed_event_has_line(const struct shed_event *event);

struct shed_event_line {
    struct shed_log_line line; /* its text is the one below */
    char text[SHED_LOG_LINE_BYTES];
};

/* Write the line of an event, which speaks for keys events of as many keys.
 * Returns: false: such an event has no line. */
bool shed_event_line_write(const struct shed_event *event, size_t keys,
                           struct shed_event_line *out);

#endif
