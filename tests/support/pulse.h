/* Tells a test whether the machine let it run: a thread that naps for a moment,
 * over and over, and keeps the longest time that this took. Where that is long,
 * what was late says nothing about the library. */
#ifndef PULSE_H
#define PULSE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct pulse {
    pthread_t thread;
    atomic_bool is_over;
    atomic_uint_fast64_t last_ms; /* when it was last awake */
    atomic_uint_fast64_t longest_ms;
};

void pulse_start(struct pulse *p);
void pulse_stop(struct pulse *p);

/* Count from here. */
void pulse_reset(struct pulse *p);

/* How long this process has stood still at a time since then. Any process may
 * ask, if the pulse is in memory that they share. */
uint64_t pulse_longest_ms(struct pulse *p);

/* Note that something took that long. */
void pulse_note(struct pulse *p, uint64_t ms);

#endif
