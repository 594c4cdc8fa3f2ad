/*
 * The judge of the lock torture: what the records of entries and exits say
 * about exclusion, tokens and writes. Pure.
 */
#ifndef TORTURE_JUDGE_H
#define TORTURE_JUDGE_H

#include <stddef.h>
#include <stdint.h>

enum torture_kind {
    TORTURE_ENTER = 'E',
    TORTURE_EXIT = 'X',
    TORTURE_KILLED = 'K', /* killed; ends its entry */
    TORTURE_LOST = 'L',   /* it was told that it lost the lock */
    TORTURE_WRITE = 'W',  /* a write that was accepted */
    TORTURE_REFUSED = 'R' /* a write that the guard refused */
};

struct torture_record {
    uint64_t at_us;
    unsigned contender;
    enum torture_kind kind;
    uint64_t number; /* the token; 0: none. TORTURE_LOST: 1: its lease ended,
                        0: Redis said that it is gone */
};

struct torture_verdict {
    size_t entries;
    size_t overlaps;   /* pairs that were inside at the same time */
    size_t bystanders; /* those of them without the victim */
    size_t ended; /* those of them whose first lost it because its lease ended
                     and no renewal had succeeded */
    size_t disorders; /* entries whose token is not above the previous one */
    size_t losses;
    size_t refused;
};

/* No victim. */
#define TORTURE_NOBODY ((unsigned)-1)

/* Judge the records, which this sorts by time. */
struct torture_verdict torture_judge(struct torture_record *records,
                                     size_t count, unsigned victim);

/* When a contender other than victim first entered after since_us; 0 if none
 * did. */
uint64_t torture_next_entry_us(const struct torture_record *records,
                               size_t count, unsigned victim,
                               uint64_t since_us);

#endif
