/* The matrix. */
#include "fault/torture_report.h"

const char *const algorithm_names[ALGORITHMS] = {
    [SHED_LOCK_SETNX] = "SETNX",         [SHED_LOCK_EXPIRE] = "EXPIRE",
    [SHED_LOCK_TIMESTAMP] = "TIMESTAMP", [SHED_LOCK_TIMESTAMP_SECONDS] = "",
    [SHED_LOCK_LEASE] = "LEASE",         [TORTURE_QUORUM] = "QUORUM"};

/* TIMESTAMP in seconds is no column: it differs in nothing that is shown. */
static bool is_column(size_t algorithm)
{
    return algorithm != SHED_LOCK_TIMESTAMP_SECONDS;
}

bool has_tokens(const struct cell *cell)
{
    return cell->algorithm == SHED_LOCK_LEASE ||
           cell->algorithm == TORTURE_QUORUM;
}

/* kept or broken; how long until another had the lock; what happened to old
 * writes. */
static void print_cell(FILE *out, const struct cell *c)
{
    (void)fputs(c->verdict.overlaps > 0 ? " **broken**" : " kept", out);
    if (c->recovered_ms == UINT64_MAX)
        (void)fputs(", stuck", out);
    else if (c->recovered_ms > 0)
        (void)fprintf(out, ", %llu ms", (unsigned long long)c->recovered_ms);
    if (c->verdict.losses > 0 && c->fault == FAULT_LATE_GETSET)
        (void)fputs(", winner lost it", out);
    if (has_tokens(c))
        (void)fputs(c->verdict.disorders == 0 ? ", ordered" : ", OUT OF ORDER",
                    out);
    if (c->old_writes > 0)
        (void)fprintf(out, ", %llu old", (unsigned long long)c->old_writes);
    else if (c->verdict.refused > 0)
        (void)fprintf(out, ", %zu refused", c->verdict.refused);
}

static void print_row(FILE *out, const struct cell row[ALGORITHMS])
{
    (void)fprintf(out, "| %s |", row[0].what);
    for (size_t a = 0; a < ALGORITHMS; a++) {
        if (row[a].has_run)
            print_cell(out, &row[a]);
        if (is_column(a))
            (void)fputs(" |", out);
    }
    (void)fputs("\n", out);
}

void print_matrix(FILE *out, const struct cell cells[FAULTS][ALGORITHMS])
{
    (void)fputs("| |", out);
    for (size_t a = 0; a < ALGORITHMS; a++)
        if (is_column(a))
            (void)fprintf(out, " %s |", algorithm_names[a]);
    (void)fputs("\n|---|---|---|---|---|---|\n", out);
    for (enum fault f = FAULT_NONE; f < FAULTS; f++) {
        bool has_run = false;
        for (size_t a = 0; a < ALGORITHMS; a++)
            has_run |= cells[f][a].has_run;
        if (has_run)
            print_row(out, cells[f]);
    }
}
