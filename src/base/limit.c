/* A rate limit. Its one invariant: the numbers that passed, were taken, and are
 * still to be taken add up to the number of calls of pass. */
#include "base/limit.h"

bool shed_limit_is_over(const struct shed_limit *limit, uint64_t interval_ms,
                        uint64_t now_ms)
{
    return limit->passed == 0 || now_ms - limit->began_ms >= interval_ms;
}

bool shed_limit_pass(struct shed_limit *limit, uint64_t most,
                     uint64_t interval_ms, uint64_t now_ms)
{
    if (shed_limit_is_over(limit, interval_ms, now_ms)) {
        limit->began_ms = now_ms;
        limit->passed = 0;
    }
    if (limit->passed >= most) {
        limit->suppressed++;
        return false;
    }
    limit->passed++;
    return true;
}

uint64_t shed_limit_take(struct shed_limit *limit)
{
    uint64_t suppressed = limit->suppressed;

    limit->suppressed = 0;
    return suppressed;
}
