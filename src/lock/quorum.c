/* The majority. Its invariant: once a verdict is not OPEN, later answers of the
 * same operation do not turn it into YES. */
#include "lock/quorum.h"

#include "base/clock.h"
#include "base/error.h"

#define DRIFT_DIVISOR 100
#define DRIFT_MS 2
#define PATIENCE_DIVISOR 20
#define PATIENCE_MIN_MS 10

void shed_tally_add(struct shed_tally *t, const struct shed_exchange *exchange)
{
    t->ended[exchange->end]++;
    if (exchange->end == SHED_EXCHANGE_YES) {
        t->has_waiters |= exchange->has_waiters;
        if (exchange->fence > t->fence)
            t->fence = exchange->fence;
    } else if (exchange->end != SHED_EXCHANGE_NO) {
        t->error = exchange->error;
    } else if (exchange->look_ms > 0 &&
               (t->look_ms == 0 || exchange->look_ms < t->look_ms)) {
        t->look_ms = exchange->look_ms;
    }
}

/* How many servers have not answered yet. */
static size_t count_silent(const struct shed_tally *t)
{
    size_t silent = t->servers;

    for (size_t i = 0; i < SHED_EXCHANGE_ENDS; i++)
        silent -= t->ended[i];
    return silent;
}

void shed_tally_skip(struct shed_tally *t, const char *why)
{
    (void)shed_fail(&t->error, SHED_EREDIS, "%s", why);
    t->ended[SHED_EXCHANGE_FAILED]++;
}

void shed_tally_close(struct shed_tally *t, const char *why)
{
    while (count_silent(t) > 0)
        shed_tally_skip(t, why);
}

/* A holder with a bare majority that gets no answer from one of its servers has
 * not lost the lock yet: that server may still keep others out. */
static bool is_no(const struct shed_tally *t, size_t majority)
{
    size_t no = t->ended[SHED_EXCHANGE_NO];
    size_t lost =
        t->ended[SHED_EXCHANGE_FAILED] + t->ended[SHED_EXCHANGE_WRONG];

    return t->op == SHED_LOCK_OP_ACQUIRE ? no > 0 && lost < majority
                                         : no >= majority;
}

enum shed_verdict shed_tally_verdict(const struct shed_tally *t)
{
    size_t majority = t->servers / 2 + 1;
    size_t yes = t->ended[SHED_EXCHANGE_YES];

    if (yes >= majority)
        return SHED_VERDICT_YES;
    if (yes + count_silent(t) >= majority)
        return SHED_VERDICT_OPEN;
    if (t->ended[SHED_EXCHANGE_WRONG] >= majority)
        return SHED_VERDICT_WRONG;
    return is_no(t, majority) ? SHED_VERDICT_NO : SHED_VERDICT_FAILED;
}

uint64_t shed_lock_valid_until_ms(const struct shed_exchange *exchange)
{
    uint64_t lease_ms = exchange->lease_ms;
    uint64_t drift_ms = lease_ms / DRIFT_DIVISOR + DRIFT_MS;

    if (!exchange->spec->algorithm->has_lease)
        return UINT64_MAX;
    return exchange->asked_ms + shed_left_ms(lease_ms, drift_ms);
}

uint64_t shed_quorum_patience_ms(size_t servers, uint64_t lease_ms,
                                 uint64_t command_timeout_ms)
{
    uint64_t patience_ms = lease_ms / PATIENCE_DIVISOR;

    if (servers == 1)
        return UINT64_MAX;
    if (patience_ms < PATIENCE_MIN_MS)
        patience_ms = PATIENCE_MIN_MS;
    return patience_ms < command_timeout_ms ? patience_ms : command_timeout_ms;
}

bool shed_quorum_is_void(size_t servers, const struct shed_exchange *exchange,
                         bool is_answered, uint64_t age_ms)
{
    bool is_grant = exchange->op == SHED_LOCK_OP_ACQUIRE &&
                    (!is_answered || exchange->end == SHED_EXCHANGE_YES);
    bool is_lack = exchange->op == SHED_LOCK_OP_EXTEND && is_answered &&
                   exchange->end == SHED_EXCHANGE_NO;
    bool may_have_forgotten = age_ms < exchange->spec->options->lease_ms ||
                              (is_answered && age_ms == SHED_AGE_UNKNOWN);

    return servers > 1 && (is_grant || is_lack) && may_have_forgotten;
}
