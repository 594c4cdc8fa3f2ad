/* See torture_check.h. Its invariant: nothing excuses an old write that was
 * accepted with the guard, or a number that did not grow. */
#include "fault/torture_check.h"

#include <stdarg.h>
#include <stdio.h>

static enum torture_outcome say(char text[TORTURE_TEXT_BYTES],
                                enum torture_outcome outcome,
                                const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    (void)vsnprintf(text, TORTURE_TEXT_BYTES, format, arguments);
    va_end(arguments);
    return outcome;
}

/* What tokens promise, whatever was stopped. */
static enum torture_outcome check_tokens(const struct cell *cell, char *text)
{
    if (has_tokens(cell) && cell->verdict.disorders > 0)
        return say(text, TORTURE_WRONG, "%zu numbers did not grow",
                   cell->verdict.disorders);
    if (has_tokens(cell) && cell->old_writes > 0)
        return say(text, TORTURE_WRONG, "%llu old writes were accepted",
                   (unsigned long long)cell->old_writes);
    return TORTURE_AS_EXPECTED;
}

/* What the lease promises: a holder that stops for too long loses the lock. */
static enum torture_outcome check_promises(const struct cell *cell, char *text,
                                           enum torture_outcome blame)
{
    const struct torture_verdict *v = &cell->verdict;

    if (v->overlaps > 0 && !cell->is_broken)
        return say(text, blame, "%zu overlaps in %zu entries", v->overlaps,
                   v->entries);
    if (cell->recovered_ms == UINT64_MAX && !cell->is_stuck)
        return say(text, blame, "nobody got it again");
    if (cell->fault == FAULT_OVERRUN && v->bystanders > 0 &&
        cell->algorithm != SHED_LOCK_EXPIRE)
        return say(text, blame, "%zu overlaps of others", v->bystanders);
    return TORTURE_AS_EXPECTED;
}

static enum torture_outcome check_weaknesses(const struct cell *cell,
                                             char *text)
{
    const enum torture_outcome outcome = TORTURE_NOT_SHOWN;
    const struct torture_verdict *v = &cell->verdict;

    if (v->overlaps == 0 && cell->is_broken)
        return say(text, outcome, "no overlap in %zu entries", v->entries);
    if (cell->recovered_ms != UINT64_MAX && cell->is_stuck)
        return say(text, outcome, "another had it after %llu ms",
                   (unsigned long long)cell->recovered_ms);
    if (has_tokens(cell) && cell->is_broken && v->refused == 0)
        return say(text, outcome, "no old write was tried");
    if (!has_tokens(cell) && cell->is_broken && cell->fault == FAULT_STOPPED &&
        cell->old_writes == 0)
        return say(text, outcome, "no old write was accepted");
    if (cell->fault == FAULT_OVERRUN && v->bystanders == 0 &&
        cell->algorithm == SHED_LOCK_EXPIRE)
        return say(text, outcome, "no overlap of others");
    if (cell->fault == FAULT_LATE_GETSET && v->losses == 0)
        return say(text, outcome, "no loss");
    return TORTURE_AS_EXPECTED;
}

/* Whether processes did not run for long enough to explain what is wrong. A
 * renewal is sent at a third of the lease. One of a quorum is repeated when the
 * servers have not answered within a twentieth of the lease, so many short
 * pauses end a lease as well as a long one. They do not explain that a lock is
 * gone before its lease ends. */
static bool is_disturbed(const struct cell *cell, uint64_t stall_ms,
                         uint64_t lease_ms)
{
    enum { PART = 4, QUORUM_PART = 20 };
    const struct torture_verdict *v = &cell->verdict;
    bool has_ended = v->overlaps > 0 && v->ended == v->overlaps;
    bool is_by_rounds = cell->algorithm == TORTURE_QUORUM && has_ended;

    return stall_ms > lease_ms / (is_by_rounds ? QUORUM_PART : PART);
}

enum torture_outcome torture_check(const struct cell *cell, uint64_t stall_ms,
                                   uint64_t lease_ms,
                                   char text[TORTURE_TEXT_BYTES])
{
    enum torture_outcome outcome = check_tokens(cell, text);

    if (outcome == TORTURE_AS_EXPECTED)
        outcome = check_promises(cell, text,
                                 is_disturbed(cell, stall_ms, lease_ms)
                                     ? TORTURE_DISTURBED
                                     : TORTURE_WRONG);
    if (outcome == TORTURE_AS_EXPECTED)
        outcome = check_weaknesses(cell, text);
    return outcome;
}
