/*
 * How often a line of the log is repeated: at once, and then, while it goes on,
 * once per interval with the number of the others. Pure.
 *
 * What is told is counted exactly: each line that is offered is told, or is one
 * of a number that is. The lines of one subject are told in the order in which
 * they came.
 */
#ifndef SHED_LOG_LINES_H
#define SHED_LOG_LINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <snowshed/snowshed.h>

#include "base/limit.h"

/* A line with the longest reason, name and key that are shown; and one with a
 * number. */
#define SHED_LOG_LINE_BYTES (SHED_REASON_BYTES + 288)
#define SHED_LOG_TOLD_BYTES (SHED_LOG_LINE_BYTES + 128)

/* Subjects that are limited at a time. The others share one limit. */
#define SHED_LOG_SUBJECTS 64

struct shed_log_line {
    /* the subject: lines of one are limited together */
    unsigned kind;
    struct shed_bytes name; /* of which SHED_NAME_MAX_BYTES count */

    uint64_t most; /* lines in an interval; if more than 1, each is news, so the
                      end of a series needs no line of its own */
    enum shed_log_level level;
    const char *text; /* less than SHED_LOG_LINE_BYTES */
    size_t head;      /* the size of its part that says what and whose */
};

/* Its own. */
struct shed_log_subject {
    unsigned kind;
    char name[SHED_NAME_MAX_BYTES];
    size_t name_size;
    struct shed_limit limit;
    bool is_series; /* a number was told, and no end since */
    uint64_t since_ms, until_ms, total; /* of the lines since it was silent */
    /* of those that are suppressed: the last, and the highest level */
    uint64_t most;
    enum shed_log_level level;
    char text[SHED_LOG_LINE_BYTES];
    size_t head;
};

/* All zero at the beginning. */
struct shed_log_lines {
    struct shed_log_subject *subjects[SHED_LOG_SUBJECTS];
    struct shed_log_subject shared; /* if there are more, or no memory */
};

/* Whether a line is told now; otherwise it is counted. */
bool shed_log_lines_pass(struct shed_log_lines *lines,
                         const struct shed_log_line *line, uint64_t now_ms);

/* Count a line that passed but could not be told. */
void shed_log_lines_suppress(struct shed_log_lines *lines,
                             const struct shed_log_line *line, uint64_t now_ms);

/* Whether there is something for shed_log_lines_take to tell, now or when an
 * interval is over. */
bool shed_log_lines_are_waiting(const struct shed_log_lines *lines);

/* Something that is to be told. */
struct shed_log_told {
    enum shed_log_level level;
    char text[SHED_LOG_TOLD_BYTES];
};

/* Take a number, or the end of a series, whose interval is over. To be called
 * until it returns false: there is none. is_last: take every number, however
 * short the interval was, and no end. */
bool shed_log_lines_take(struct shed_log_lines *lines, uint64_t now_ms,
                         bool is_last, struct shed_log_told *out);

/* Release the memory. */
void shed_log_lines_fini(struct shed_log_lines *lines);

#endif
