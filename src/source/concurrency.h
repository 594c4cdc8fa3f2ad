/*
 * How many loads may be alive at a time, learnt from how long loads take. Pure.
 *
 * Sources: the gradient of Netflix's concurrency-limits (GradientLimit), as
 * Envoy's adaptive concurrency filter applies it: the limit is multiplied by
 * the ratio of the latency without load to the present one, and grows by a
 * share of its square root; the latency without load is measured again from
 * time to time, at a limit of 1. That all who share the server measure at the
 * same time is BBR's idea (Cardwell et al., "BBR: Congestion-Based Congestion
 * Control", ACM Queue 2016: PROBE_RTT). Slow start is TCP's (RFC 5681, 3.1).
 */
#ifndef SHED_CONCURRENCY_H
#define SHED_CONCURRENCY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Class i is of loads of more than 2^(i-1) keys, up to 2^i. */
#define SHED_CONCURRENCY_CLASSES 15 /* 10000 keys and more */
#define SHED_CONCURRENCY_KEPT 5     /* an odd number has a median */
#define SHED_CONCURRENCY_WINDOW 64  /* most samples that are judged at once */

/* Loads of a class that ran alone: the latest ones of a probe. */
struct shed_concurrency_base {
    struct shed_concurrency_lone {
        double latency_us;
        uint64_t keys;
    } lone[SHED_CONCURRENCY_KEPT];
    size_t count;   /* that were added */
    uint64_t probe; /* its number; 0: they were alone by chance */
};

struct shed_concurrency {
    /* set by init */
    size_t ceiling;
    /* its own */
    double limit;
    bool is_in_slow_start;
    struct shed_concurrency_base base[SHED_CONCURRENCY_CLASSES];
    uint64_t since_us; /* loads that began before it say nothing of the limit */
    struct {
        double slowness[SHED_CONCURRENCY_WINDOW];
        uint64_t latency_us; /* the sum */
        size_t count;
        size_t unknown; /* without a base for their size */
        size_t most_alive;
    } window;
    uint64_t typical_us; /* the mean latency of the last window */
    bool is_probing;
    uint64_t probes;               /* ever */
    size_t probed;                 /* lone loads of this one */
    uint64_t probe_us, settled_us; /* its begin; loads that begin earlier than
                                      that do not count */
    uint64_t slot, period;         /* of the last probe; slots between two */
};

/* A load that has ended. */
struct shed_concurrency_sample {
    uint64_t latency_us;
    size_t keys;
    size_t alive;    /* loads when it began, with itself */
    bool is_lone;    /* no other one was alive at any time of it */
    bool has_failed; /* every key of it */
};

/* Begin below ceiling, which is at least 1. */
void shed_concurrency_init(struct shed_concurrency *c, size_t ceiling);

/* Learn from a load that ended at now_us, by a monotonic clock. wall_ms is the
 * wall clock, by which the processes probe together; where clocks differ, they
 * do not, and nothing else depends on it. */
void shed_concurrency_add(struct shed_concurrency *c,
                          const struct shed_concurrency_sample *sample,
                          uint64_t now_us, uint64_t wall_ms);

/* How many may be alive now, from 1 to ceiling. Any thread that may call
 * shed_concurrency_add. */
size_t shed_concurrency_limit(const struct shed_concurrency *c);

#endif
