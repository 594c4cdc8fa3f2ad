/*
 * A bound on work in groups: at most so many things per second. What a slow
 * server has delayed is not caught up with later.
 */
#ifndef CLI_RATE_H
#define CLI_RATE_H

#include <stdint.h>

struct cli_rate {
    uint64_t per_s;  /* per second, at least 1 */
    uint64_t due_us; /* when the next group may begin; 0 at the beginning */
};

/* Count a group of things. Returns: how long to wait before it, us. now_us is
 * monotonic. */
uint64_t cli_rate_count(struct cli_rate *rate, uint64_t count, uint64_t now_us);

/* The same, and wait. */
void cli_rate_keep(struct cli_rate *rate, uint64_t count);
#endif
