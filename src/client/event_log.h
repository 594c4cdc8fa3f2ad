/*
 * What the log says of events: at which level, in which words, and how often.
 * Of one kind a few lines are told at once, and then, while it goes on, one per
 * interval, with the number of the others. Pure.
 *
 * What is told is counted exactly: each event that has a line is told, or is
 * one of a number that is. The lines of one kind are told in the order in which
 * their events came.
 */
#ifndef SHED_EVENT_LOG_H
#define SHED_EVENT_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <snowshed/event.h>

#include "base/limit.h"

/* A line with the longest reason, name and key that are shown; and one with a
 * number. */
#define SHED_LOG_LINE_BYTES (SHED_REASON_BYTES + 288)
#define SHED_LOG_TOLD_BYTES (SHED_LOG_LINE_BYTES + 96)

enum { SHED_EVENT_KINDS = SHED_EVENT_LACKING + 1 };

/* A line for the log. */
struct shed_log_line {
    enum shed_log_level level;
    char text[SHED_LOG_TOLD_BYTES];
};

/* All zero at the beginning. */
struct shed_event_log {
    struct shed_log_kind {
        struct shed_limit limit;
        /* of the suppressed lines: the highest level, and the last text */
        enum shed_log_level level;
        char text[SHED_LOG_LINE_BYTES];
    } kinds[2 * SHED_EVENT_KINDS]; /* successes and failures */
};

/* Whether the outcome is one that somebody may have to look into. */
bool shed_event_is_trouble(enum shed_event_kind kind, enum shed_code outcome);

/* Whether such an event has a line. */
bool shed_event_has_line(const struct shed_event *event);

/* Add an event that has a line, which speaks for keys events of as many keys.
 * Returns: whether it is told now, by *out; if not, it is counted. out NULL: it
 * is one of very many, of which only the first is told with its number. */
bool shed_event_log_add(struct shed_event_log *log,
                        const struct shed_event *event, size_t keys,
                        uint64_t now_ms, struct shed_log_line *out);

/* Whether there is something for shed_event_log_take to tell, now or when an
 * interval is over. */
bool shed_event_log_is_waiting(const struct shed_event_log *log);

/* Take a number whose interval is over. To be called until it returns false:
 * there is none. is_last: take every number, however short the interval was. */
bool shed_event_log_take(struct shed_event_log *log, uint64_t now_ms,
                         bool is_last, struct shed_log_line *out);

#endif
