/* What a cell of the lock torture says: whether what is promised held, and what
 * is known as a weakness showed; and whether that is to be believed. Pure. */
#ifndef TORTURE_CHECK_H
#define TORTURE_CHECK_H

#include <stddef.h>
#include <stdint.h>

#include "fault/torture_report.h"

enum torture_outcome {
    TORTURE_AS_EXPECTED,
    TORTURE_NOT_SHOWN, /* a weakness, this time: whether it shows is chance */
    TORTURE_DISTURBED, /* processes that stood still explain what is wrong */
    TORTURE_WRONG
};

enum { TORTURE_TEXT_BYTES = 128 };

/* stall_ms: for how long at most a process stood still at a time to which the
 * cell did not do that; with leases of lease_ms. text: what is wrong. */
enum torture_outcome torture_check(const struct cell *cell, uint64_t stall_ms,
                                   uint64_t lease_ms,
                                   char text[TORTURE_TEXT_BYTES]);

#endif
