/* The matrix, as text, as Markdown, as JSON. */
#include "fault/torture_report.h"

#include <string.h>

enum { CELL_BYTES = 96, WIDTH = 36, FAULT_WIDTH = 36 };

const char *const algorithm_names[ALGORITHMS] = {
    [SHED_LOCK_SETNX] = "SETNX",         [SHED_LOCK_EXPIRE] = "EXPIRE",
    [SHED_LOCK_TIMESTAMP] = "TIMESTAMP", [SHED_LOCK_TIMESTAMP_SECONDS] = "",
    [SHED_LOCK_LEASE] = "LEASE",         [TORTURE_QUORUM] = "QUORUM"};

/* TIMESTAMP in seconds is no column: it differs in nothing that is shown. */
static bool is_column(size_t algorithm)
{
    return algorithm != SHED_LOCK_TIMESTAMP_SECONDS;
}

const struct fault_text fault_texts[FAULTS] = {
    [FAULT_NONE] = {"none", "nothing happens"},
    [FAULT_KILLED] = {"killed", "the holder is killed"},
    [FAULT_DIES_BETWEEN] = {"dies-between", "killed between SETNX and EXPIRE"},
    [FAULT_STOPS_BETWEEN] = {"stops-between",
                             "stopped between SETNX and EXPIRE"},
    [FAULT_STOPPED] = {"stopped", "the holder stops past its lease"},
    [FAULT_OVERRUN] = {"overrun", "it works past its lease, unrenewed"},
    [FAULT_LATE_GETSET] = {"late-getset", "a loser's GETSET comes late"},
    [FAULT_CLOCKS] = {"clocks", "wall clocks 1 h ahead and behind"},
    [FAULT_PUSHES_CUT] = {"pushes-cut", "its push connection is cut"},
    [FAULT_RESTART_DATA] = {"restart-data", "Redis restarts with its data"},
    [FAULT_RESTART_EMPTY] = {"restart-empty", "Redis restarts empty"},
    [FAULT_FAILOVER] = {"failover", "failover to a replica without it"},
    [FAULT_FAILOVER_ACKED] = {"failover-acked", "failover, with replicas = 1"},
    [FAULT_CLUSTER] = {"cluster", "failover in a cluster, without it"},
    [FAULT_CLUSTER_ACKED] = {"cluster-acked",
                             "failover in a cluster, replicas = 1"},
    [FAULT_ONE_SLOW] = {"one-slow", "1 of 5 servers is slow"},
    [FAULT_ONE_KILLED] = {"one-killed", "1 of 5 servers is killed"},
    [FAULT_TWO_KILLED] = {"two-killed", "2 of 5 servers are killed"},
    [FAULT_TWO_FROZEN] = {"two-frozen", "2 of 5 servers are frozen"},
    [FAULT_ONE_EMPTY] = {"one-empty", "1 of 5 restarts empty"},
    [FAULT_THREE_KILLED] = {"three-killed", "3 of 5 servers are killed"}};

bool has_tokens(const struct cell *cell)
{
    return cell->algorithm == SHED_LOCK_LEASE ||
           cell->algorithm == TORTURE_QUORUM;
}

static const struct cell *find(const struct cell *cells, size_t count,
                               enum fault fault, size_t algorithm)
{
    for (size_t i = 0; i < count; i++)
        if (cells[i].fault == fault && cells[i].has_run &&
            (size_t)cells[i].algorithm == algorithm)
            return &cells[i];
    return NULL;
}

static int add(char *out, int used, const char *format, uint64_t number)
{
    return used + snprintf(out + used, (size_t)(CELL_BYTES - used), format,
                           (unsigned long long)number);
}

/* kept or BROKEN; how long until another had the lock; what happened to old
 * writes. */
static void write_cell(char out[CELL_BYTES], const struct cell *c,
                       bool is_markdown)
{
    bool is_broken = c->verdict.overlaps > 0;
    int used = 0;

    out[0] = '\0';
    used = add(out, used,
               !is_broken    ? "kept"
               : is_markdown ? "**broken**"
                             : "BROKEN",
               0);
    if (c->recovered_ms == UINT64_MAX)
        used = add(out, used, ", stuck", 0);
    else if (c->recovered_ms > 0)
        used = add(out, used, ", %llu ms", c->recovered_ms);
    if (c->verdict.losses > 0 && c->fault == FAULT_LATE_GETSET)
        used = add(out, used, ", winner lost it", 0);
    if (has_tokens(c))
        used =
            add(out, used,
                c->verdict.disorders == 0 ? ", ordered" : ", OUT OF ORDER", 0);
    if (c->old_writes > 0)
        (void)add(out, used, ", %llu old", c->old_writes);
    else if (c->verdict.refused > 0)
        (void)add(out, used, ", %llu refused", c->verdict.refused);
}

static void print_row(FILE *out, const struct cell *cells, size_t count,
                      enum fault fault, bool is_markdown)
{
    char text[CELL_BYTES];

    if (is_markdown)
        (void)fprintf(out, "| %s |", fault_texts[fault].what);
    else
        (void)fprintf(out, "%-*s", FAULT_WIDTH, fault_texts[fault].what);
    for (size_t a = 0; a < ALGORITHMS; a++) {
        const struct cell *c = find(cells, count, fault, a);
        if (!is_column(a))
            continue;
        if (c != NULL)
            write_cell(text, c, is_markdown);
        else
            (void)snprintf(text, sizeof(text), "%s", is_markdown ? "" : "-");
        if (is_markdown)
            (void)fprintf(out, " %s |", text);
        else
            (void)fprintf(out, "%-*s", WIDTH, text);
    }
    (void)fprintf(out, "\n");
}

static bool has_row(const struct cell *cells, size_t count, enum fault fault)
{
    for (size_t a = 0; a < ALGORITHMS; a++)
        if (find(cells, count, fault, a) != NULL)
            return true;
    return false;
}

void print_matrix(FILE *out, const struct cell *cells, size_t count,
                  bool is_markdown)
{
    if (is_markdown)
        (void)fprintf(out, "| |");
    else
        (void)fprintf(out, "%-*s", FAULT_WIDTH, "");
    for (size_t a = 0; a < ALGORITHMS; a++)
        if (!is_column(a))
            continue;
        else if (is_markdown)
            (void)fprintf(out, " %s |", algorithm_names[a]);
        else
            (void)fprintf(out, "%-*s", WIDTH, algorithm_names[a]);
    (void)fprintf(out, is_markdown ? "\n|---|---|---|---|---|---|\n" : "\n");
    for (enum fault f = FAULT_NONE; f < FAULTS; f++)
        if (has_row(cells, count, f))
            print_row(out, cells, count, f, is_markdown);
}

void print_json(FILE *out, const struct cell *cells, size_t count)
{
    const char *comma = "";

    (void)fprintf(out, "[");
    for (size_t i = 0; i < count; i++) {
        const struct cell *c = &cells[i];
        if (!c->has_run)
            continue;
        (void)fprintf(out,
                      "%s\n{\"algorithm\": \"%s\", \"fault\": \"%s\", "
                      "\"entries\": %zu, \"overlaps\": %zu, "
                      "\"overlaps_without_the_victim\": %zu, "
                      "\"tokens_out_of_order\": %zu, \"losses_told\": %zu, "
                      "\"writes_refused\": %zu, \"old_writes_accepted\": %llu, "
                      "\"recovered_ms\": ",
                      comma, algorithm_names[c->algorithm],
                      fault_texts[c->fault].name, c->verdict.entries,
                      c->verdict.overlaps, c->verdict.bystanders,
                      c->verdict.disorders, c->verdict.losses,
                      c->verdict.refused, (unsigned long long)c->old_writes);
        if (c->recovered_ms == UINT64_MAX)
            (void)fprintf(out, "null}");
        else
            (void)fprintf(out, "%llu}", (unsigned long long)c->recovered_ms);
        comma = ",";
    }
    (void)fprintf(out, "\n]\n");
}
