/* The outcome of a cell of the lock torture: whether the promises were kept,
 * whether the known weaknesses showed, and whether that is reliable. Pure. */
#ifndef TORTURE_CHECK_H
#define TORTURE_CHECK_H

#include <stddef.h>
#include <stdint.h>

#include "fault/torture_report.h"

enum torture_outcome {
    TORTURE_AS_EXPECTED,
    TORTURE_NOT_SHOWN, /* a weakness has not shown this time, which is chance */
    TORTURE_DISTURBED, /* processes that did not run explain what is wrong */
    TORTURE_WRONG
};

enum { TORTURE_TEXT_BYTES = 128 };

/* stall_ms: the longest time for which a process did not run although the cell
 * had not stopped it; leases last lease_ms. text: what is wrong. */
enum torture_outcome torture_check(const struct cell *cell, uint64_t stall_ms,
                                   uint64_t lease_ms,
                                   char text[TORTURE_TEXT_BYTES]);

#endif
