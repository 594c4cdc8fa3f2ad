/* Waiting on a condition variable until a time of http_now_ms. */
#ifndef HOTITEMS_WAIT_H
#define HOTITEMS_WAIT_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* Init both; changed counts by the monotonic clock. */
void wait_init(pthread_mutex_t *mu, pthread_cond_t *changed);

/* Under mu. Returns false if the time has passed. */
bool wait_until(pthread_cond_t *changed, pthread_mutex_t *mu,
                uint64_t until_ms);

#endif
