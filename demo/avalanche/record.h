/* What the processes of a load test write down, in memory that they share:
 * histograms, a time line, and marks about the load of the hot key. */
#ifndef DEMO_RECORD_H
#define DEMO_RECORD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/clock.h"
#include "common/histogram.h"

#define SLOT_MS 100
#define SLOTS 1200 /* two minutes */
#define PRICES 64  /* items whose prices are changed have ids below this */

/* The calls that began, and those that returned, in a slot. */
struct slot {
    _Atomic uint64_t queries;
    struct histogram latency; /* of the calls */
};

struct record {
    /* how the workers are driven */
    atomic_bool is_over;
    _Atomic uint64_t next_in_deck;
    uint64_t start_us;
    /* what the workers did */
    struct histogram latency;
    struct histogram extra;  /* return after the end of the load waited for */
    struct histogram busy;   /* of the calls while a query was under way */
    struct histogram calm;   /* of the others */
    struct histogram over;   /* how long after its deadline a call ended */
    _Atomic uint64_t waited; /* calls that waited for a load */
    _Atomic uint64_t stored; /* rows that snowshed has stored */
    _Atomic uint64_t stale;  /* calls that got what was invalidated before */
    /* By id: no call that begins now may get a lower price; and none in the
     * process that changes them. */
    _Atomic uint64_t price[PRICES], own_price[PRICES];
    _Atomic uint64_t told_late; /* changes whose invalidation failed at first */
    atomic_bool is_untold;      /* some of these are yet to be told */
    _Atomic uint64_t calls, errors;
    _Atomic uint64_t sleep_late_us;         /* the worst of the sleeps */
    _Atomic uint64_t queries, queried_keys; /* as the programs count them */
    _Atomic int64_t under_way; /* negative after a kill: the dead were
                                  subtracted, and others ended */
    _Atomic uint64_t most_under_way;
    _Atomic uint64_t last_load_start_us, last_load_end_us, load_starts;
    _Atomic int32_t loading_pid;
    struct slot slot[SLOTS];
    char first_error[160];
    atomic_flag has_error;
};

/* Map a record, zeroed, that children will share. Exits on failure. */
struct record *record_create(void);
void record_reset(struct record *record);

/* Plain bytes, zeroed, that children will share. Exits on failure. */
unsigned char *shared_bytes(size_t size);

void record_call(struct record *record, uint64_t start_us);
void record_error(struct record *record, const char *text);
/* Sleep, and note how late the machine ended the sleep. */
void record_sleep(struct record *record, uint64_t us);
void record_query_begin(struct record *record, size_t keys);
void record_query_end(struct record *record);

#endif
