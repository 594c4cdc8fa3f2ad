/*
 * The engine. Its invariants: one round at a time; a hold exists only after a
 * verdict of YES that came while it is still safe; each request is answered
 * once.
 */
#include "lock/engine.h"

#include "backoff.h"
#include "clock.h"
#include "error.h"
#include "random.h"

/* Where Redis cannot be asked: first pause; it doubles up to the way's poll. */
#define TROUBLE_FIRST_MS 5

/* With several servers a push of the first comes before the others have
 * released too; and who asks at the same moment as others splits the votes. */
#define SPLIT_MS 8

/* What a waiter elsewhere needs to hear of a release and to ask, at most. */
#define MOMENT_MS 2

/* For how long a handle may take the lock again and again while others wait
 * elsewhere: its own threads get it fastest. */
#define TURN_MS 4

/* How often a fencing number is written back, and how far above what is known:
 * as numbers follow the servers' clocks, this is so many microseconds. */
#define WRITE_BACKS_MAX 4
#define ABOVE ((uint64_t)1000)
#define ABOVE_SHIFT 4

static void turn(struct shed_lock *l);

/* ------------------------------------------------------------------- rows */

static void init_row(struct shed_lock_row *row)
{
    *row = (struct shed_lock_row){.last = &row->first};
}

static void append(struct shed_lock_row *row, struct shed_lock_request *r)
{
    r->next = NULL;
    *row->last = r;
    row->last = &r->next;
}

static void take_out(struct shed_lock_row *row, struct shed_lock_request *r)
{
    struct shed_lock_request **at = &row->first;

    while (*at != r)
        at = &(*at)->next;
    *at = r->next;
    if (r->next == NULL)
        row->last = at;
}

static struct shed_lock_row *row_of(struct shed_lock *l,
                                    const struct shed_lock_request *r)
{
    return r->op == SHED_LOCK_OP_ACQUIRE ? &l->acquires : &l->others;
}

static void answer(struct shed_lock *l, struct shed_lock_request *r, int code)
{
    take_out(row_of(l, r), r);
    if (r->op == SHED_LOCK_OP_ACQUIRE) {
        pthread_mutex_lock(&l->mu);
        l->waiting--;
        pthread_mutex_unlock(&l->mu);
        l->is_awake = true; /* for the next in the row */
        l->attempts = 0;
    }
    r->code = code;
    r->done(r);
}

/* -------------------------------------------------------------- the hold */

void shed_lock_wake_locked(struct shed_lock *l)
{
    if (l->is_posted)
        return;
    l->is_posted = true;
    shed_reactor_post(l->home->airport.reactor, &l->post);
}

static bool is_watched(const struct shed_lock *l)
{
    return l->options.on_lost != NULL;
}

void shed_lock_lose_locked(struct shed_lock *l, const char *reason)
{
    (void)shed_fail(&l->lost_reason, SHED_ELOST, "%s", reason);
    l->lost++;
    l->lost_number = l->hold.number;
    l->is_released = true;
    shed_count(&l->counters.lost, 1);
    shed_lock_end_hold_locked(l);
    shed_lock_wake_locked(l);
}

void shed_lock_end_hold_locked(struct shed_lock *l)
{
    shed_histogram_add(&l->counters.hold_us, shed_now_us() - l->held_since_us);
    shed_hold_end(&l->hold);
}

void shed_lock_grant_locked(struct shed_lock *l, const struct shed_grant *grant)
{
    if (l->hold.is_held)
        shed_lock_lose_locked(l, shed_hold_reason(&l->hold));
    shed_hold_begin(&l->hold, grant);
    l->held_since_us = shed_now_us();
    shed_count(&l->counters.acquired, 1);
    if (atomic_load(&l->epochs) != grant->epochs)
        l->hold.rewrite_at_ms = 0;
    if (l->turn_since_ms == 0)
        l->turn_since_ms = grant->asked_ms;
    if (shed_hold_due_ms(&l->hold, is_watched(l)) < l->armed_until_ms)
        shed_lock_wake_locked(l);
}

static struct shed_hold read_hold(struct shed_lock *l)
{
    struct shed_hold hold;

    pthread_mutex_lock(&l->mu);
    hold = l->hold;
    pthread_mutex_unlock(&l->mu);
    return hold;
}

/* The lease can end while a command hangs that would renew it. */
static void see_end(struct shed_lock *l)
{
    pthread_mutex_lock(&l->mu);
    if (l->hold.is_held && shed_now_ms() >= l->hold.valid_until_ms)
        shed_lock_lose_locked(l, shed_hold_reason(&l->hold));
    pthread_mutex_unlock(&l->mu);
}

static void tell_losses(struct shed_lock *l)
{
    struct shed_error reason;
    unsigned lost;

    pthread_mutex_lock(&l->mu);
    lost = l->lost;
    reason = l->lost_reason;
    l->lost = 0;
    pthread_mutex_unlock(&l->mu);
    while (lost-- > 0 && l->options.on_lost != NULL)
        l->options.on_lost(l->options.user, l, &reason);
}

/* ---------------------------------------------------------------- rounds */

static void ask(struct shed_lock *l, struct shed_node *n)
{
    n->is_next = false;
    n->is_asked = true;
    n->talk = l->round.question;
    shed_node_ask(n);
}

/* Ask all servers. One that is busy with an earlier question, since a moment
 * ago, is asked after it, if the round still goes on then; one that has been so
 * for longer counts as silent. But a release is owed to it in any case. */
static void ask_all(struct shed_lock *l)
{
    struct shed_lock_round *round = &l->round;
    const struct shed_talk *question = &round->question;
    struct shed_talk silent = {.end = SHED_TALK_FAILED};
    uint64_t now_ms = shed_now_ms();

    (void)shed_fail(&silent.error, SHED_EREDIS,
                    "a server has not answered an earlier question yet");
    round->is_on = true;
    shed_tally_init(&round->tally, question->op, l->count);
    if (l->count > 1)
        shed_timer_set(l->retry,
                       shed_lock_patience_ms(l->options.lease_ms,
                                             l->home->command_timeout_ms));
    for (size_t i = 0; i < l->count; i++) {
        struct shed_node *n = &l->node[i];
        if (!n->is_busy)
            ask(l, n);
        else if (question->op == SHED_LOCK_OP_RELEASE &&
                 shed_node_owe(n, &question->holder))
            n->owes_answer = true;
        else if (now_ms - n->busy_since_ms < SPLIT_MS)
            n->is_next = true;
        else
            shed_tally_add(&round->tally, &silent);
    }
}

/* Whether nothing can be begun. A server of several may be busy. */
static bool is_engaged(const struct shed_lock *l)
{
    return l->round.is_on || (l->count == 1 && l->node[0].is_busy);
}

static void begin_round(struct shed_lock *l, enum shed_lock_op op,
                        const struct shed_lock_holder *holder,
                        struct shed_lock_request *request)
{
    struct shed_lock_round *round = &l->round;

    round->request = request;
    round->write_backs = 0;
    round->asked_ms = shed_now_ms();
    round->asked_epochs = atomic_load(&l->epochs);
    shed_talk_begin(&round->question, op, holder);
    round->question.lease_ms = l->options.lease_ms;
}

/* What a failed try may have left behind. */
static void clean_up(struct shed_lock *l, const struct shed_lock_holder *holder)
{
    for (size_t i = 0; i < l->count && l->way->can_undo; i++)
        shed_node_undo(&l->node[i], holder);
}

/* ---------------------------------------------------------------- acquire */

static void start_acquire(struct shed_lock *l, struct shed_lock_request *r)
{
    if (r == l->acquires.first)
        l->is_awake = false; /* what woke us was for him */
    r->is_tried = true;
    shed_count(&l->counters.tries, 1);
    begin_round(l, SHED_LOCK_OP_ACQUIRE, &r->holder, r);
    ask_all(l);
}

/* The fencing number that a majority granted goes to a majority before anybody
 * sees it: whichever majority the next holder gets, one of it knows it. Some of
 * them may know a higher one, of a holder who wrote it back since they were
 * asked for this one, or of a try: so it goes a little above what is known, and
 * where that is not enough, it is written back again. */
static void write_back(struct shed_lock *l)
{
    struct shed_lock_round *round = &l->round;

    round->question.number =
        round->tally.fence + (ABOVE << (ABOVE_SHIFT * round->write_backs));
    round->question.op = SHED_LOCK_OP_ADVANCE;
    round->write_backs++;
    ask_all(l);
}

/* Whether the number is above all that a majority knows. */
static bool is_written_back(const struct shed_lock_round *round)
{
    return round->write_backs > 0 &&
           round->tally.fence < round->question.number;
}

static uint64_t poll_ms(const struct shed_lock *l)
{
    bool is_pushed = shed_push_is_on(l->home->airport.push);
    uint64_t bound_ms =
        l->way->poll_ms[is_pushed ? SHED_POLL_PUSHED : SHED_POLL_ALONE];

    return is_pushed ? shed_backoff_equal_ms(0, bound_ms, bound_ms,
                                             shed_random_jitter())
                     : shed_backoff_ms(l->attempts, TROUBLE_FIRST_MS, bound_ms,
                                       shed_random_jitter());
}

static uint64_t split_ms(void)
{
    return shed_backoff_ms(0, SPLIT_MS, SPLIT_MS, shed_random_jitter());
}

static void look_again_in(struct shed_lock *l, uint64_t delay_ms)
{
    l->attempts++;
    l->retry_at_ms = shed_now_ms() + delay_ms;
}

static void fail_try(struct shed_lock *l, struct shed_lock_request *r,
                     enum shed_verdict verdict)
{
    uint64_t look_ms = l->round.tally.look_ms;
    uint64_t delay_ms = poll_ms(l);

    r->error = l->round.tally.error;
    if (verdict == SHED_VERDICT_NO) {
        (void)shed_fail(&r->error, SHED_ETIMEDOUT,
                        "the lock is held by another");
        if (look_ms > 0 && look_ms < delay_ms)
            delay_ms = look_ms;
    }
    if (l->count > 1 || verdict == SHED_VERDICT_WRONG)
        clean_up(l, &r->holder);
    if (l->count > 1)
        delay_ms += split_ms();
    if (verdict == SHED_VERDICT_WRONG) {
        answer(l, r, (int)r->error.code);
        return;
    }
    if (r == l->acquires.first)
        look_again_in(l, delay_ms);
}

int shed_lock_fail_closed(struct shed_error *err)
{
    return shed_fail(err, SHED_ECLOSED, "the lock is closed");
}

/* It was granted, and must not be used. */
static void fail_granted(struct shed_lock *l, struct shed_lock_request *r,
                         const char *why)
{
    (void)shed_fail(&l->round.tally.error, SHED_EREDIS, "%s", why);
    clean_up(l, &r->holder);
    fail_try(l, r, SHED_VERDICT_FAILED);
}

/* Also while it is being closed, which releases it then. */
static void win(struct shed_lock *l, struct shed_lock_request *r)
{
    struct shed_lock_round *round = &l->round;
    struct shed_grant grant = {.owner = r->owner,
                               .talk = &round->question,
                               .fence = l->count > 1 ? round->question.number
                                                     : round->tally.fence,
                               .asked_ms = round->asked_ms,
                               .epochs = round->asked_epochs};

    for (size_t i = 0; i < l->count; i++) /* of an earlier try: it holds now */
        shed_node_forget(&l->node[i], &r->holder);
    pthread_mutex_lock(&l->mu);
    shed_lock_grant_locked(l, &grant);
    /* a bare majority can break: renew it soon, and with all servers */
    if (l->count > 1)
        shed_hold_retry(&l->hold, false, shed_now_ms(), shed_random_jitter());
    pthread_mutex_unlock(&l->mu);
    if (l->is_closing)
        (void)shed_lock_fail_closed(&r->error);
    answer(l, r, l->is_closing ? SHED_ECLOSED : SHED_OK);
}

static void end_acquire(struct shed_lock *l, enum shed_verdict verdict)
{
    struct shed_lock_round *round = &l->round;
    struct shed_lock_request *r = round->request;
    uint64_t valid_until_ms = UINT64_MAX;

    if (verdict != SHED_VERDICT_YES) {
        fail_try(l, r, verdict);
        return;
    }
    if (l->count > 1 && !is_written_back(round)) {
        if (round->write_backs < WRITE_BACKS_MAX)
            write_back(l);
        else
            fail_granted(l, r,
                         "the fencing numbers of the servers do not settle");
        return;
    }
    if (l->way->has_lease)
        valid_until_ms =
            shed_lock_valid_until_ms(round->asked_ms, l->options.lease_ms);
    if (shed_now_ms() < valid_until_ms)
        win(l, r);
    else
        fail_granted(l, r, "to get the lock took longer than its lease");
}

/* ------------------------------------------------- extend, release, advance */

static int code_of(const struct shed_lock *l, enum shed_verdict verdict)
{
    switch (verdict) {
    case SHED_VERDICT_YES:
        return SHED_OK;
    case SHED_VERDICT_NO:
        return SHED_ELOST;
    case SHED_VERDICT_OPEN:
    case SHED_VERDICT_FAILED:
    case SHED_VERDICT_WRONG:
        break;
    }
    return (int)l->round.tally.error.code;
}

/* Servers that do not have the lock: they had granted it to one who did not get
 * a majority, or have lost it. While it is held safely they may be asked to
 * grant it; whether they have, the next renewal counts. */
static void heal(struct shed_lock *l)
{
    struct shed_hold hold = read_hold(l);
    uint64_t now_ms = shed_now_ms();

    for (size_t i = 0; i < l->count && l->count > 1; i++) {
        struct shed_node *n = &l->node[i];
        if (!n->is_short || n->is_busy || !shed_hold_is_safe(&hold, now_ms))
            continue;
        n->is_short = false;
        n->talk = l->round.question;
        n->talk.lease_ms = shed_left_ms(hold.valid_until_ms, now_ms);
        shed_talk_begin(&n->talk, SHED_LOCK_OP_ACQUIRE, &hold.holder);
        shed_node_ask(n);
    }
}

static void count_renewal(struct shed_lock *l, enum shed_verdict verdict)
{
    if (l->round.request != NULL || l->round.question.lease_ms == 0)
        return; /* asked for by the holder, or but written anew */
    shed_count(verdict == SHED_VERDICT_YES ? &l->counters.renewals
                                           : &l->counters.renewal_failures,
               1);
}

/* Returns: the verdict, NO if the hold has ended meanwhile. */
static enum shed_verdict end_extend(struct shed_lock *l,
                                    enum shed_verdict verdict)
{
    const struct shed_lock_round *round = &l->round;
    struct shed_hold *hold = &l->hold;
    bool is_over, is_lost;

    /* what comes after the end of the lease must not revive it */
    see_end(l);
    pthread_mutex_lock(&l->mu);
    is_lost = l->lost_number == round->hold_number;
    is_over = !hold->is_held || hold->number != round->hold_number;
    if (!is_over)
        shed_hold_set_stamps(hold, &round->question);
    if (is_over)
        ; /* released, or lost meanwhile */
    else if (verdict == SHED_VERDICT_YES && round->question.lease_ms > 0)
        shed_hold_renew(hold, &round->question, round->asked_ms);
    else if (verdict == SHED_VERDICT_NO)
        shed_lock_lose_locked(l, "it is not ours any more: its lease "
                                 "ended, or it was removed");
    else if (verdict != SHED_VERDICT_YES)
        shed_hold_retry(hold, round->is_rewrite, shed_now_ms(),
                        shed_random_jitter());
    pthread_mutex_unlock(&l->mu);
    if (is_lost && verdict != SHED_VERDICT_NO) /* nobody releases it */
        clean_up(l, &round->question.holder);
    heal(l);
    return is_over ? SHED_VERDICT_NO : verdict;
}

/* Under way for a request, or for nobody. */
static void end_other(struct shed_lock *l, enum shed_verdict verdict)
{
    struct shed_lock_request *r = l->round.request;

    if (l->round.question.op == SHED_LOCK_OP_EXTEND) {
        count_renewal(l, verdict);
        verdict = end_extend(l, verdict);
    }
    if (l->round.question.op == SHED_LOCK_OP_RELEASE) {
        pthread_mutex_lock(&l->mu);
        shed_lock_released_locked(l, l->round.tally.has_waiters);
        pthread_mutex_unlock(&l->mu);
    }
    if (r == NULL) {
        if (l->round.question.op == SHED_LOCK_OP_RELEASE)
            shed_lock_count_release(l, code_of(l, verdict));
        return;
    }
    if (verdict == SHED_VERDICT_NO)
        (void)shed_fail(&r->error, SHED_ELOST,
                        "the lock was not ours any more");
    else
        r->error = l->round.tally.error;
    answer(l, r, code_of(l, verdict));
}

static void end_round(struct shed_lock *l, enum shed_verdict verdict)
{
    for (size_t i = 0; i < l->count; i++)
        l->node[i].is_asked = l->node[i].owes_answer = l->node[i].is_next =
            false;
    l->round.is_on = false;
    if (l->round.request != NULL &&
        l->round.request->op == SHED_LOCK_OP_ACQUIRE)
        end_acquire(l, verdict);
    else
        end_other(l, verdict);
}

static void on_end(struct shed_node *n)
{
    struct shed_lock *l = n->arg;
    struct shed_lock_round *round = &l->round;
    enum shed_verdict verdict;

    if (round->is_on && n->is_asked) {
        n->is_asked = false;
        round->question.stamp = n->talk.stamp;
        round->question.tried_stamp = n->talk.tried_stamp;
        round->question.sight = n->talk.sight;
        shed_tally_add(&round->tally, &n->talk);
    }
    if (n->talk.op == SHED_LOCK_OP_UNDO) /* the try may have got it since */
        n->is_short |= n->talk.end == SHED_TALK_YES;
    else if (n->talk.op != SHED_LOCK_OP_ADVANCE)
        n->is_short = n->talk.end == SHED_TALK_NO;
    shed_node_pay(n);
    if (round->is_on) {
        verdict = shed_tally_verdict(&round->tally);
        if (verdict != SHED_VERDICT_OPEN)
            end_round(l, verdict);
    } else if (n->talk.op == SHED_LOCK_OP_EXTEND) {
        heal(l); /* the others were enough, and faster */
    }
    if (round->is_on && n->is_next && !n->is_busy)
        ask(l, n);
    turn(l);
}

/* ------------------------------------------------------------ what is next */

static void start_extend(struct shed_lock *l, const struct shed_hold *hold,
                         struct shed_lock_request *r, uint64_t lease_ms)
{
    begin_round(l, SHED_LOCK_OP_EXTEND, &hold->holder, r);
    l->round.hold_number = hold->number;
    l->round.is_rewrite = r == NULL && hold->rewrite_at_ms != UINT64_MAX;
    l->round.question.stamp = hold->stamp;
    l->round.question.tried_stamp = hold->tried_stamp;
    l->round.question.lease_ms = lease_ms;
    ask_all(l);
}

/* Release, extend, advance: what was asked for. */
static bool start_other(struct shed_lock *l)
{
    struct shed_lock_request *r = l->others.first;
    struct shed_hold hold;

    if (r == NULL)
        return false;
    hold = read_hold(l);
    if (r->op != SHED_LOCK_OP_EXTEND) {
        begin_round(l, r->op, &r->holder, r);
        l->round.question.stamp = r->stamp;
        l->round.question.number = r->number;
        ask_all(l);
    } else if (hold.is_held && hold.number == r->number) {
        start_extend(l, &hold, r, r->lease_ms);
    } else {
        (void)shed_fail(&r->error, SHED_ELOST, "the lock is not held any more");
        answer(l, r, SHED_ELOST);
        return start_other(l);
    }
    return true;
}

/* Renew what is held. What is not to be renewed but has to be written anew ends
 * when it would have. */
static bool start_renewal(struct shed_lock *l)
{
    uint64_t now_ms = shed_now_ms();
    struct shed_hold hold;
    bool is_due;

    pthread_mutex_lock(&l->mu);
    if (shed_owner_has_ended(l->hold.owner))
        l->hold.renew_at_ms = UINT64_MAX;
    /* what is but a token names no session, and cannot be written for a rest */
    if (!l->way->has_tokens && l->hold.renew_at_ms == UINT64_MAX)
        l->hold.rewrite_at_ms = UINT64_MAX;
    hold = l->hold;
    is_due = hold.is_held &&
             (now_ms >= hold.renew_at_ms || now_ms >= hold.rewrite_at_ms);
    if (is_due)
        l->hold.rewrite_at_ms = UINT64_MAX;
    pthread_mutex_unlock(&l->mu);
    if (is_due)
        start_extend(l, &hold, NULL,
                     hold.renew_at_ms != UINT64_MAX ? hold.lease_ms : 0);
    return is_due;
}

/* When it has waited for long enough; what wants but one try gets it. */
static uint64_t end_ms(const struct shed_lock_request *r)
{
    return r->is_tried || r->holder.wait_ms > 0 ? r->deadline_ms : UINT64_MAX;
}

static void end_overdue(struct shed_lock *l)
{
    uint64_t now_ms = shed_now_ms();

    for (struct shed_lock_request *r = l->acquires.first, *next; r != NULL;
         r = next) {
        next = r->next;
        if (is_engaged(l))
            return; /* with cleaning up after another */
        if (l->is_closing)
            (void)shed_lock_fail_closed(&r->error);
        else if (now_ms < end_ms(r))
            continue;
        else if (!shed_lock_is_settled(l))
            (void)shed_fail(&r->error, SHED_EREDIS,
                            "Redis %s: no answer yet to a first command",
                            l->home->address->text);
        if (r->may_stand || (r->is_tried && (l->options.fair != 0 ||
                                             r->error.code != SHED_ETIMEDOUT)))
            clean_up(l, &r->holder);
        answer(l, r, (int)r->error.code);
    }
}

void shed_lock_count_release(struct shed_lock *l, int code)
{
    if (code == SHED_OK)
        shed_count(&l->counters.released, 1);
    else if (code == SHED_ELOST)
        shed_count(&l->counters.lost, 1);
}

/* Who has just released a lock is the first to know, and would always be the
 * next to have it, however many wait elsewhere. So his turn is short, and after
 * it he waits for a moment. */
void shed_lock_released_locked(struct shed_lock *l, bool has_waiters)
{
    uint64_t now_ms = shed_now_ms();

    if (!has_waiters) {
        l->turn_since_ms = 0;
    } else if (now_ms - l->turn_since_ms >= TURN_MS) {
        l->turn_since_ms = 0;
        l->turn_ended_ms = now_ms;
    }
    if (l->waiting > 0) {
        l->is_released = true;
        shed_lock_wake_locked(l);
    }
}

void shed_lock_give_up_locked(struct shed_lock *l,
                              const struct shed_lock_holder *holder)
{
    l->is_given_up = true;
    l->given_up = *holder;
    shed_lock_wake_locked(l);
}

uint64_t shed_lock_step_back_ms(const struct shed_lock *l)
{
    uint64_t moment_ms = l->count > 1 ? SPLIT_MS : MOMENT_MS;
    uint64_t since_ms = shed_now_ms() - l->turn_ended_ms;

    return since_ms < moment_ms ? moment_ms : 0;
}

bool shed_lock_is_settled(const struct shed_lock *l)
{
    return !l->way->has_tokens || l->count > 1 ||
           shed_push_is_settled(l->home->airport.push);
}

static bool steps_back(struct shed_lock *l)
{
    uint64_t delay_ms;

    if (l->acquires.first == NULL || l->acquires.first->holder.wait_ms == 0)
        return false;
    pthread_mutex_lock(&l->mu);
    delay_ms = shed_lock_step_back_ms(l);
    pthread_mutex_unlock(&l->mu);
    if (delay_ms > 0)
        l->retry_at_ms =
            shed_now_ms() + delay_ms + (l->count > 1 ? split_ms() : 0);
    return delay_ms > 0;
}

/* Whether one of us has it: then Redis need not be asked, he tells when he
 * releases it. Not where nobody would step back for those elsewhere, or has to
 * stand in a queue. */
static bool is_held_here(struct shed_lock *l)
{
    struct shed_hold hold = read_hold(l);

    if (!l->way->has_tokens || l->options.fair != 0 ||
        !shed_hold_is_safe(&hold, shed_now_ms()))
        return false;
    l->retry_at_ms = hold.valid_until_ms;
    return true;
}

/* A majority of servers that are one is none. They tell when they are connected
 * to. */
static bool has_twins(const struct shed_lock *l, struct shed_error *err)
{
    for (size_t i = 0; i < l->count && l->count > 1; i++)
        for (size_t j = 0; j < i; j++)
            if (shed_push_is_same_server(l->node[j].client->airport.push,
                                         l->node[i].client->airport.push)) {
                (void)shed_fail(err, SHED_EINVAL,
                                "clients %zu and %zu of the quorum are of one "
                                "server: take independent ones",
                                j, i);
                return true;
            }
    return false;
}

static void refuse_all(struct shed_lock *l, const struct shed_error *why)
{
    struct shed_lock_request *r;

    while ((r = l->acquires.first) != NULL) {
        if (r->is_tried) /* before that was known */
            clean_up(l, &r->holder);
        r->error = *why;
        answer(l, r, (int)why->code);
    }
}

static bool start_try(struct shed_lock *l)
{
    struct shed_lock_request *first = l->acquires.first;
    struct shed_error wrong;
    bool may_wait;

    if (first != NULL && has_twins(l, &wrong)) {
        refuse_all(l, &wrong);
        return false;
    }
    if (!shed_lock_is_settled(l)) {
        l->retry_at_ms = UINT64_MAX; /* an epoch tells */
        return false;
    }
    if (steps_back(l))
        return false;
    may_wait = is_held_here(l);
    /* what woke us is for who waits, not for those who come now */
    if (first != NULL && first->is_tried && l->is_awake && !may_wait) {
        start_acquire(l, first);
        return true;
    }
    for (struct shed_lock_request *r = first; r != NULL; r = r->next)
        if (!r->is_tried && ((r == first && !may_wait) ||
                             l->options.fair != 0 || r->holder.wait_ms == 0)) {
            start_acquire(l, r);
            return true;
        }
    return false;
}

static bool is_idle(const struct shed_lock *l)
{
    for (size_t i = 0; i < l->count; i++)
        if (l->node[i].is_busy)
            return false;
    return true;
}

/* With everything answered, give back what is held; then it is over. */
static bool start_closing(struct shed_lock *l)
{
    struct shed_gate *gate = NULL;
    bool is_held;

    if (!l->is_closing)
        return false;
    pthread_mutex_lock(&l->mu);
    is_held = l->hold.is_held;
    if (!is_held && is_idle(l)) {
        gate = l->closing;
        l->closing = NULL;
    }
    if (is_held) {
        begin_round(l, SHED_LOCK_OP_RELEASE, &l->hold.holder, NULL);
        l->round.question.stamp = l->hold.stamp;
        shed_lock_end_hold_locked(l);
    }
    pthread_mutex_unlock(&l->mu);
    if (is_held)
        ask_all(l);
    if (gate != NULL)
        shed_gate_open(gate, 1);
    return true;
}

/* While a round is on there is nothing to be done but to see it end. */
static void arm_watch(struct shed_lock *l, bool is_busy)
{
    uint64_t due_ms;

    pthread_mutex_lock(&l->mu);
    due_ms = shed_hold_due_ms(&l->hold, is_watched(l));
    if (is_busy && l->hold.is_held)
        due_ms = l->hold.valid_until_ms;
    for (size_t i = 0; i < l->count && !is_busy && !l->is_closing; i++)
        if (shed_node_tidy_at_ms(&l->node[i]) < due_ms)
            due_ms = shed_node_tidy_at_ms(&l->node[i]);
    l->armed_until_ms = due_ms;
    pthread_mutex_unlock(&l->mu);
    if (due_ms != UINT64_MAX)
        shed_timer_set(l->watch, shed_left_ms(due_ms, shed_now_ms()));
    else
        shed_timer_stop(l->watch);
}

static void arm_retry(struct shed_lock *l)
{
    uint64_t at_ms = l->retry_at_ms;

    if (l->acquires.first == NULL)
        return;
    for (const struct shed_lock_request *r = l->acquires.first; r != NULL;
         r = r->next)
        if (end_ms(r) < at_ms)
            at_ms = end_ms(r);
    shed_timer_set(l->retry, shed_left_ms(at_ms, shed_now_ms()));
}

static void take_incoming(struct shed_lock *l)
{
    struct shed_lock_request *r, *next;

    pthread_mutex_lock(&l->mu);
    l->is_posted = false;
    r = l->incoming.first;
    init_row(&l->incoming);
    if (l->is_given_up)
        shed_node_leave(&l->node[0], &l->given_up);
    l->is_given_up = false;
    if (l->is_released &&
        (l->way->has_tokens || !shed_push_is_on(l->home->airport.push)))
        l->is_awake = true;
    l->is_released = false;
    l->is_closing |= l->closing != NULL;
    pthread_mutex_unlock(&l->mu);
    for (; r != NULL; r = next) {
        next = r->next;
        append(row_of(l, r), r);
    }
}

static void tidy(struct shed_lock *l)
{
    uint64_t now_ms = shed_now_ms();

    for (size_t i = 0; i < l->count; i++)
        shed_node_tidy(&l->node[i], now_ms);
}

static void turn(struct shed_lock *l)
{
    see_end(l);
    tell_losses(l);
    if (!is_engaged(l))
        end_overdue(l);
    if (!l->round.is_on && !l->is_closing)
        tidy(l);
    if (!is_engaged(l) && !start_other(l) && !start_closing(l) &&
        !start_renewal(l) && !start_try(l))
        arm_retry(l);
    arm_watch(l, is_engaged(l));
}

/* ----------------------------------------------------------------- events */

static void on_post(struct shed_post *post)
{
    struct shed_lock *l =
        (struct shed_lock *)(void *)((char *)post -
                                     offsetof(struct shed_lock, post));

    take_incoming(l);
    turn(l);
}

static void on_retry(void *arg)
{
    struct shed_lock *l = arg;

    if (l->round.is_on && l->count > 1) {
        shed_tally_close(&l->round.tally, "too many servers are silent");
        end_round(l, shed_tally_verdict(&l->round.tally));
    } else if (shed_now_ms() >= l->retry_at_ms) {
        l->is_awake = true;
    }
    turn(l);
}

static void on_watch(void *arg)
{
    struct shed_lock *l = arg;

    pthread_mutex_lock(&l->mu);
    l->armed_until_ms = UINT64_MAX;
    pthread_mutex_unlock(&l->mu);
    turn(l);
}

static void on_change(struct shed_node *n, bool is_epoch)
{
    struct shed_lock *l = n->arg;

    if (is_epoch) {
        /* the record names the run of the server and our channel: anew */
        pthread_mutex_lock(&l->mu);
        atomic_fetch_add(&l->epochs, 1);
        l->hold.rewrite_at_ms = 0;
        pthread_mutex_unlock(&l->mu);
        n->left_at_ms = 0;
    } else if (l->acquires.first == NULL) {
        return;
    }
    if (l->count == 1)
        l->is_awake = true;
    else
        l->retry_at_ms = shed_now_ms() + split_ms();
    turn(l);
}

/* -------------------------------------------------------- begin and end */

static void create_timers(void *arg)
{
    struct shed_lock *l = arg;

    l->retry = shed_timer_create(l->home->airport.reactor, on_retry, l);
    l->watch = shed_timer_create(l->home->airport.reactor, on_watch, l);
}

static void destroy_timers(void *arg)
{
    struct shed_lock *l = arg;

    shed_timer_destroy(l->retry);
    shed_timer_destroy(l->watch);
}

int shed_lock_engine_open(struct shed_lock *l, struct shed_error *err)
{
    struct shed_reactor *home = l->home->airport.reactor;

    init_row(&l->incoming);
    init_row(&l->acquires);
    init_row(&l->others);
    l->post.run = on_post;
    l->armed_until_ms = UINT64_MAX;
    l->round.question.way = l->way;
    l->round.question.words = &l->words;
    shed_reactor_run(home, create_timers, l);
    if (l->retry == NULL || l->watch == NULL) {
        shed_reactor_run(home, destroy_timers, l);
        return shed_fail_nomem(err, "a lock's timers");
    }
    for (size_t i = 0; i < l->count; i++) {
        struct shed_node *n = &l->node[i];
        n->home = home;
        n->is_quorum = l->count > 1;
        n->on_end = on_end;
        n->on_change = on_change;
        n->arg = l;
        n->talk = l->round.question;
        shed_node_open(n);
    }
    return SHED_OK;
}

void shed_lock_engine_close(struct shed_lock *l)
{
    struct shed_gate gate;
    struct shed_error unused;

    while (shed_gate_init(&gate, 1, &unused) != SHED_OK)
        ; /* as in shed_reactor_run: it needs no memory */
    pthread_mutex_lock(&l->mu);
    l->closing = &gate;
    l->is_closed = true;
    shed_lock_wake_locked(l);
    pthread_mutex_unlock(&l->mu);
    (void)shed_gate_wait(&gate, UINT64_MAX);
    shed_gate_fini(&gate);
    for (size_t i = 0; i < l->count; i++)
        shed_node_close(&l->node[i]);
    shed_reactor_run(l->home->airport.reactor, destroy_timers, l);
}

bool shed_lock_submit(struct shed_lock *l, struct shed_lock_request *r)
{
    bool is_taken;

    pthread_mutex_lock(&l->mu);
    is_taken = !l->is_closed;
    if (is_taken) {
        if (r->op == SHED_LOCK_OP_ACQUIRE)
            l->waiting++;
        append(&l->incoming, r);
        shed_lock_wake_locked(l);
    }
    pthread_mutex_unlock(&l->mu);
    return is_taken;
}
