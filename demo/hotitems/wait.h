/* The monotonic clock, and waiting on a condition variable until a time of it.
 */
#ifndef HOTITEMS_WAIT_H
#define HOTITEMS_WAIT_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

uint64_t wait_now_ms(void);

/* Until then; 1 if that is over, because 0 would be for ever. */
uint64_t wait_left_ms(uint64_t deadline_ms);

/* Init both; changed counts by the monotonic clock. */
void wait_init(pthread_mutex_t *mu, pthread_cond_t *changed);

/* Under mu. Returns false if the time has passed. */
bool wait_until(pthread_cond_t *changed, pthread_mutex_t *mu,
                uint64_t until_ms);

#endif
