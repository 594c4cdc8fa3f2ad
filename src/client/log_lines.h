/*
 * How often a line of the log is repeated: of one kind at once, and then, while
 * it goes on, once per interval with the number of the others. Pure.
 *
 * What is told is counted exactly: each line that is offered is told, or is one
 * of a number that is. The lines of one kind are told in the order in which
 * they came.
 */
#ifndef SHED_LOG_LINES_H
#define SHED_LOG_LINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <snowshed/event.h>

#include "base/limit.h"

/* A line with the longest reason, name and key that are shown; and one with a
 * number. */
#define SHED_LOG_LINE_BYTES (SHED_REASON_BYTES + 288)
#define SHED_LOG_TOLD_BYTES (SHED_LOG_LINE_BYTES + 96)

enum {
    SHED_EVENT_KINDS = SHED_EVENT_LACKING + 1,
    SHED_LOG_KINDS = 2 * SHED_EVENT_KINDS /* successes and failures */
};

struct shed_log_line {
    unsigned kind; /* below SHED_LOG_KINDS; lines of one are limited together */
    uint64_t most; /* lines in an interval */
    enum shed_log_level level;
    const char *text; /* less than SHED_LOG_LINE_BYTES */
};

/* Its own. */
struct shed_log_kind {
    struct shed_limit limit;
    /* of those that are suppressed: the last, and the highest level */
    uint64_t most;
    enum shed_log_level level;
    char text[SHED_LOG_LINE_BYTES];
};

/* All zero at the beginning. */
struct shed_log_lines {
    struct shed_log_kind kinds[SHED_LOG_KINDS];
};

/* Whether a line is told now; otherwise it is counted. */
bool shed_log_lines_pass(struct shed_log_lines *lines,
                         const struct shed_log_line *line, uint64_t now_ms);

/* Count lines of which only a number is known: this line's text is told if none
 * of its kind has been suppressed before. */
void shed_log_lines_suppress(struct shed_log_lines *lines,
                             const struct shed_log_line *line, uint64_t count);

/* Whether there is something for shed_log_lines_take to tell, now or when an
 * interval is over. */
bool shed_log_lines_are_waiting(const struct shed_log_lines *lines);

/* Something that is to be told. */
struct shed_log_told {
    enum shed_log_level level;
    char text[SHED_LOG_TOLD_BYTES];
};

/* Take a number whose interval is over. To be called until it returns false:
 * there is none. is_last: take every number, however short the interval was. */
bool shed_log_lines_take(struct shed_log_lines *lines, uint64_t now_ms,
                         bool is_last, struct shed_log_told *out);

#endif
