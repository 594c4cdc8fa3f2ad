/*
 * The judge of the lock torture: what the records of entries and exits say of
 * exclusion, of tokens, of writes. Pure.
 */
#ifndef TORTURE_JUDGE_H
#define TORTURE_JUDGE_H

#include <stddef.h>
#include <stdint.h>

enum torture_kind {
    TORTURE_ENTER = 'E',
    TORTURE_EXIT = 'X',
    TORTURE_KILLED = 'K', /* from outside; ends what it was inside for */
    TORTURE_LOST = 'L',   /* it was told that its lock is lost */
    TORTURE_WRITE = 'W',  /* a write that was accepted */
    TORTURE_REFUSED = 'R' /* a write that the guard refused */
};

struct torture_record {
    uint64_t at_us;
    unsigned contender;
    enum torture_kind kind;
    uint64_t number; /* the token's, 0 without */
};

struct torture_verdict {
    size_t entries;
    size_t overlaps;   /* pairs that were inside at a time */
    size_t bystanders; /* of these, pairs without the victim */
    size_t disorders;  /* entries whose number is not above the last one's */
    size_t losses;
    size_t refused;
};

/* No victim. */
#define TORTURE_NOBODY ((unsigned)-1)

/* records are sorted here, by time. */
struct torture_verdict torture_judge(struct torture_record *records,
                                     size_t count, unsigned victim);

/* When the first other than victim entered after since_us; 0 if nobody did. */
uint64_t torture_next_entry_us(const struct torture_record *records,
                               size_t count, unsigned victim,
                               uint64_t since_us);

#endif
