/*
 * The state machine of a lock. Its invariants: one round at a time; a hold
 * begins only with a verdict of YES that came while its lease is safe; each
 * request is answered exactly once; each server has one question at a time.
 *
 * Design notes
 *
 * A round is one operation on all servers. It is decided as soon as the answers
 * leave only one possible verdict (quorum.h), or when its patience ends. Then
 * nobody waits for the missing answers: a server that has not answered becomes
 * BUSY, and its voter keeps account of what must follow (voter.h). With one
 * server the round is that server's answer, and nothing else begins while the
 * server is busy.
 *
 * When nothing is under way, these are tried in this order, and the first that
 * has something to do begins:
 *
 *   1. acquires whose time is over, or that cannot succeed, are answered.
 * First, because anything that begins below would make them wait for a whole
 * round. What they may have left on a server is undone at once.
 *   2. leftovers are removed. Before any round, because a leftover keeps others
 *      out for a lease, and with one server makes the next try wait.
 *   3. a release, an extension, an advance: somebody waits for the result, and
 *      a release lets others in.
 *   4. closing: the hold is released; once every server is idle, closing is
 *      complete. After 3, so that earlier requests are still served. Nothing
 *      below begins after that.
 *   5. the renewal of the hold, which has a deadline.
 *   6. a try. Last, because callers of acquire expect to wait.
 *
 * A try asks for the first request of the queue after a change of the key, a
 * release by this handle, or the end of a pause (retry_at_ms). A request
 * that wants a single try does not wait for that. Neither does a request whose
 * time is over and since whose arrival nothing was tried (needs_try). A
 * quorum's try goes on with an ADVANCE: before anybody sees the fencing number,
 * it is written to a majority, higher than any number found there. So whichever
 * majority the next holder gets, one of its servers knows the number.
 *
 * A hold has a generation. An answer for an earlier hold finds another
 * generation and changes nothing; if it has renewed a lock that nobody holds,
 * the renewal is undone.
 *
 * Exactly once: a request is in one of the two queues from the moment it is
 * added, and leaves it with its answer, only in shed_lock_answer(). While a
 * round is under way for a request, nothing else answers it. The driver
 * performs answers, losses and the end of closing after the step, so no
 * callback runs in the middle of a decision.
 */
#include "lock/machine.h"

#include <assert.h>

#include "base/error.h"

/* How long a waiter elsewhere needs at most to hear of a release of one server,
 * and to ask. */
#define STEP_BACK_MS 2

/* ------------------------------------------------------------ what is next */

/* Whether no round can begin. With several servers, one of them may be busy. */
static bool is_engaged(const struct shed_lock_machine *m)
{
    return m->round.is_open ||
           (shed_lock_is_alone(m) && m->voter[0].state != SHED_VOTER_IDLE);
}

/* Whether a request that is over has yet to ask: no try was made since it came,
 * because other commands kept the engine busy, or because the first request of
 * the queue had to wait. A request with a short wait must not get less than one
 * that does not wait at all. That one asks unless another has asked since it
 * came and has found the lock taken, so that many of them need two round trips
 * at most. */
static bool needs_try(const struct shed_lock_machine *m,
                      const struct shed_lock_request *r)
{
    bool is_single = r->holder.wait_ms == 0;

    return !r->is_tried &&
           (is_single ? !r->is_asked_for || m->last_try.code != SHED_ETIMEDOUT
                      : !r->is_asked_for && m->facts.is_settled) &&
           !shed_hold_is_safe(&m->hold, m->now_ms);
}

static bool is_over(const struct shed_lock_machine *m,
                    const struct shed_lock_request *r)
{
    return r->is_cancelled || (m->now_ms >= r->deadline_ms && !needs_try(m, r));
}

static void clean_due(struct shed_lock_machine *m)
{
    for (size_t i = 0; i < m->count; i++)
        if (m->now_ms >= shed_voter_clean_at_ms(&m->voter[i]))
            shed_lock_clean(m, i);
}

static void end_overdue(struct shed_lock_machine *m)
{
    for (struct shed_lock_request *r = shed_lock_request_of(m->acquires.first),
                                  *next;
         r != NULL; r = next) {
        next = shed_lock_next(r);
        if (is_engaged(m))
            return; /* with removing what another request has left */
        if (m->life != SHED_LOCK_OPEN)
            (void)shed_lock_fail_closed(&r->error);
        else if (m->facts.refusal != NULL)
            r->error = *m->facts.refusal;
        else if (!is_over(m, r))
            continue;
        else if (!m->facts.is_settled)
            (void)shed_fail(&r->error, SHED_EREDIS,
                            "Redis %s has not answered its first command yet",
                            m->where);
        else if (!r->is_tried && m->last_try.code != SHED_OK &&
                 !shed_hold_is_safe(&m->hold, m->now_ms))
            r->error =
                m->last_try; /* of the request that asked on behalf of all */
        if (r->may_be_left || (r->is_tried && m->spec->options->fair != 0))
            shed_lock_cancel_try(m, &r->holder);
        shed_lock_answer(m, r, r->error.code);
    }
}

static void begin_extend(struct shed_lock_machine *m,
                         struct shed_lock_request *r)
{
    r->holder = m->hold.holder;
    shed_round_begin(m, r);
    /* Redis may begin a lease without an answer that is read in time */
    if (r->lease_ms > 0)
        m->hold.valid_until_ms =
            shed_lock_sooner_ms(m->hold.valid_until_ms,
                                shed_lock_valid_until_ms(&m->round.question));
}

/* Release, extend, advance: what a caller has requested. */
static bool begin_other(struct shed_lock_machine *m)
{
    struct shed_lock_request *r = shed_lock_request_of(m->others.first);

    if (r == NULL)
        return false;
    if (r->is_inner) {
        shed_lock_answer(m, r, SHED_OK);
    } else if (r->op != SHED_LOCK_OP_EXTEND) {
        shed_round_begin(m, r);
    } else if (m->hold.is_held && m->hold.generation == r->generation) {
        begin_extend(m, r);
    } else {
        (void)shed_fail(&r->error, SHED_ELOST, "the lock is no longer held");
        shed_lock_answer(m, r, SHED_ELOST);
    }
    return true;
}

static bool begin_closing(struct shed_lock_machine *m)
{
    if (m->hold.is_held) {
        m->closer->is_inner = false;
        shed_lock_machine_leave(m, m->closer, m->facts.now_us);
        shed_round_begin(m, m->closer);
        return true;
    }
    for (size_t i = 0; i < m->count; i++)
        if (m->voter[i].state != SHED_VOTER_IDLE)
            return false;
    m->life = SHED_LOCK_CLOSED;
    shed_list_append(&m->act.answered, &m->closer->node);
    return false;
}

/* Renew the hold. If its lease is not prolonged any longer and its record must
 * only be written again, its end stays the same. */
static bool begin_renewal(struct shed_lock_machine *m)
{
    struct shed_hold *hold = &m->hold;
    bool is_prolonged = m->spec->algorithm->has_lease &&
                        !shed_owner_has_ended(hold->owner) &&
                        m->now_ms < hold->renew_until_ms;
    /* a bare token names no session */
    bool is_stale = m->spec->algorithm->has_tokens && hold->epochs != m->epochs;

    if (!hold->is_held || m->now_ms < hold->renew_at_ms)
        return false;
    if (!is_prolonged && !is_stale) {
        hold->renew_at_ms = UINT64_MAX;
        return false;
    }
    m->renewal = (struct shed_lock_request){
        .op = SHED_LOCK_OP_EXTEND,
        .generation = hold->generation,
        .lease_ms = is_prolonged ? hold->lease_ms : 0};
    begin_extend(m, &m->renewal);
    return true;
}

/* ------------------------------------------------------------------ a try */

static void begin_acquire(struct shed_lock_machine *m,
                          struct shed_lock_request *r)
{
    for (struct shed_lock_request *q = shed_lock_request_of(m->acquires.first);
         q != NULL; q = shed_lock_next(q))
        q->is_asked_for = true;
    if (r == shed_lock_request_of(m->acquires.first))
        m->retry_at_ms = UINT64_MAX; /* until it has an answer, or a change */
    r->is_tried = true;
    r->is_takeover = false;
    shed_count(&m->counters->tries, 1);
    shed_round_begin(m, r);
}

/* Whether the cohort of this handle has just ended, so that it lets others in
 * elsewhere. */
static bool steps_back(struct shed_lock_machine *m)
{
    uint64_t delay_ms =
        shed_lock_is_alone(m) ? STEP_BACK_MS : SHED_LOCK_SPREAD_MS;

    if (m->now_ms - m->cohort_ended_ms >= delay_ms ||
        shed_lock_request_of(m->acquires.first)->holder.wait_ms == 0)
        return false;
    m->retry_at_ms = m->now_ms + delay_ms + shed_lock_jitter_ms(m);
    return true;
}

/* Whether this handle holds the lock: then there is no need to ask Redis, since
 * the release wakes the queue. Not without tokens, because then nobody would
 * step back for waiters of other handles, nor in a fair lock, where each
 * request has to be enlisted. */
static bool is_held_here(struct shed_lock_machine *m)
{
    if (!m->spec->algorithm->has_tokens || m->spec->options->fair != 0 ||
        !shed_hold_is_safe(&m->hold, m->now_ms))
        return false;
    m->retry_at_ms = m->hold.valid_until_ms;
    return true;
}

/* The request that is to ask now, NULL: none. may_wait: this handle holds the
 * lock, so its release will wake the queue. */
static struct shed_lock_request *next_to_ask(struct shed_lock_machine *m,
                                             bool may_wait)
{
    struct shed_lock_request *first = shed_lock_request_of(m->acquires.first);

    /* a wake-up is for a request that has waited, not for newcomers */
    if (first->is_tried && m->now_ms >= m->retry_at_ms && !may_wait)
        return first;
    for (struct shed_lock_request *r = first; r != NULL; r = shed_lock_next(r))
        if (!r->is_tried &&
            (((r == first || m->now_ms >= r->deadline_ms) && !may_wait) ||
             m->spec->options->fair != 0))
            return r;
    return NULL;
}

static bool begin_try(struct shed_lock_machine *m)
{
    struct shed_lock_request *r;

    if (m->acquires.first == NULL)
        return false;
    if (!m->facts.is_settled) {
        m->retry_at_ms = UINT64_MAX; /* the next epoch event wakes it */
        return false;
    }
    if (steps_back(m))
        return false;
    r = next_to_ask(m, is_held_here(m));
    if (r != NULL)
        begin_acquire(m, r);
    return r != NULL;
}

/* ---------------------------------------------------------------- the step */

/* In the order of the design notes. Returns: whether something was begun; it
 * may already have ended. */
static bool begin_next(struct shed_lock_machine *m)
{
    end_overdue(m);
    if (m->life == SHED_LOCK_OPEN)
        clean_due(m);
    if (is_engaged(m))
        return false;
    if (begin_other(m))
        return true;
    if (m->life != SHED_LOCK_OPEN)
        return begin_closing(m);
    return begin_renewal(m) || begin_try(m);
}

static void go_on(struct shed_lock_machine *m)
{
    do {
        shed_lock_machine_see_end(m, m->facts.now_us);
        while (shed_round_end(m))
            ; /* one round may be followed by another */
    } while (!is_engaged(m) && begin_next(m));
}

/* After an epoch the record in Redis names a wrong run of the server or a wrong
 * channel, so it must be rewritten. A change that overtakes the answer to a try
 * wakes the next try. A change on several servers is heard from one after the
 * other, so a quorum waits for a moment. */
static void on_change(struct shed_lock_machine *m, bool is_epoch, size_t server)
{
    if (is_epoch) {
        m->epochs++;
        m->hold.renew_at_ms = 0;
        m->voter[server].clean_at_ms = 0;
    }
    m->retry_at_ms = m->now_ms + shed_lock_jitter_ms(m);
}

static uint64_t timer_at_ms(const struct shed_lock_machine *m)
{
    uint64_t at_ms =
        shed_hold_due_ms(&m->hold, m->spec->options->on_lost != NULL);

    if (m->life == SHED_LOCK_CLOSED)
        return UINT64_MAX;
    if (is_engaged(m)) { /* nothing begins before it ends */
        at_ms = m->hold.is_held ? m->hold.valid_until_ms : UINT64_MAX;
        return m->round.is_open
                   ? shed_lock_sooner_ms(at_ms, m->round.patience_until_ms)
                   : at_ms;
    }
    for (size_t i = 0; i < m->count && m->life == SHED_LOCK_OPEN; i++)
        at_ms =
            shed_lock_sooner_ms(at_ms, shed_voter_clean_at_ms(&m->voter[i]));
    if (m->acquires.first != NULL)
        at_ms = shed_lock_sooner_ms(at_ms, m->retry_at_ms);
    for (const struct shed_lock_request *r =
             shed_lock_request_of(m->acquires.first);
         r != NULL; r = shed_lock_next(r))
        if (m->now_ms < r->deadline_ms) /* else it asks next */
            at_ms = shed_lock_sooner_ms(at_ms, r->deadline_ms);
    return at_ms;
}

void shed_lock_step(struct shed_lock_machine *m, enum shed_lock_event event,
                    size_t server, const struct shed_lock_facts *facts)
{
    assert(server < m->count);
    m->act.timer_at_ms = UINT64_MAX;
    if (m->life == SHED_LOCK_CLOSED)
        return;
    m->facts = *facts;
    m->now_ms = facts->now_us / SHED_US_PER_MS;
    m->random = facts->random;
    if (event == SHED_LOCK_EV_ANSWERED)
        shed_round_answered(m, server);
    else if (event == SHED_LOCK_EV_CHANGE || event == SHED_LOCK_EV_EPOCH)
        on_change(m, event == SHED_LOCK_EV_EPOCH, server);
    go_on(m);
    m->act.timer_at_ms = timer_at_ms(m);
}
