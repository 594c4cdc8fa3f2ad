/* The invariants of the simulated locks. They rely on what lock.h promises, and
 * on little of the implementation. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/lock_sim.h"

#define POLL_MS 100 /* the longest pause, without pushes */
#define CALM_MS 60  /* by then a record has been rewritten */
#define STUCK_MS 250
#define COHORT_MS 35 /* far longer than a handle may keep others out */

bool sim_is_alive(const struct sim *s, unsigned h)
{
    return s->handle[h].life != SIM_UNUSED &&
           s->process[s->handle[h].process].is_alive;
}

static bool has_safe_hold(const struct sim *s, unsigned h)
{
    return sim_is_alive(s, h) &&
           shed_hold_is_safe(&s->handle[h].machine.hold,
                             sim_local_ms(s, s->handle[h].process));
}

/* ----------------------------------------------------------------- grants */

size_t sim_find_call(const struct sim *s, const struct shed_lock_holder *holder)
{
    for (size_t i = 0; i < s->call_count; i++)
        if (s->call[i].request.op == SHED_LOCK_OP_ACQUIRE &&
            memcmp(s->call[i].request.holder.token, holder->token,
                   SHED_TOKEN_BYTES) == 0)
            return i;
    return SIM_CALLS;
}

/* A quorum's number was above every number that a majority knew. */
static void check_written_back(struct sim *s, const struct shed_hold *hold)
{
    const struct sim_call *call = &s->call[sim_find_call(s, &hold->holder)];
    unsigned servers = 0;

    for (unsigned i = 0; i < s->server_count; i++)
        servers += call->below >> i & 1;
    if (call->number != hold->fence || servers <= s->server_count / 2)
        sim_fail(s, "a number that a majority may not know");
}

/* Whether a hold was requested after some time; a clock may be fast. */
static bool is_asked_after(const struct sim *s, unsigned h, uint64_t at_ms)
{
    const struct shed_hold *hold = &s->handle[h].machine.hold;
    const struct sim_process *process = &s->process[s->handle[h].process];
    uint64_t since_ms = sim_local_ms(s, s->handle[h].process) - hold->since_ms;

    return since_ms + since_ms * (uint64_t)abs(process->drift_pm) / 1000 + 1 <
           s->now_ms - at_ms;
}

/* If two can hold the lock, the first to get it may be the second to hear of
 * it. */
static void check_number(struct sim *s, unsigned h)
{
    const struct shed_hold *hold = &s->handle[h].machine.hold;

    if (!s->algorithm->has_tokens || s->mode->breaks_numbers)
        return;
    if (hold->fence <= s->floor &&
        (!s->mode->breaks_exclusion || is_asked_after(s, h, s->floor_ms)))
        sim_fail(s, "number %llu after %llu", (unsigned long long)hold->fence,
                 (unsigned long long)s->floor);
    if (s->advanced_ms > 0 && hold->fence <= s->advanced &&
        is_asked_after(s, h, s->advanced_ms))
        sim_fail(s, "number %llu, and %llu was advanced to",
                 (unsigned long long)hold->fence,
                 (unsigned long long)s->advanced);
    if (hold->fence <= s->floor)
        return;
    s->floor = hold->fence;
    s->floor_ms = s->now_ms;
}

/* A handle that acquires the lock repeatedly lets others in. */
static void check_cohort(struct sim *s, unsigned h)
{
    bool is_wanted = false;

    for (size_t i = 0; i < s->call_count; i++)
        is_wanted |= s->call[i].state == SIM_WAITING &&
                     s->call[i].request.op == SHED_LOCK_OP_ACQUIRE &&
                     s->call[i].handle != h &&
                     s->call[i].begun_ms + COHORT_MS < s->now_ms;
    if (s->last_holder != h || !is_wanted)
        s->cohort_since_ms = s->now_ms;
    s->last_holder = h;
    if (s->mode->is_crowd && s->now_ms > s->cohort_since_ms + COHORT_MS)
        sim_fail(s, "one handle has it for %llu ms, and others wait",
                 (unsigned long long)(s->now_ms - s->cohort_since_ms));
}

/* In a fair lock nobody that came later gets it earlier. */
static void check_order(struct sim *s, const struct shed_hold *hold)
{
    const struct sim_call *winner = &s->call[sim_find_call(s, &hold->holder)];

    if (s->kind != SIM_FAIR || !s->mode->is_prompt || !s->mode->is_calm)
        return;
    for (size_t i = 0; i < s->call_count; i++)
        if (s->call[i].state == SIM_WAITING &&
            s->call[i].request.op == SHED_LOCK_OP_ACQUIRE &&
            s->call[i].begun_ms + CALM_MS / 2 < winner->begun_ms)
            sim_fail(s, "one that came later has it before");
}

void sim_check_grant(struct sim *s, unsigned h)
{
    struct sim_handle *handle = &s->handle[h];
    const struct shed_hold *hold = &handle->machine.hold;

    if (handle->generation == hold->generation)
        return;
    if (handle->generation > 0 &&
        handle->ended_generation != handle->generation &&
        handle->machine.lost_generation < handle->generation)
        sim_fail(s, "a hold vanished");
    handle->generation = hold->generation;
    check_cohort(s, h);
    s->grants++;
    sim_trace(s, "holds", handle->process, h, hold->fence);
    check_number(s, h);
    check_order(s, hold);
    if (s->server_count > 1)
        check_written_back(s, hold);
}

/* ------------------------------------------------------------------ steps */

static void check_waiting(struct sim *s, unsigned h,
                          const struct shed_lock_act *act)
{
    const struct shed_lock_machine *m = &s->handle[h].machine;

    if (act->timer_at_ms != UINT64_MAX)
        return;
    for (unsigned i = 0; i < s->server_count; i++)
        if (m->voter[i].state != SHED_VOTER_IDLE)
            return;
    if (m->others.first != NULL)
        sim_fail(s, "a request waits for nothing");
    for (const struct shed_lock_request *r =
             shed_lock_request_of(m->acquires.first);
         r != NULL; r = shed_lock_next(r))
        if (r->holder.wait_ms > 0 ||
            s->process[s->handle[h].process].is_settled)
            sim_fail(s, "an acquire waits for nothing");
}

/* A round of several servers ends with its patience. */
static void check_patience(struct sim *s, unsigned h)
{
    struct sim_handle *handle = &s->handle[h];
    const struct shed_lock_machine *m = &handle->machine;
    uint64_t now_ms = sim_local_ms(s, handle->process);

    if (!m->round.is_open ||
        m->round.question.asked_ms != handle->round_asked_ms ||
        m->round.numberings != handle->round_numberings)
        handle->round_since_ms = now_ms;
    handle->round_asked_ms = m->round.question.asked_ms;
    handle->round_numberings = m->round.numberings;
    if (s->server_count > 1 &&
        now_ms > handle->round_since_ms + s->options.lease_ms / 20 + 10)
        sim_fail(s, "a round lasts for %llu ms",
                 (unsigned long long)(now_ms - handle->round_since_ms));
}

static void check_over(struct sim *s, unsigned h)
{
    const struct shed_lock_machine *m = &s->handle[h].machine;

    if (m->hold.is_held || m->acquires.first != NULL || m->others.first != NULL)
        sim_fail(s, "closed, with something under way");
    /* with one server, a release may be what remains */
    for (unsigned i = 0; i < s->server_count && s->server_count > 1; i++)
        if (m->voter[i].exchange.op != SHED_LOCK_OP_UNDO &&
            sim_is_leftover(&m->voter[i], &m->voter[i].exchange.holder) &&
            m->voter[i].exchange.end != SHED_EXCHANGE_FAILED)
            sim_fail(s, "closed, and a late try on server %u is not undone", i);
    for (unsigned i = 0; i < s->server_count; i++)
        if (m->voter[i].state != SHED_VOTER_IDLE)
            sim_fail(s, "closed, with server %u under way", i);
}

void sim_check_step(struct sim *s, unsigned h, const struct shed_lock_act *act,
                    bool was_gone)
{
    struct sim_handle *handle = &s->handle[h];

    if (was_gone &&
        (act->ask != 0 || act->lost != 0 || act->answered.first != NULL ||
         act->timer_at_ms != UINT64_MAX))
        sim_fail(s, "something begins after the closer was told");
    if (handle->closing_ms != 0 &&
        shed_count_read(&handle->counters.tries) > handle->tries)
        sim_fail(s, "a try while it is being closed");
    for (unsigned i = 0; i < s->server_count; i++)
        if ((act->ask >> i & 1) != 0 && handle->machine.hold.is_held &&
            handle->voter[i].exchange.op == SHED_LOCK_OP_UNDO &&
            memcmp(handle->voter[i].exchange.holder.token,
                   handle->machine.hold.holder.token, SHED_TOKEN_BYTES) == 0)
            sim_fail(s, "it undoes what it holds");
    if (handle->machine.life == SHED_LOCK_CLOSED && !was_gone)
        check_over(s, h);
    if (!was_gone)
        check_waiting(s, h, act);
    check_patience(s, h);
    if (act->lost > 0)
        handle->lost_generation = handle->machine.lost_generation;
    if (s->mode->is_calm && act->lost > 0 && s->mode->forgotten_pct == 0)
        sim_fail(s, "a hold was lost, and nothing went wrong");
}

/* ---------------------------------------------------------------- answers */

/* A handle's calls wait for each other: one for each of several round trips. */
static uint64_t margin_ms(const struct sim *s)
{
    unsigned latency_ms = s->mode->latency_ms;

    return s->mode->is_calm ? 40 + 24 * latency_ms
                            : 8 * SIM_TIMEOUT_MS + 16 * latency_ms;
}

static void check_time(struct sim *s, const struct sim_call *call)
{
    const struct sim_process *process =
        &s->process[s->handle[call->handle].process];
    uint64_t wait_ms = call->request.holder.wait_ms;
    uint64_t took_ms = s->now_ms - call->begun_ms;
    uint64_t stalled_ms = process->stalled_ms - call->stalled_ms;

    if (call->request.op != SHED_LOCK_OP_ACQUIRE)
        wait_ms = 0;
    if (call->cancelled_ms > 0)
        wait_ms = call->cancelled_ms - call->begun_ms;
    if (took_ms > wait_ms + wait_ms / 50 + stalled_ms + margin_ms(s))
        sim_fail(s, "a call that waits %llu ms was answered after %llu",
                 (unsigned long long)wait_ms, (unsigned long long)took_ms);
}

static void check_code(struct sim *s, const struct sim_call *call)
{
    const struct sim_handle *handle = &s->handle[call->handle];
    bool is_acquire = call->request.op == SHED_LOCK_OP_ACQUIRE;

    if (call->cancelled_ms > 0) {
        if (call->request.code != SHED_ETIMEDOUT)
            sim_fail(s, "cancelled, and told otherwise");
        return;
    }
    switch (call->request.code) {
    case SHED_OK:
        if (is_acquire && s->has_twins && s->now_ms >= s->twins_ms)
            sim_fail(s, "one server was a quorum");
        if (is_acquire && handle->closing_ms != 0)
            sim_fail(s, "acquired, and being closed");
        if (is_acquire && !has_safe_hold(s, call->handle))
            sim_fail(s, "acquired, and it is not safe");
        return;
    case SHED_ECLOSED:
        if (handle->closing_ms == 0)
            sim_fail(s, "told that it is closed, and it is not");
        return;
    case SHED_EINVAL:
        if (!s->has_twins)
            sim_fail(s, "refused without a reason");
        return;
    case SHED_ETIMEDOUT:
        if (s->mode->is_calm && s->server_count == 1 && s->kind != SIM_FAIR &&
            s->idle_since_ms > 0 && call->begun_ms > s->idle_since_ms)
            sim_fail(s, "another has it, and it was free all the time");
        if (!is_acquire)
            sim_fail(s, "no acquire, and another has it");
        if (sim_local_ms(s, handle->process) < call->request.deadline_ms)
            sim_fail(s, "another has it, told before the deadline");
        return;
    case SHED_ELOST:
        if (is_acquire)
            sim_fail(s, "an acquire was lost");
        if (s->mode->is_calm && call->request.op == SHED_LOCK_OP_RELEASE)
            sim_fail(s, "what was released was lost before");
        return;
    default:
        if (s->mode->is_calm && !s->has_twins)
            sim_fail(s, "nothing goes wrong: %s", call->request.error.reason);
        if (is_acquire && call->request.holder.wait_ms == 0 &&
            !call->request.is_tried)
            sim_fail(s, "a single try was not made: %s",
                     call->request.error.reason);
    }
}

void sim_check_answer(struct sim *s, const struct sim_call *call)
{
    if (call->answers != 1)
        sim_fail(s, "a call was answered twice");
    check_code(s, call);
    check_time(s, call);
    if (call->request.op == SHED_LOCK_OP_EXTEND &&
        call->request.code == SHED_OK &&
        s->handle[call->handle].machine.hold.generation !=
            call->request.generation)
        sim_fail(s, "what was extended is another hold");
    if (call->request.op == SHED_LOCK_OP_ADVANCE &&
        call->request.code == SHED_OK &&
        call->request.fence_number > s->advanced) {
        s->advanced = call->request.fence_number;
        s->advanced_ms = s->now_ms;
    }
}

/* -------------------------------------------------------------- the world */

static bool is_exclusive(const struct sim *s)
{
    return s->mode->is_calm || s->mode->is_quick ||
           (!s->mode->breaks_exclusion && s->kind != SIM_EXPIRE &&
            s->kind != SIM_TIMESTAMP);
}

/* A hold that nobody renews or extends ends with its lease. */
static void check_length(struct sim *s, unsigned h)
{
    const struct sim_handle *handle = &s->handle[h];
    const struct shed_hold *hold = &handle->machine.hold;

    uint64_t most_ms = s->options.lease_ms + s->options.watchdog_ms;

    if (s->algorithm->has_lease &&
        handle->extended_generation != hold->generation &&
        sim_local_ms(s, handle->process) > hold->since_ms + most_ms)
        sim_fail(s, "a hold lasts longer than it may");
}

static void check_exclusion(struct sim *s)
{
    unsigned holders = 0;

    for (unsigned h = 0; h < s->handle_count; h++)
        if (has_safe_hold(s, h)) {
            holders++;
            check_length(s, h);
        }
    if (holders > 1 && is_exclusive(s))
        sim_fail(s, "%u hold it", holders);
}

/* The oldest call that waits in a machine; NULL: none. */
static const struct sim_call *oldest_waiter(const struct sim *s)
{
    for (size_t i = 0; i < s->call_count; i++)
        if (s->call[i].state == SIM_WAITING &&
            s->call[i].request.op == SHED_LOCK_OP_ACQUIRE &&
            s->call[i].request.holder.wait_ms > 0 &&
            s->handle[s->call[i].handle].life == SIM_IN_USE)
            return &s->call[i];
    return NULL;
}

static bool is_free(const struct sim *s)
{
    for (unsigned i = 0; i < s->server_count; i++)
        if (s->server[i].model.lock.is_set &&
            (s->server[i].model.lock.ends_ms == 0 ||
             s->server[i].model.lock.ends_ms >=
                 s->server[i].model.now_us / 1000))
            return false;
    return true;
}

/* If nothing goes wrong, a free lock is soon acquired. */
static void check_promptness(struct sim *s)
{
    /* nobody is told when a waiter leaves a fair queue */
    bool is_prompt = s->mode->is_prompt && s->kind != SIM_FAIR;
    uint64_t bound_ms = is_prompt ? 12 + 6 * s->mode->latency_ms
                                  : 2 * POLL_MS + 20 * s->mode->latency_ms;
    const struct sim_call *waiter = oldest_waiter(s);

    if (s->mode->flushes > 0) /* found out by a renewal */
        bound_ms = s->options.lease_ms / 2 + 20;
    if (!(s->mode->is_calm || s->mode->is_prompt) || s->has_twins ||
        waiter == NULL || !is_free(s)) {
        s->freed_ms = 0;
        return;
    }
    if (s->freed_ms == 0)
        s->freed_ms = s->now_ms;
    if (s->server_count > 1)
        bound_ms += POLL_MS; /* the votes can be split */
    if (s->now_ms > s->freed_ms + bound_ms)
        sim_fail(s, "free for %llu ms, and a call waits",
                 (unsigned long long)(s->now_ms - s->freed_ms));
}

/* A lock without an expiry, left by a holder that died while taking it, is
 * repaired. */
static void check_stuck(struct sim *s)
{
    const struct lock_model_slot *lock = &s->server[0].model.lock;
    bool is_stuck = s->kind == SIM_EXPIRE && lock->is_set &&
                    lock->ends_ms == 0 && oldest_waiter(s) != NULL;

    if (!is_stuck || s->now_ms < s->faults_end_ms)
        s->stuck_ms = s->now_ms;
    if (s->now_ms > s->stuck_ms + STUCK_MS)
        sim_fail(s, "a lock without an end is not repaired");
}

/* What is due at some time is done then. */
static void check_lateness(struct sim *s, unsigned h)
{
    enum { LATE_MS = 3 };
    const struct sim_handle *handle = &s->handle[h];
    const struct shed_lock_machine *m = &handle->machine;
    const struct shed_voter *v = &handle->voter[0];
    uint64_t now_ms = sim_local_ms(s, handle->process);

    if (handle->life != SIM_IN_USE || !sim_is_alive(s, h) ||
        s->process[handle->process].stalled_until_ms + LATE_MS > s->now_ms)
        return;
    if (s->is_watched && m->hold.is_held && m->hold.valid_until_ms < now_ms &&
        m->hold.valid_until_ms + LATE_MS < now_ms)
        sim_fail(s, "a lease has ended, and nobody has seen it");
    if (s->server_count == 1 && m->life == SHED_LOCK_OPEN &&
        v->state == SHED_VOTER_IDLE && v->exchange.is_by_link &&
        v->exchange.op == SHED_LOCK_OP_RELEASE &&
        sim_is_leftover(v, &v->exchange.holder))
        sim_fail(s, "the session does not remove what a link has left");
    if (s->server_count > 1 && m->round.is_open &&
        now_ms >
            handle->round_since_ms + s->options.lease_ms / 20 + 10 + LATE_MS)
        sim_fail(s, "a round does not end");
}

void sim_check_epoch(struct sim *s, unsigned h, unsigned server)
{
    const struct shed_lock_machine *m = &s->handle[h].machine;

    if (s->process[s->handle[h].process].session[server].is_up &&
        s->handle[h].life == SIM_IN_USE && m->life == SHED_LOCK_OPEN &&
        !m->round.is_open && m->voter[server].state == SHED_VOTER_IDLE &&
        m->voter[server].leftover_count > 0)
        sim_fail(s, "a new session, and leftovers are not removed");
}

void sim_check_world(struct sim *s)
{
    for (unsigned h = 0; h < s->handle_count; h++)
        check_lateness(s, h);
    if (!is_free(s))
        s->idle_since_ms = 0;
    else if (s->idle_since_ms == 0)
        s->idle_since_ms = s->now_ms;
    check_stuck(s);
    check_exclusion(s);
    check_promptness(s);
    sim_check_orphans(s);
    for (unsigned h = 0; h < s->handle_count; h++)
        if (s->handle[h].life == SIM_IN_USE &&
            s->handle[h].machine.act.lost > 0 && !s->handle[h].is_posted)
            sim_fail(s, "a loss, and nobody is going to tell of it");
}

/* ------------------------------------------------------ holds that last */

static bool is_record_of(const struct sim *s, unsigned h, unsigned server)
{
    enum { PROCESS_AT = 19, RUN_AT = 35 };
    const struct lock_model *model = &s->server[server].model;
    const char *record = model->lock.value.at;
    char process[SHED_PROCESS_BYTES + 1];

    if (!s->process[s->handle[h].process].has_pushes)
        return true;
    snprintf(process, sizeof(process), "%016x", s->handle[h].process);
    return memcmp(record + PROCESS_AT, process, SHED_PROCESS_BYTES) == 0 &&
           memcmp(record + RUN_AT, model->run, SHED_RUN_BYTES) == 0;
}

static void check_hold(struct sim *s, unsigned h)
{
    const struct shed_lock_machine *m = &s->handle[h].machine;
    uint64_t now_ms = sim_local_ms(s, s->handle[h].process);
    unsigned old = 0;
    bool is_settled = m->hold.renew_at_ms != UINT64_MAX &&
                      now_ms - m->hold.since_ms > 5 * s->options.lease_ms / 2;

    if (!has_safe_hold(s, h) || !s->algorithm->has_tokens ||
        s->handle[h].closing_ms != 0 || m->round.is_open ||
        now_ms - m->hold.since_ms < CALM_MS ||
        s->now_ms < s->process[s->handle[h].process].changed_ms + CALM_MS)
        return;
    for (unsigned i = 0; i < s->server_count; i++) {
        const struct lock_model *model = &s->server[i].model;
        bool has_it = lock_model_is_held_by(model, &m->hold.holder);
        if (!s->process[s->handle[h].process].session[i].is_up ||
            s->server[i].frozen_until_ms > s->now_ms ||
            m->voter[i].state != SHED_VOTER_IDLE)
            continue;
        if (!has_it && is_settled)
            sim_fail(s, "server %u does not have what is held", i);
        old += has_it && !is_record_of(s, h, i);
    }
    /* one of several servers that was busy gets it with the next renewal */
    if (old > s->server_count / 2)
        sim_fail(s, "%u records are of another session", old);
}

void sim_check_holds(struct sim *s)
{
    if (s->mode->breaks_exclusion || s->mode->jumps > 0)
        return;
    for (unsigned h = 0; h < s->handle_count; h++)
        if (s->handle[h].life == SIM_IN_USE &&
            s->process[s->handle[h].process].stalled_until_ms <= s->now_ms)
            check_hold(s, h);
}

/* ----------------------------------------------------------------- the end */

static void check_handle(struct sim *s, unsigned h)
{
    const struct sim_handle *handle = &s->handle[h];
    const struct shed_lock_machine *m = &handle->machine;

    if (handle->lost_generation != m->lost_generation)
        sim_fail(s, "a loss was not told");
    if (handle->life == SIM_GONE)
        return;
    if (handle->closing_ms != 0)
        sim_fail(s, "closing has not ended");
    if (m->round.is_open || m->acquires.first != NULL ||
        m->others.first != NULL)
        sim_fail(s, "a machine is left over with something under way");
    for (unsigned i = 0; i < s->server_count; i++)
        if (m->voter[i].state != SHED_VOTER_IDLE ||
            m->voter[i].leftover_count > 0)
            sim_fail(s, "server %u has %zu leftovers", i,
                     m->voter[i].leftover_count);
}

static void check_call(struct sim *s, const struct sim_call *call)
{
    bool is_ours = sim_is_alive(s, call->handle);

    if (is_ours && (call->state == SIM_WAITING || call->state == SIM_TRYING))
        sim_fail(s, "a call was never answered");
    if (is_ours && call->answers != 1)
        sim_fail(s, "a call was answered %u times", call->answers);
}

void sim_check_end(struct sim *s)
{
    for (size_t i = 0; i < s->call_count; i++)
        check_call(s, &s->call[i]);
    for (unsigned h = 0; h < s->handle_count; h++)
        if (sim_is_alive(s, h))
            check_handle(s, h);
    for (unsigned i = 0; i < s->server_count; i++)
        sim_check_server(s, i);
}
