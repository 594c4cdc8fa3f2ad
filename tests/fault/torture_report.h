/* The cells of the lock torture, and the matrix that shows them. */
#ifndef TORTURE_REPORT_H
#define TORTURE_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <snowshed/lock.h>

#include "fault/torture_judge.h"

enum fault {
    FAULT_NONE,
    FAULT_KILLED,
    FAULT_DIES_BETWEEN,
    FAULT_STOPS_BETWEEN,
    FAULT_STOPPED,
    FAULT_OVERRUN,
    FAULT_LATE_GETSET,
    FAULT_CLOCKS,
    FAULT_PUSHES_CUT,
    FAULT_RESTART_DATA,
    FAULT_RESTART_EMPTY,
    FAULT_FAILOVER,
    FAULT_FAILOVER_ACKED,
    FAULT_CLUSTER,
    FAULT_CLUSTER_ACKED,
    FAULT_ONE_SLOW,
    FAULT_ONE_KILLED,
    FAULT_TWO_KILLED,
    FAULT_TWO_FROZEN,
    FAULT_ONE_EMPTY,
    FAULT_THREE_KILLED,
    FAULTS
};

enum { ALGORITHMS = 6 };
/* Behind the algorithms: LEASE on a majority of several servers. */
#define TORTURE_QUORUM (SHED_LOCK_LEASE + 1)

extern const char *const algorithm_names[ALGORITHMS];

struct cell {
    unsigned algorithm; /* enum shed_lock_algorithm, or TORTURE_QUORUM */
    enum fault fault;
    const char *what; /* what happens */
    /* what is promised, or a known weakness */
    bool is_broken; /* two can be inside at the same time */
    bool is_stuck;  /* nobody can get it any longer */
    bool is_chosen;
    /* what was seen */
    bool has_run;
    struct torture_verdict verdict;
    uint64_t recovered_ms; /* UINT64_MAX: never */
    uint64_t old_writes;   /* accepted after a newer holder's */
};

bool has_tokens(const struct cell *cell);

/* Print a row for each fault and a column for each algorithm, as Markdown. */
void print_matrix(FILE *out, const struct cell cells[FAULTS][ALGORITHMS]);

#endif
