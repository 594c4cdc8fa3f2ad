/* The lock order, asserted: which ranks each thread holds, as bits. */
#include "base/mutex.h"

#ifndef NDEBUG

#include <assert.h>
#include <stdint.h>

static _Thread_local uint32_t held;

_Static_assert(SHED_RANK_PACER < 32, "each rank has a bit");

void shed_mutex_enter(enum shed_rank rank)
{
    assert(held >> rank == 0 && "the lock order of base/mutex.h");
    held |= (uint32_t)1 << rank;
}

void shed_mutex_leave(enum shed_rank rank)
{
    assert((held >> rank & 1) != 0 && "unlocked by the thread that locked");
    held &= ~((uint32_t)1 << rank);
}

#else

/* A file of C has something in it. */
typedef int shed_mutex_unused;

#endif
