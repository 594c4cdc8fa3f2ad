/* The monotonic clock. */
#ifndef DEMO_CLOCK_H
#define DEMO_CLOCK_H

#include <stdint.h>

uint64_t demo_now_us(void);
void demo_nap(uint64_t us);

#endif
