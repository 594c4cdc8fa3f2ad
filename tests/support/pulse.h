/* Tells a test whether the machine let it run: a thread sleeps for a moment in
 * a loop, and remembers the longest time that this took. If that is long, a
 * late event says nothing about the library. */
#ifndef PULSE_H
#define PULSE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct pulse {
    pthread_t thread;
    atomic_bool is_over;
    atomic_uint_fast64_t last_ms; /* when it last ran */
    atomic_uint_fast64_t longest_ms;
};

void pulse_start(struct pulse *p);
void pulse_stop(struct pulse *p);

/* Forget the longest time. */
void pulse_reset(struct pulse *p);

/* The longest time since the reset for which this process did not run. Other
 * processes can ask, too, if the pulse is in shared memory. */
uint64_t pulse_longest_ms(struct pulse *p);

/* Count a pause of this length. */
void pulse_note(struct pulse *p, uint64_t ms);

#endif
