/* Repeated lines. The invariant: while a kind has lines that are suppressed, no
 * other line of it passes; their number comes first. */
#include "client/log_lines.h"

#include <stdio.h>

#define MS_PER_S 1000

/* Keep what is told of a line that has just been suppressed. */
static void hold_back(struct shed_log_kind *k, const struct shed_log_line *line,
                      bool is_first)
{
    if (is_first || line->level > k->level)
        k->level = line->level;
    k->most = line->most;
    (void)snprintf(k->text, sizeof(k->text), "%s", line->text);
}

bool shed_log_lines_pass(struct shed_log_lines *ls,
                         const struct shed_log_line *line, uint64_t now_ms)
{
    struct shed_log_kind *k = &ls->kinds[line->kind];

    if (k->limit.suppressed > 0)
        shed_limit_suppress(&k->limit);
    else if (shed_limit_pass(&k->limit, line->most, SHED_LOG_INTERVAL_MS,
                             now_ms))
        return true;
    hold_back(k, line, k->limit.suppressed == 1);
    return false;
}

void shed_log_lines_suppress(struct shed_log_lines *ls,
                             const struct shed_log_line *line, uint64_t count)
{
    struct shed_log_kind *k = &ls->kinds[line->kind];

    if (k->limit.suppressed == 0 && k->text[0] == '\0')
        hold_back(k, line, true);
    k->limit.suppressed += count;
}

bool shed_log_lines_are_waiting(const struct shed_log_lines *ls)
{
    bool are = false;

    for (size_t i = 0; i < SHED_LOG_KINDS; i++)
        are |= ls->kinds[i].limit.suppressed > 0;
    return are;
}

/* It counts as a line, so it begins an interval. */
static void take(struct shed_log_kind *k, uint64_t now_ms,
                 struct shed_log_told *out)
{
    unsigned long long count = shed_limit_take(&k->limit);
    unsigned long long last_s =
        (now_ms - k->limit.began_ms + MS_PER_S - 1) / MS_PER_S;

    out->level = k->level;
    if (count > 1)
        (void)snprintf(out->text, sizeof(out->text),
                       "%s (and %llu more of this kind in the last %llu s)",
                       k->text, count - 1, last_s > 0 ? last_s : 1);
    else
        (void)snprintf(out->text, sizeof(out->text), "%s", k->text);
    if (shed_limit_is_over(&k->limit, SHED_LOG_INTERVAL_MS, now_ms))
        (void)shed_limit_pass(&k->limit, k->most, SHED_LOG_INTERVAL_MS, now_ms);
}

bool shed_log_lines_take(struct shed_log_lines *ls, uint64_t now_ms,
                         bool is_last, struct shed_log_told *out)
{
    for (size_t i = 0; i < SHED_LOG_KINDS; i++) {
        struct shed_log_kind *k = &ls->kinds[i];
        if (k->limit.suppressed > 0 &&
            (is_last ||
             shed_limit_is_over(&k->limit, SHED_LOG_INTERVAL_MS, now_ms))) {
            take(k, now_ms, out);
            return true;
        }
    }
    return false;
}
