/*
 * Repeated lines. The invariant: while a subject has lines that are suppressed,
 * no other line of it passes; their number comes first.
 *
 * What is told late says how long ago it happened: a number may come when all
 * is well again, and must not read like a new trouble.
 *
 * A subject that has been silent for an interval, with nothing left to tell, is
 * as good as none, so its memory serves the next one that comes.
 */
#include "client/log_lines.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <snowshed/event.h>

#define MS_PER_S 1000

typedef unsigned long long number;

/* ------------------------------------------------------------- the subjects */

static bool is_over(const struct shed_log_subject *s, uint64_t now_ms)
{
    return shed_limit_is_over(&s->limit, SHED_LOG_INTERVAL_MS, now_ms);
}

static bool is_waiting(const struct shed_log_subject *s)
{
    return s->limit.suppressed > 0 || s->is_series;
}

static size_t name_size(const struct shed_log_line *line)
{
    return line->name.size < SHED_NAME_MAX_BYTES ? line->name.size
                                                 : SHED_NAME_MAX_BYTES;
}

static bool is_of(const struct shed_log_subject *s,
                  const struct shed_log_line *line)
{
    return s->kind == line->kind && s->name_size == name_size(line) &&
           (s->name_size == 0 ||
            memcmp(s->name, line->name.data, s->name_size) == 0);
}

static struct shed_log_subject *claim(struct shed_log_subject *s,
                                      const struct shed_log_line *line)
{
    *s = (struct shed_log_subject){.kind = line->kind,
                                   .name_size = name_size(line)};
    if (s->name_size > 0)
        memcpy(s->name, line->name.data, s->name_size);
    return s;
}

static struct shed_log_subject *subject_of(struct shed_log_lines *ls,
                                           const struct shed_log_line *line,
                                           uint64_t now_ms)
{
    struct shed_log_subject *idle = NULL;
    size_t i;

    for (i = 0; i < SHED_LOG_SUBJECTS && ls->subjects[i] != NULL; i++) {
        struct shed_log_subject *s = ls->subjects[i];
        if (is_of(s, line))
            return s;
        if (idle == NULL && !is_waiting(s) && is_over(s, now_ms))
            idle = s;
    }
    if (idle == NULL && i < SHED_LOG_SUBJECTS)
        idle = ls->subjects[i] = malloc(sizeof(*idle));
    return idle != NULL ? claim(idle, line) : &ls->shared;
}

/* ---------------------------------------------------------------- the lines */

/* Keep what is told of a line that has just been suppressed. */
static void hold_back(struct shed_log_subject *s,
                      const struct shed_log_line *line)
{
    if (s->limit.suppressed == 1 || line->level > s->level)
        s->level = line->level;
    s->most = line->most;
    s->head = line->head;
    (void)snprintf(s->text, sizeof(s->text), "%s", line->text);
}

bool shed_log_lines_pass(struct shed_log_lines *ls,
                         const struct shed_log_line *line, uint64_t now_ms)
{
    struct shed_log_subject *s = subject_of(ls, line, now_ms);

    if (!is_waiting(s) && is_over(s, now_ms)) {
        s->since_ms = now_ms;
        s->total = 0;
    }
    s->until_ms = now_ms;
    s->total++;
    if (s->limit.suppressed > 0)
        shed_limit_suppress(&s->limit);
    else if (shed_limit_pass(&s->limit, line->most, SHED_LOG_INTERVAL_MS,
                             now_ms))
        return true;
    hold_back(s, line);
    return false;
}

void shed_log_lines_suppress(struct shed_log_lines *ls,
                             const struct shed_log_line *line, uint64_t now_ms)
{
    struct shed_log_subject *s = subject_of(ls, line, now_ms);

    shed_limit_suppress(&s->limit);
    hold_back(s, line);
}

/* -------------------------------------------------------------- the numbers */

bool shed_log_lines_are_waiting(const struct shed_log_lines *ls)
{
    bool are = is_waiting(&ls->shared);

    for (size_t i = 0; i < SHED_LOG_SUBJECTS && ls->subjects[i] != NULL; i++)
        are |= is_waiting(ls->subjects[i]);
    return are;
}

static number seconds(uint64_t ms)
{
    return (ms + MS_PER_S - 1) / MS_PER_S;
}

static void write_number(const struct shed_log_subject *s, number count,
                         uint64_t now_ms, bool is_shared,
                         struct shed_log_told *out)
{
    number last_s = seconds(now_ms - s->limit.began_ms);
    uint64_t past_ms = now_ms - s->until_ms;
    char ago[40] = "";

    if (past_ms >= MS_PER_S)
        (void)snprintf(ago, sizeof(ago), "%llu s ago", seconds(past_ms));
    if (count > 1)
        (void)snprintf(out->text, sizeof(out->text),
                       "%s (and %llu more of %s in the last %llu s%s%s)",
                       s->text, count - 1,
                       is_shared ? "several kinds" : "this kind",
                       last_s > 0 ? last_s : 1,
                       ago[0] != '\0' ? ", the last one " : "", ago);
    else if (ago[0] != '\0')
        (void)snprintf(out->text, sizeof(out->text), "%s (%s)", s->text, ago);
    else
        (void)snprintf(out->text, sizeof(out->text), "%s", s->text);
}

/* It counts as a line, so it begins an interval. */
static void take_number(struct shed_log_subject *s, uint64_t now_ms,
                        bool is_shared, struct shed_log_told *out)
{
    number count = shed_limit_take(&s->limit);

    out->level = s->level;
    write_number(s, count, now_ms, is_shared, out);
    s->is_series = s->most == 1 && !is_shared && (s->is_series || count > 1);
    if (is_over(s, now_ms))
        (void)shed_limit_pass(&s->limit, s->most, SHED_LOG_INTERVAL_MS, now_ms);
}

static void take_end(struct shed_log_subject *s, uint64_t now_ms,
                     struct shed_log_told *out)
{
    out->level = SHED_LOG_INFO;
    (void)snprintf(out->text, sizeof(out->text),
                   "%.*s: none for %llu s, after %llu in %llu s", (int)s->head,
                   s->text, seconds(now_ms - s->until_ms), (number)s->total,
                   seconds(s->until_ms - s->since_ms));
    s->is_series = false;
}

bool shed_log_lines_take(struct shed_log_lines *ls, uint64_t now_ms,
                         bool is_last, struct shed_log_told *out)
{
    for (size_t i = 0; i <= SHED_LOG_SUBJECTS; i++) {
        bool is_shared = i == SHED_LOG_SUBJECTS;
        struct shed_log_subject *s = is_shared ? &ls->shared : ls->subjects[i];
        if (s == NULL || (!is_last && !is_over(s, now_ms)))
            continue;
        if (s->limit.suppressed > 0) {
            take_number(s, now_ms, is_shared, out);
            return true;
        }
        if (s->is_series && !is_last) {
            take_end(s, now_ms, out);
            return true;
        }
    }
    return false;
}

void shed_log_lines_fini(struct shed_log_lines *ls)
{
    for (size_t i = 0; i < SHED_LOG_SUBJECTS; i++)
        free(ls->subjects[i]);
}
