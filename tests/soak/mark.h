/* Marks in memory that several processes share. They only grow. */
#ifndef SOAK_MARK_H
#define SOAK_MARK_H

#include <stdatomic.h>
#include <stdint.h>

/* Raise a mark to at least this version. */
static inline void soak_raise(atomic_uint *mark, unsigned to)
{
    unsigned now = atomic_load(mark);

    while (now < to && !atomic_compare_exchange_weak(mark, &now, to))
        ;
}

/* The same for a time, or a count. */
static inline void soak_raise_to(_Atomic uint64_t *mark, uint64_t to)
{
    uint64_t now = atomic_load(mark);

    while (now < to && !atomic_compare_exchange_weak(mark, &now, to))
        ;
}

#endif
