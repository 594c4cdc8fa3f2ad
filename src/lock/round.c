/*
 * A round: one operation on all servers, from the question to the consequences
 * of the verdict. Its invariant: a round that has ended counts no more answers,
 * and a server that was asked and has not answered is BUSY.
 *
 * Design notes
 *
 * A round begins with its question, which is the same for every server. A
 * server that is still busy with an earlier question gets this one afterwards
 * (is_next), if it has been busy only for a moment. A server that has been busy
 * for longer counts as silent from the beginning, because waiting for it would
 * use up the lease. A release is the exception: it goes to every server,
 * however late, and becomes a leftover where it could not be sent.
 *
 * The tally (quorum.c) decides as soon as the missing answers cannot change the
 * verdict. The round is ended at each server (end_round_at) before the verdict
 * is acted upon, because that may begin the next round at once.
 *
 * An acquire of several servers has two rounds (redis.io, "Distributed Locks
 * with Redis", for the first; M. Kleppmann, "How to do distributed locking",
 * 2016, for why there must be a second). The first, ACQUIRE, gets the lock from
 * a majority, and from each server a number of its own. The second, ADVANCE,
 * writes a number slightly above the highest of these to a majority. The number
 * counts only if it is above every number that this majority knew: any two
 * majorities have a server in common, so the next holder learns of it. If a
 * server knew a higher number, ADVANCE is repeated with a higher one, a few
 * times; if that does not settle it, the try is undone.
 *
 * An acquire with the option replicas has two rounds as well: CONFIRM asks
 * the server's replicas. What they do not acknowledge is undone.
 *
 * With one server the command of a caller that waits goes over a link, in its
 * thread. Where that does not settle the request, the round goes on and asks
 * the server once more, over the session: that may be up while links fail, and
 * only what it has read is announced when it changes. The server may execute
 * the two commands in either order: one that was stopped may carry out an undo
 * first and then grant a lock that nobody knows of. So the holder is marked
 * (is_unordered) and undone twice (voter.c). A release needs no such care,
 * because it and its undo remove the same token.
 *
 * Times count from before the question was sent (asked_ms), because a server
 * may have begun the lease at any moment since then. For the same reason, a
 * grant that arrives when its lease is no longer safe is undone and never
 * becomes a hold.
 */
#include <assert.h>

#include "base/backoff.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/random.h"
#include "lock/state.h"

/* The first pause while no pushes arrive, and the longest; it doubles up to
 * this, or to the algorithm's pause if that is shorter. */
#define ALONE_FIRST_MS 5
#define ALONE_MS 100

/* How often a fencing number is written back, and how far above the known ones.
 * Numbers follow the servers' clocks, so the step is a time in microseconds. */
#define NUMBERINGS_MAX 4
#define ABOVE ((uint64_t)1000)
#define ABOVE_SHIFT 4

/* Why a server is not asked and counts as silent. NULL: it is asked, at once or
 * after its answer to an earlier question. A release goes to every server. */
static const char *why_silent(struct shed_lock_machine *m, size_t i)
{
    const struct shed_voter *v = &m->voter[i];
    enum shed_lock_op op = m->round.question.op;

    if (op == SHED_LOCK_OP_RELEASE)
        return NULL;
    if (op == SHED_LOCK_OP_ACQUIRE && !shed_voter_has_room(v)) {
        shed_lock_clean(m, i);
        return "a server has left too many tries unanswered, which must be "
               "undone first";
    }
    if (v->state != SHED_VOTER_IDLE &&
        m->now_ms - v->asked_ms >= SHED_LOCK_SPREAD_MS)
        return "a server has not answered an earlier question yet";
    return NULL;
}

/* Ask server i, which is IDLE. */
static void ask(struct shed_lock_machine *m, size_t i,
                enum shed_voter_state state,
                const struct shed_exchange *question)
{
    assert(i < m->count);
    shed_voter_ask(&m->voter[i], state, question, m->now_ms);
    m->act.ask |= UINT32_C(1) << i;
}

static void ask_if_idle(struct shed_lock_machine *m, size_t i)
{
    if (m->voter[i].is_next && m->voter[i].state == SHED_VOTER_IDLE &&
        shed_tally_verdict(&m->round.tally) == SHED_VERDICT_OPEN)
        ask(m, i, SHED_VOTER_ASKED, &m->round.question);
}

static void ask_all(struct shed_lock_machine *m)
{
    struct shed_lock_round *round = &m->round;

    assert(!round->is_open);
    round->is_open = true;
    round->patience_until_ms = shed_deadline_ms(m->now_ms, m->patience_ms);
    round->tally =
        (struct shed_tally){.op = round->question.op, .servers = m->count};
    for (size_t i = 0; i < m->count; i++) {
        const char *why = why_silent(m, i);
        m->voter[i].is_next = why == NULL;
        if (why != NULL)
            shed_tally_skip(&round->tally, why);
    }
    for (size_t i = 0; i < m->count; i++)
        ask_if_idle(m, i);
}

void shed_round_begin(struct shed_lock_machine *m, struct shed_lock_request *r)
{
    struct shed_exchange *question = &m->round.question;

    assert(m->life != SHED_LOCK_CLOSED);
    m->round.request = r;
    m->round.numberings = 0;
    *question = shed_exchange_make(m->spec, r->op, &r->holder);
    question->asked_ms = m->now_ms;
    question->epochs = m->epochs;
    question->fence = r->fence_number;
    if (r->op == SHED_LOCK_OP_EXTEND) {
        question->lease_ms = r->lease_ms;
        question->may_grant = !shed_lock_is_alone(m);
    }
    ask_all(m);
}

/* -------------------------------------------------- the end of an acquire */

static uint64_t poll_ms(struct shed_lock_machine *m)
{
    uint64_t pause_ms = m->spec->algorithm->poll_ms;

    return m->facts.is_pushed
               ? shed_backoff_equal_ms(0, pause_ms, pause_ms,
                                       shed_random_next(&m->random))
               : shed_backoff_ms(m->attempts, ALONE_FIRST_MS,
                                 shed_lock_sooner_ms(pause_ms, ALONE_MS),
                                 shed_random_next(&m->random));
}

static void fail_try(struct shed_lock_machine *m, enum shed_verdict verdict)
{
    struct shed_lock_request *r = m->round.request;
    uint64_t look_ms = m->round.tally.look_ms;
    uint64_t delay_ms = poll_ms(m);

    r->error = m->round.tally.error;
    if (verdict == SHED_VERDICT_NO) {
        (void)shed_fail(&r->error, SHED_ETIMEDOUT,
                        "the lock is held by another");
        if (look_ms > 0)
            delay_ms = shed_lock_sooner_ms(look_ms, delay_ms);
    }
    m->last_try = r->error;
    /* a minority may have granted it */
    if (!shed_lock_is_alone(m) || verdict == SHED_VERDICT_WRONG)
        shed_lock_cancel_try(m, &r->holder);
    if (verdict == SHED_VERDICT_WRONG) {
        shed_lock_answer(m, r, r->error.code);
    } else if (r == shed_lock_request_of(m->acquires.first)) {
        m->attempts++;
        /* a change may have overtaken the answer */
        m->retry_at_ms = shed_lock_sooner_ms(
            m->retry_at_ms, m->now_ms + delay_ms + shed_lock_jitter_ms(m));
    }
}

/* The lock was granted, but must not be used. */
static void fail_granted(struct shed_lock_machine *m, const char *why)
{
    (void)shed_fail(&m->round.tally.error, SHED_EREDIS, "%s", why);
    shed_lock_cancel_try(m, &m->round.request->holder);
    fail_try(m, SHED_VERDICT_FAILED);
}

/* The lock was granted: the next round of the acquire carries this number. */
static void go_on_with(struct shed_lock_machine *m, enum shed_lock_op op,
                       uint64_t fence)
{
    m->round.question.op = op;
    m->round.question.fence = fence;
    ask_all(m);
}

/* While the lock is being closed this begins a hold as well, and closing
 * releases it. */
static void win(struct shed_lock_machine *m)
{
    struct shed_lock_round *round = &m->round;
    struct shed_lock_request *r = round->request;

    if (shed_lock_is_alone(m))
        round->question.fence = round->tally.fence;
    /* left by an earlier try of this request, which now holds the lock */
    for (size_t i = 0; i < m->count; i++)
        shed_voter_drop_leftover(&m->voter[i], &r->holder);
    shed_lock_machine_grant(m, r, &round->question);
    /* a bare majority is fragile: renew soon, at all servers */
    if (!shed_lock_is_alone(m))
        shed_lock_machine_retry(m);
    shed_lock_answer(
        m, r,
        m->life == SHED_LOCK_OPEN ? SHED_OK : shed_lock_fail_closed(&r->error));
}

static void end_acquire(struct shed_lock_machine *m, enum shed_verdict verdict)
{
    struct shed_lock_round *round = &m->round;
    bool is_safe = m->now_ms < shed_lock_valid_until_ms(&round->question);
    bool is_confirmed = m->spec->options->replicas == 0 ||
                        round->question.op == SHED_LOCK_OP_CONFIRM;
    /* a quorum's must be above every number that the majority knew */
    bool needs_number =
        !shed_lock_is_alone(m) &&
        (round->numberings == 0 || round->tally.fence >= round->question.fence);

    if (verdict != SHED_VERDICT_YES &&
        round->question.op == SHED_LOCK_OP_CONFIRM)
        shed_lock_cancel_try(m, &round->request->holder);
    if (verdict != SHED_VERDICT_YES) {
        fail_try(m, verdict);
    } else if (round->request->is_cancelled) {
        fail_granted(m, "the acquire was cancelled");
    } else if (m->facts.refusal != NULL) { /* known only with the answers */
        m->round.tally.error = *m->facts.refusal;
        fail_try(m, SHED_VERDICT_WRONG);
    } else if (!is_confirmed) {
        /* a failover forgets what no replica has */
        go_on_with(m, SHED_LOCK_OP_CONFIRM, round->tally.fence);
    } else if (needs_number && round->numberings < NUMBERINGS_MAX) {
        /* Other servers may know a higher number than the servers that granted
         * the lock: a holder has written it back since, or a try has drawn it.
         * So the number is set slightly above the known ones, and higher each
         * time that this is not enough. */
        go_on_with(m, SHED_LOCK_OP_ADVANCE,
                   round->tally.fence +
                       (ABOVE << (ABOVE_SHIFT * round->numberings++)));
    } else if (needs_number) {
        fail_granted(m, "the servers did not agree on a fencing number");
    } else if (!is_safe) {
        fail_granted(m, "acquiring the lock took longer than its lease");
    } else {
        win(m);
    }
}

/* ---------------------------------- the end of an extend, release, advance */

static void end_extend_of_hold(struct shed_lock_machine *m,
                               enum shed_verdict verdict)
{
    const struct shed_lock_round *round = &m->round;
    struct shed_hold *hold = &m->hold;

    hold->holder = round->question.holder;
    if (verdict == SHED_VERDICT_NO)
        shed_lock_machine_lose(m, "its lease ended, or its key was removed");
    else if (verdict != SHED_VERDICT_YES)
        shed_lock_machine_retry(m);
    else if (round->question.lease_ms > 0)
        shed_hold_renew(hold, &round->question);
    else
        hold->epochs = round->question.epochs;
    /* the session changed meanwhile, so the record is written again */
    if (verdict == SHED_VERDICT_YES && hold->epochs != m->epochs)
        hold->renew_at_ms = 0;
}

/* Returns: the verdict, or NO if the hold has ended meanwhile. An answer that
 * comes after the end of the lease must not revive the hold. */
static enum shed_verdict end_extend(struct shed_lock_machine *m,
                                    enum shed_verdict verdict)
{
    const struct shed_lock_round *round = &m->round;
    uint64_t generation = round->request->generation;
    bool is_current = m->hold.is_held && m->hold.generation == generation;

    /* an extension that the holder requested, or a rewrite, is no renewal */
    if (round->request == &m->renewal && round->question.lease_ms > 0)
        shed_count(verdict == SHED_VERDICT_YES ? &m->counters->renewals
                                               : &m->counters->renewal_failures,
                   1);
    if (is_current)
        end_extend_of_hold(m, verdict);
    /* nobody else would release what was renewed, or granted by a quorum's
     * server that did not have it, for a lost hold */
    if (m->lost_generation == generation &&
        (verdict != SHED_VERDICT_NO || !shed_lock_is_alone(m)))
        shed_lock_cancel_try(m, &round->question.holder);
    return is_current ? verdict : SHED_VERDICT_NO;
}

/* Say in the request that Redis does not have what was held here: it was lost,
 * or the request has released it before. */
static void fail_gone(struct shed_lock_request *r)
{
    if (r->is_tried)
        (void)shed_fail(
            &r->error, SHED_EREDIS,
            "the connection failed during the release: the lock is gone, "
            "by this release or before it");
    else
        (void)shed_fail(&r->error, SHED_ELOST,
                        "the lock was lost: its lease ended, or its key was "
                        "removed");
}

/* End a round other than an acquire. */
static void end_other(struct shed_lock_machine *m, enum shed_verdict verdict)
{
    struct shed_lock_request *r = m->round.request;

    if (m->round.question.op == SHED_LOCK_OP_EXTEND)
        verdict = end_extend(m, verdict);
    if (m->round.question.op == SHED_LOCK_OP_RELEASE)
        shed_lock_machine_released(m, m->round.tally.has_waiters);
    if (r == &m->renewal)
        return;
    r->error = m->round.tally.error;
    if (verdict == SHED_VERDICT_NO)
        fail_gone(r);
    r->code = verdict == SHED_VERDICT_YES ? SHED_OK : r->error.code;
    if (r != m->closer)
        shed_lock_answer(m, r, r->code);
}

/* ------------------------------------------------------ the end of a round */

/* A release also has to reach the servers that could not be asked in time. */
static void end_round_at(struct shed_lock_machine *m, size_t i)
{
    struct shed_voter *v = &m->voter[i];
    const struct shed_exchange *question = &m->round.question;

    if (v->state == SHED_VOTER_ASKED)
        v->state = SHED_VOTER_BUSY;
    if (v->is_next && question->op == SHED_LOCK_OP_RELEASE) {
        shed_voter_add_leftover(v, &question->holder, m->now_ms);
        shed_lock_clean(m, i);
    }
    v->is_next = false;
}

/* Returns: whether the round was decided. */
bool shed_round_end(struct shed_lock_machine *m)
{
    struct shed_lock_round *round = &m->round;
    enum shed_verdict verdict;

    if (!round->is_open)
        return false;
    if (m->now_ms >= round->patience_until_ms)
        shed_tally_close(&round->tally, "too many servers are silent");
    verdict = shed_tally_verdict(&round->tally);
    if (verdict == SHED_VERDICT_OPEN)
        return false;
    round->is_open = false;
    for (size_t i = 0; i < m->count; i++)
        end_round_at(m, i);
    if (round->request->op == SHED_LOCK_OP_ACQUIRE)
        end_acquire(m, verdict);
    else
        end_other(m, verdict);
    return true;
}

/* What an answer tells of the request, however the round ends. */
static void note_answer(struct shed_lock_machine *m,
                        const struct shed_exchange *answer)
{
    struct shed_lock_request *r = m->round.request;
    bool may_be_late =
        answer->end == SHED_EXCHANGE_FAILED && !answer->is_unsent;

    m->round.question.holder = answer->holder;
    if (answer->op == SHED_LOCK_OP_ACQUIRE) {
        r->is_takeover |= answer->is_takeover;
        r->may_be_left |= may_be_late;
        r->holder.is_unordered |= may_be_late && answer->is_by_link;
    } else if (answer->op == SHED_LOCK_OP_RELEASE) {
        /* then it is asked once more, and may be gone by this release */
        r->is_tried |=
            answer->is_repeated || (may_be_late && answer->is_by_link);
    }
}

/* Whether the server is to be asked again, over the session: by a link it
 * failed at once, or a release was never sent, or what it told a waiter is not
 * going to be announced when it changes. */
static bool is_preliminary(const struct shed_lock_machine *m,
                           const struct shed_exchange *answer)
{
    if (!answer->is_by_link)
        return false;
    if (answer->end == SHED_EXCHANGE_FAILED)
        return (answer->op == SHED_LOCK_OP_RELEASE && answer->is_unsent) ||
               m->now_ms - answer->asked_ms < m->command_timeout_ms;
    return answer->end == SHED_EXCHANGE_NO &&
           answer->op == SHED_LOCK_OP_ACQUIRE &&
           m->now_ms < m->round.request->deadline_ms;
}

void shed_round_answered(struct shed_lock_machine *m, size_t i)
{
    struct shed_lock_round *round = &m->round;
    struct shed_voter *v = &m->voter[i];
    enum shed_lock_op op = v->exchange.op;
    enum shed_voter_state before =
        shed_voter_answered(v, m->now_ms, shed_random_next(&m->random));

    assert(before != SHED_VOTER_ASKED || round->is_open);
    if (before == SHED_VOTER_ASKED) {
        note_answer(m, &v->exchange);
        v->is_next = is_preliminary(m, &v->exchange);
        if (!v->is_next)
            shed_tally_add(&round->tally, &v->exchange);
        else if (op == SHED_LOCK_OP_ACQUIRE)
            shed_count(&m->counters->tries, 1);
    } else if (m->now_ms >= shed_voter_clean_at_ms(v)) {
        shed_lock_clean(m, i);
    }
    if (round->is_open)
        ask_if_idle(m, i);
}
