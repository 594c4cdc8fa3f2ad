/*
 * Whether a load of a source may begin. One answer for all that bounds loads:
 * max_loads and the adaptive limit (concurrency.h), the budget of the fleet
 * (fleet.h), and the breaker (base/breaker.h), which learns from each load.
 *
 * A key takes a pass of the breaker when it is queued; a load of many keys
 * begins and ends. The source calls all of this with its lock held.
 */
#ifndef SHED_ADMISSION_H
#define SHED_ADMISSION_H

#include <stdbool.h>

#include <snowshed/source.h>

#include "base/breaker.h"
#include "source/concurrency.h"
#include "source/fleet.h"

struct shed_admission {
    /* set by init */
    const struct shed_source_options *options;
    struct shed_fleet *fleet;
    /* its own; to be read */
    size_t running;                      /* loads under way */
    uint64_t begun;                      /* loads, ever */
    struct shed_concurrency concurrency; /* used with adaptive_loads */
    struct shed_breaker breaker;
    char last_failure[SHED_REASON_BYTES]; /* of a load that opened it */
};

/* A load. */
struct shed_admitted {
    /* set when it begins */
    size_t alive;       /* loads under way, with itself */
    uint64_t number;    /* of the source's loads, from 1 */
    uint64_t term;      /* of the breaker */
    bool is_probe;      /* the breaker is half-open */
    uint64_t waited_us; /* for a slot of the fleet's budget */
    /* set by the caller when it has ended */
    uint64_t cost_us;
    size_t keys;
    uint64_t id;         /* shed_load_batch_id */
    const char *failure; /* why every key failed; NULL: not every key did */
};

/* options must have been checked, and outlive it, as fleet must. */
void shed_admission_init(struct shed_admission *a,
                         const struct shed_source_options *options,
                         struct shed_fleet *fleet);

/* How many loads may be under way now, without the fleet's budget. */
size_t shed_admission_limit(const struct shed_admission *a);

/* Whether one more key could be let into the queue; it is, if takes.
 * Returns: SHED_OK; SHED_ESOURCE. */
SHED_MUST_CHECK enum shed_code shed_admission_pass(struct shed_admission *a,
                                                   bool takes,
                                                   struct shed_error *err);

/* Say that so many batches wait: the fleet's budget is asked for as many slots
 * as there is room for. */
void shed_admission_want(struct shed_admission *a, size_t batches);

/* Whether a load may begin now. */
bool shed_admission_may_begin(const struct shed_admission *a);

/* A load begins, which shed_admission_may_begin allowed. */
void shed_admission_begin(struct shed_admission *a, struct shed_admitted *out);

/* Learn from a load, which goes on counting until shed_admission_end.
 * Returns: whether the breaker opened, as why says, or closed. If it opened,
 * the keys that were let in must not be loaded. */
bool shed_admission_learn(struct shed_admission *a,
                          const struct shed_admitted *load,
                          struct shed_error *why);

/* The load no longer counts. */
void shed_admission_end(struct shed_admission *a);

#endif
