/* A rate limit. Its one invariant: the numbers that passed, were taken, and are
 * still to be taken add up to the number of calls of pass. */
#include "base/limit.h"

#define SECOND_MS ((uint64_t)1000)

bool shed_limit_pass(struct shed_limit *limit, uint64_t per_second,
                     uint64_t now_ms)
{
    if (limit->passed == 0 || now_ms - limit->began_ms >= SECOND_MS) {
        limit->began_ms = now_ms;
        limit->passed = 0;
    }
    if (limit->passed >= per_second) {
        limit->suppressed++;
        return false;
    }
    limit->passed++;
    return true;
}

void shed_limit_suppress(struct shed_limit *limit)
{
    limit->suppressed++;
}

uint64_t shed_limit_take(struct shed_limit *limit)
{
    uint64_t suppressed = limit->suppressed;

    limit->suppressed = 0;
    return suppressed;
}
