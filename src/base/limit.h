/* A bound on how often something is said, and a count of what was left out.
 * Pure. */
#ifndef SHED_LIMIT_H
#define SHED_LIMIT_H

#include <stdbool.h>
#include <stdint.h>

/* Zero to begin with. */
struct shed_limit {
    uint64_t began_ms;   /* when the present second began */
    uint64_t passed;     /* how many passed in it */
    uint64_t suppressed; /* how many did not, since they were last taken */
};

/* Whether one more may pass: per_second pass in each second, which begins with
 * the first of them. One that may not is counted. now_ms is monotonic. */
bool shed_limit_pass(struct shed_limit *limit, uint64_t per_second,
                     uint64_t now_ms);

/* Count one that passed and was lost all the same. */
void shed_limit_suppress(struct shed_limit *limit);

/* Returns: how many were suppressed since this was last called. */
uint64_t shed_limit_take(struct shed_limit *limit);

#endif
