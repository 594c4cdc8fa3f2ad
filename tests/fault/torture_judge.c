/* The judge. Its invariant: an entry that is not ended by an exit or a kill
 * lasts until the end of the records. */
#include "fault/torture_judge.h"

#include <stdbool.h>
#include <stdlib.h>

static int by_time(const void *a, const void *b)
{
    const struct torture_record *x = a, *y = b;

    return x->at_us < y->at_us ? -1 : x->at_us > y->at_us;
}

/* When the entry at i ends. */
static uint64_t end_us(const struct torture_record *records, size_t count,
                       size_t i)
{
    for (size_t j = i + 1; j < count; j++)
        if (records[j].contender == records[i].contender &&
            (records[j].kind == TORTURE_EXIT ||
             records[j].kind == TORTURE_KILLED))
            return records[j].at_us;
    return UINT64_MAX;
}

/* Whether the lease of the entry at i, which lasts until until_us, ended. */
static bool has_ended(const struct torture_record *records, size_t count,
                      size_t i, uint64_t until_us)
{
    for (size_t j = i + 1; j < count && records[j].at_us < until_us; j++)
        if (records[j].contender == records[i].contender &&
            records[j].kind == TORTURE_LOST && records[j].number != 0)
            return true;
    return false;
}

static void count_overlaps(const struct torture_record *records, size_t count,
                           size_t i, unsigned victim, struct torture_verdict *v)
{
    uint64_t until_us = end_us(records, count, i);
    bool is_ended = has_ended(records, count, i, until_us);

    for (size_t j = i + 1; j < count && records[j].at_us < until_us; j++) {
        if (records[j].kind != TORTURE_ENTER ||
            records[j].contender == records[i].contender)
            continue;
        v->overlaps++;
        v->ended += is_ended;
        v->bystanders +=
            records[i].contender != victim && records[j].contender != victim;
    }
}

struct torture_verdict torture_judge(struct torture_record *records,
                                     size_t count, unsigned victim)
{
    struct torture_verdict v = {0};
    uint64_t last = 0;

    qsort(records, count, sizeof(*records), by_time);
    for (size_t i = 0; i < count; i++) {
        v.losses += records[i].kind == TORTURE_LOST;
        v.refused += records[i].kind == TORTURE_REFUSED;
        if (records[i].kind != TORTURE_ENTER)
            continue;
        v.entries++;
        v.disorders += records[i].number != 0 && records[i].number <= last;
        last = records[i].number;
        count_overlaps(records, count, i, victim, &v);
    }
    return v;
}

uint64_t torture_next_entry_us(const struct torture_record *records,
                               size_t count, unsigned victim, uint64_t since_us)
{
    uint64_t first_us = 0;

    for (size_t i = 0; i < count; i++)
        if (records[i].kind == TORTURE_ENTER &&
            records[i].contender != victim && records[i].at_us > since_us &&
            (first_us == 0 || records[i].at_us < first_us))
            first_us = records[i].at_us;
    return first_us;
}
