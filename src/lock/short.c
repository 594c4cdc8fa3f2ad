/*
 * The short way: with an algorithm that bears being asked twice, a free lock is
 * taken and given back in the caller's thread, over the shared links, and the
 * engine hears of it only when there is something to wait for, or to renew. Its
 * invariant: what it did not hear the end of, the engine cleans up.
 *
 * Design notes
 *
 * A try goes this way only if no request of the handle waits (it would overtake
 * it) and none releases (the try could arrive first, and find the lock taken by
 * the hold that is just being given back). Two threads may still try at the
 * same time; Redis grants it to one of them, since each has a token of its own.
 *
 * Redis is asked without mu. The epoch is read before that: if the session
 * changed meanwhile, the record names the wrong one, and the hold begins with a
 * rewrite that is due (shed_lock_machine_grant).
 *
 * There are four ends of a try. Granted in time: the hold begins here. Never
 * possible (WRONG), or taken where the caller does not wait: that is the
 * answer. Everything else is handed over to the engine as a request: it waits
 * for a lock that is taken, and it removes what a try without an answer may
 * have left.
 *
 * That removal goes over the session's connection, and the try went over a
 * link. No order holds between the two: a server that was stopped may carry out
 * the undo first, and grant the lock to nobody afterwards. So the holder is
 * marked (is_unordered), and is undone twice (voter.c).
 *
 * A release needs no such care, because it and its undo remove the same token.
 * One that failed at once is made again by the engine; one that took the whole
 * command timeout is given up towards the caller, and left to the engine as a
 * leftover.
 */
#include "lock/short.h"

#include "base/clock.h"
#include "base/error.h"

/* Worth its code: acquire and release of a free LEASE lock by one thread, in
 * turn with a build without the short way on a busy machine of 2 cores, medians
 * of 25: 7545 a second and 44 us of CPU each, against 4326 and 109 us by the
 * engine, whose thread has to be woken and to wake the caller. */
bool shed_lock_goes_short(const struct shed_lock *l)
{
    return l->algorithm->may_repeat && l->count == 1;
}

bool shed_lock_may_try_short_locked(const struct shed_lock *l, uint64_t wait_ms)
{
    const struct shed_lock_machine *m = &l->machine;

    return shed_lock_goes_short(l) && m->acquires.first == NULL &&
           !shed_lock_machine_is_releasing(m) &&
           (l->options.fair == 0 || wait_ms == 0) && shed_lock_is_settled(l) &&
           shed_voter_has_room(&l->voter[0]) &&
           (wait_ms == 0 ||
            shed_lock_machine_step_back_ms(m, shed_now_ms()) == 0);
}

static void run_blocking(struct shed_lock *l, struct shed_exchange *exchange)
{
    exchange->algorithm = l->algorithm;
    exchange->spec = &l->spec;
    shed_exchange_run_blocking(exchange, l->home->links, l->home->session,
                               shed_now_ms() + l->home->command_timeout_ms);
}

static enum shed_code exchange_code(const struct shed_exchange *exchange,
                                    enum shed_code when_no)
{
    if (exchange->end == SHED_EXCHANGE_YES)
        return SHED_OK;
    return exchange->end == SHED_EXCHANGE_NO ? when_no : exchange->error.code;
}

static unsigned read_epochs(struct shed_lock *l)
{
    unsigned epochs;

    pthread_mutex_lock(&l->mu);
    epochs = l->machine.epochs;
    pthread_mutex_unlock(&l->mu);
    return epochs;
}

/* Begin the hold, if the lock was granted while its lease is safe. */
static bool take(struct shed_lock *l, const struct shed_grant *grant)
{
    uint64_t lease_ms = grant->exchange->lease_ms;
    bool is_ours;

    pthread_mutex_lock(&l->mu);
    is_ours =
        grant->exchange->end == SHED_EXCHANGE_YES &&
        shed_now_ms() < shed_lock_valid_until_ms(grant->asked_ms, lease_ms);
    if (is_ours) {
        shed_lock_machine_grant(&l->machine, grant);
        l->machine.counts.takeovers += grant->exchange->is_takeover;
    }
    shed_lock_changed_locked(l);
    pthread_mutex_unlock(&l->mu);
    return is_ours;
}

/* The engine waits, tries again, cleans up. A whole timeout is enough for a
 * caller that wants a single try. */
static void hand_over(struct shed_lock *l, struct shed_lock_request *r,
                      const struct shed_exchange *exchange, uint64_t asked_ms)
{
    bool has_failed = exchange->end == SHED_EXCHANGE_FAILED;

    r->is_tried =
        has_failed && shed_now_ms() - asked_ms >= l->home->command_timeout_ms;
    r->may_be_left = exchange->end != SHED_EXCHANGE_NO;
    r->holder.is_unordered = has_failed;
    if (r->may_be_left)
        (void)shed_fail(&r->error, SHED_EREDIS, "%s",
                        has_failed
                            ? exchange->error.reason
                            : "to get the lock took longer than its lease");
}

bool shed_lock_try_short(struct shed_lock *l, struct shed_lock_request *r)
{
    struct shed_exchange exchange = {.lease_ms = r->lease_ms};
    struct shed_grant grant = {.owner = r->owner,
                               .exchange = &exchange,
                               .asked_ms = shed_now_ms(),
                               .epochs = read_epochs(l)};

    shed_count(&l->counters.tries, 1);
    shed_exchange_begin(&exchange, SHED_LOCK_OP_ACQUIRE, &r->holder);
    run_blocking(l, &exchange);
    grant.fence = exchange.fence;
    if (take(l, &grant)) {
        r->code = SHED_OK;
        return true;
    }
    if (exchange.end == SHED_EXCHANGE_WRONG) {
        r->error = exchange.error;
        r->code = exchange.error.code;
        return true;
    }
    if (exchange.end == SHED_EXCHANGE_NO && r->holder.wait_ms == 0 &&
        l->options.fair == 0) {
        r->code = r->error.code;
        return true;
    }
    hand_over(l, r, &exchange, grant.asked_ms);
    return false;
}

enum shed_code shed_lock_fail_unconfirmed(struct shed_error *err)
{
    return shed_fail(err, SHED_EREDIS,
                     "Redis broke off during the release: the lock is gone, "
                     "by it or before it");
}

/* It was ours here, and not in Redis. */
static enum shed_code fail_gone(struct shed_error *err)
{
    return shed_fail(err, SHED_ELOST,
                     "the lock was lost: its lease ended, or it was removed");
}

bool shed_lock_release_short(struct shed_lock *l, const struct shed_hold *hold,
                             enum shed_code *code, struct shed_error *err)
{
    uint64_t begin_ms = shed_now_ms();
    struct shed_exchange exchange = {0};
    bool is_over;

    if (!shed_lock_goes_short(l))
        return false;
    shed_exchange_begin(&exchange, SHED_LOCK_OP_RELEASE, &hold->holder);
    run_blocking(l, &exchange);
    *code = exchange_code(&exchange, SHED_ELOST);
    /* what failed at once is worth another try, by the engine's connection */
    is_over = exchange.end != SHED_EXCHANGE_FAILED ||
              shed_now_ms() - begin_ms >= l->home->command_timeout_ms;
    pthread_mutex_lock(&l->mu);
    shed_lock_machine_released(
        &l->machine, exchange.end == SHED_EXCHANGE_YES && exchange.has_waiters,
        shed_now_ms());
    if (is_over && exchange.end == SHED_EXCHANGE_FAILED)
        shed_lock_machine_give_up(&l->machine, &hold->holder, shed_now_ms());
    shed_lock_changed_locked(l);
    pthread_mutex_unlock(&l->mu);
    if (exchange.end == SHED_EXCHANGE_NO)
        *code = exchange.is_repeated ? shed_lock_fail_unconfirmed(err)
                                     : fail_gone(err);
    else if (*code != SHED_OK && err != NULL)
        *err = exchange.error;
    return is_over;
}
