/* A limit on how often something is reported, and a count of what was left out.
 * Pure. */
#ifndef SHED_LIMIT_H
#define SHED_LIMIT_H

#include <stdbool.h>
#include <stdint.h>

/* All zero at the beginning. */
struct shed_limit {
    uint64_t began_ms;   /* when the present interval began */
    uint64_t passed;     /* how many passed in it */
    uint64_t suppressed; /* refused since the last take. The user adds one for
                            each that has passed and was lost later */
};

/* Whether one more may pass: at most this many in each interval, where an
 * interval begins with the first that passes. One that may not pass is counted.
 * now_ms is monotonic. */
bool shed_limit_pass(struct shed_limit *limit, uint64_t most,
                     uint64_t interval_ms, uint64_t now_ms);

/* Whether the interval is over, so that the next one passes. */
bool shed_limit_is_over(const struct shed_limit *limit, uint64_t interval_ms,
                        uint64_t now_ms);

/* Returns: how many were suppressed since this was last called. */
uint64_t shed_limit_take(struct shed_limit *limit);

#endif
