/* What the processes of a load test write down, in memory that they share:
 * histograms, a time line, and marks about the load of the hot key. */
#ifndef DEMO_RECORD_H
#define DEMO_RECORD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A bucket is a sixteenth of a power of two of microseconds: 6 % wide. */
#define HISTOGRAM_BUCKETS (40 * 16)

struct histogram {
    _Atomic uint64_t bucket[HISTOGRAM_BUCKETS];
    _Atomic uint64_t count;
    _Atomic uint64_t max_us;
};

#define SLOT_MS 100
#define SLOTS 1200 /* two minutes */

struct slot {
    _Atomic uint64_t queries;
    _Atomic uint64_t worst_us; /* latency */
};

struct record {
    /* how the workers are driven */
    atomic_bool is_over;
    _Atomic uint64_t load_ms; /* what a query costs besides its work */
    _Atomic uint64_t next_in_deck;
    uint64_t start_us;
    /* what they did */
    struct histogram latency;
    struct histogram extra; /* return after the end of the load waited for */
    _Atomic uint64_t calls, errors;
    _Atomic uint64_t queries, queried_keys; /* as the programs count them */
    _Atomic int64_t under_way; /* below 0 after a kill: the dead were
                                  counted out, and others ended */
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
void record_destroy(struct record *record);

/* Plain bytes, zeroed, that children will share. Exits on failure. */
unsigned char *shared_bytes(size_t size);
void shared_bytes_free(unsigned char *bytes, size_t size);

uint64_t demo_now_us(void);

void record_call(struct record *record, uint64_t start_us);
void record_error(struct record *record, const char *text);
void record_query_begin(struct record *record, size_t keys);
void record_query_end(struct record *record);

void histogram_add(struct histogram *h, uint64_t us);
/* The time below which a part (0.5, 0.99) of the values are, at most a bucket
 * too long; 0 if empty. */
double histogram_ms(const struct histogram *h, double part);

#endif
