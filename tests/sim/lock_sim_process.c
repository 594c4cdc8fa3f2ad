/* Processes: what engine.c, server.c and lock.c do around a machine,
 * with the application on top. Its invariant: all calls of a handle, except
 * waiting acquires, end before the handle is closed. */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "sim/lock_sim.h"

#define PATIENT_MS UINT64_C(4000)

/* The owner of a thread that has ended without a release. */
static struct shed_owner *ended_owner;

static void *own(void *arg)
{
    (void)arg;
    ended_owner = shed_owner_ref(shed_owner_self());
    return NULL;
}

static struct shed_owner *owner_that_has_ended(void)
{
    pthread_t thread;

    if (ended_owner == NULL && pthread_create(&thread, NULL, own, NULL) == 0)
        (void)pthread_join(thread, NULL);
    return ended_owner;
}

static struct shed_lock_machine *machine_of(struct sim *s, unsigned h)
{
    return &s->handle[h].machine;
}

static uint64_t local_ms(const struct sim *s, unsigned h)
{
    return sim_local_ms(s, s->handle[h].process);
}

/* ----------------------------------------------------------------- driving */

static void wake(struct sim *s, unsigned h)
{
    if (s->handle[h].is_posted)
        return;
    s->handle[h].is_posted = true;
    sim_plan(s, 0,
             (struct sim_event){.type = SIM_POST,
                                .process = s->handle[h].process,
                                .index = h});
}

static void changed(struct sim *s, unsigned h)
{
    const struct shed_lock_act *act = &machine_of(s, h)->act;

    sim_check_grant(s, h);
    if (act->ask != 0 || act->lost > 0 || act->answered.first != NULL ||
        act->timer_at_ms < s->handle[h].timer_at_ms)
        wake(s, h);
}

static void set_timer(struct sim *s, unsigned h, uint64_t at_ms)
{
    struct sim_handle *handle = &s->handle[h];
    uint64_t now_ms = local_ms(s, h);
    uint64_t pm = (uint64_t)(1000 + s->process[handle->process].drift_pm);
    uint64_t left_ms = at_ms > now_ms ? at_ms - now_ms : 0;

    handle->timer_at_ms = at_ms;
    handle->timer++;
    if (at_ms != UINT64_MAX)
        sim_plan(s, (left_ms * 1000 + pm - 1) / pm,
                 (struct sim_event){.type = SIM_TIMER,
                                    .process = handle->process,
                                    .index = h,
                                    .number = handle->timer});
}

static void on_done(struct sim *s, struct sim_call *call);

static void perform(struct sim *s, unsigned h, struct shed_lock_act *act)
{
    struct sim_handle *handle = &s->handle[h];
    struct shed_lock_request *r;

    if (act->timer_at_ms != handle->timer_at_ms)
        set_timer(s, h, act->timer_at_ms);
    for (unsigned i = 0; i < s->server_count; i++)
        if ((act->ask >> i & 1) != 0)
            sim_ask(s, h, i);
    while ((r = shed_lock_request_of(shed_list_pop(&act->answered))) != NULL) {
        if (r != &handle->closer) {
            on_done(s, (struct sim_call *)(void *)r);
            continue;
        }
        sim_trace(s, "closed", handle->process, 0, h);
        handle->life = SIM_GONE;
    }
}

static bool is_settled(const struct sim *s, unsigned h)
{
    return !s->algorithm->has_tokens || s->server_count > 1 ||
           s->process[s->handle[h].process].is_settled;
}

/* In the thread of a caller, which leaves what is decided to be done. */
static void step_here(struct sim *s, unsigned h, enum shed_lock_event type)
{
    struct shed_lock_facts facts = machine_of(s, h)->facts;

    facts.now_us = 1000 * local_ms(s, h);
    facts.random = sim_draw(s, 0);
    facts.is_settled = is_settled(s, h);
    shed_lock_step(machine_of(s, h), type, 0, &facts);
    sim_check_step(s, h, &machine_of(s, h)->act, false);
}

static void drive(struct sim *s, unsigned h, enum shed_lock_event type,
                  unsigned server)
{
    struct sim_handle *handle = &s->handle[h];
    const struct sim_process *process = &s->process[handle->process];
    bool was_gone = handle->life == SIM_GONE;
    struct shed_lock_facts facts = {
        .now_us = 1000 * local_ms(s, h),
        .random = sim_draw(s, 0),
        .is_pushed = process->has_pushes && process->session[0].is_up,
        .is_settled = is_settled(s, h),
        .refusal =
            s->has_twins && s->now_ms >= s->twins_ms ? &s->refusal : NULL};
    struct shed_lock_act act;

    if (handle->life == SIM_UNUSED)
        return;
    shed_lock_step(&handle->machine, type, server, &facts);
    act = shed_lock_machine_take(&handle->machine);
    sim_check_step(s, h, &act, was_gone);
    if (!was_gone)
        perform(s, h, &act);
    sim_check_grant(s, h);
}

void sim_on_post(struct sim *s, const struct sim_event *e)
{
    s->handle[e->index].is_posted = false;
    drive(s, (unsigned)e->index, SHED_LOCK_EV_WAKE, 0);
}

void sim_on_timer(struct sim *s, const struct sim_event *e)
{
    struct sim_handle *handle = &s->handle[e->index];

    if (e->number != handle->timer)
        return;
    handle->timer_at_ms = UINT64_MAX;
    drive(s, (unsigned)e->index, SHED_LOCK_EV_TIMER, 0);
}

static void tell_all(struct sim *s, unsigned p, unsigned server,
                     enum shed_lock_event type)
{
    for (unsigned h = 0; h < s->handle_count; h++)
        if (s->handle[h].process == p) {
            drive(s, h, type, server);
            if (type == SHED_LOCK_EV_EPOCH)
                sim_check_epoch(s, h, server);
        }
}

void sim_on_push(struct sim *s, const struct sim_event *e)
{
    if (s->process[e->process].session[e->server].number == e->number)
        tell_all(s, e->process, e->server, SHED_LOCK_EV_CHANGE);
}

void sim_on_epoch(struct sim *s, unsigned p, unsigned server)
{
    if (s->process[p].has_pushes)
        tell_all(s, p, server, SHED_LOCK_EV_EPOCH);
}

/* ------------------------------------------------------------------ calls */

/* Has a call that may be cancelled; perform() does what it would do. */
static void is_told(void *user, struct shed_lock *lock, enum shed_code code,
                    const struct shed_error *reason)
{
    (void)user;
    (void)lock;
    (void)code;
    (void)reason;
}

static struct sim_call *make_call(struct sim *s, unsigned h,
                                  enum shed_lock_op op)
{
    struct sim_call *call;

    if (s->call_count == SIM_CALLS)
        return NULL;
    call = &s->call[s->call_count++];
    *call = (struct sim_call){
        .request = {.op = op, .lease_ms = s->options.lease_ms},
        .state = SIM_WAITING,
        .sim = s,
        .handle = h,
        .begun_ms = s->now_ms,
        .stalled_ms = s->process[s->handle[h].process].stalled_ms};
    call->request.user = call;
    call->request.done = is_told;
    s->handle[h].busy_calls += op != SHED_LOCK_OP_ACQUIRE;
    return call;
}

static size_t index_of(const struct sim *s, const struct sim_call *call)
{
    return (size_t)(call - s->call);
}

static void draw_holder(struct sim *s, struct shed_lock_holder *holder)
{
    for (size_t i = 0; i < sizeof(holder->token); i += sizeof(uint64_t)) {
        uint64_t bits = sim_draw(s, 0);
        memcpy(holder->token + i, &bits, sizeof(bits));
    }
    for (size_t i = 0; i < sizeof(holder->token); i++) {
        static const char digits[] = "0123456789abcdef";
        holder->token_hex[2 * i] = digits[holder->token[i] >> 4];
        holder->token_hex[2 * i + 1] = digits[holder->token[i] & 15];
    }
}

/* What a thread does that waits for its call. */
static void ask_here(struct sim *s, struct sim_call *call)
{
    struct sim_handle *handle = &s->handle[call->handle];
    bool is_acquire = call->request.op == SHED_LOCK_OP_ACQUIRE;
    bool is_lent;

    call->is_blocking = true;
    step_here(s, call->handle, SHED_LOCK_EV_WAKE);
    is_lent = shed_lock_machine_lend(&handle->machine, &call->request);
    if (is_lent) {
        if (handle->machine.hold.is_held)
            sim_fail(s, "a call over a link may hold up a renewal");
        call->state = SIM_TRYING;
        handle->busy_calls += is_acquire;
        (void)sim_send_next(s, call->handle, 0, index_of(s, call),
                            &handle->voter[0].exchange);
    } else if (shed_lock_machine_take_answer(&handle->machine,
                                             &call->request)) {
        on_done(s, call);
    }
    changed(s, call->handle);
}

static void submit(struct sim *s, struct sim_call *call)
{
    if (!shed_lock_machine_add(machine_of(s, call->handle), &call->request)) {
        call->request.code = shed_lock_fail_closed(&call->request.error);
        on_done(s, call);
        return;
    }
    if (s->handle[call->handle].closing_ms != 0)
        sim_fail(s, "a lock that is being closed takes a call in");
    if (sim_chance(s, s->mode->link_pct))
        ask_here(s, call);
    else
        wake(s, call->handle);
}

static void plan_call_event(struct sim *s, const struct sim_call *call,
                            uint64_t delay_ms, enum sim_event_type type)
{
    sim_plan(s, delay_ms,
             (struct sim_event){.type = type,
                                .process = s->handle[call->handle].process,
                                .index = index_of(s, call)});
}

static uint64_t draw_wait_ms(struct sim *s)
{
    if (s->mode->is_crowd || s->mode->is_prompt)
        return PATIENT_MS;
    if (sim_chance(s, 20))
        return 0;
    return sim_chance(s, 50) ? sim_between(s, 5, 100)
                             : sim_between(s, 200, 1000);
}

/* Make later acquires get higher numbers. */
static void advance(struct sim *s, unsigned h)
{
    struct sim_call *call = make_call(s, h, SHED_LOCK_OP_ADVANCE);

    if (call == NULL)
        return;
    call->request.fence_number =
        s->server[0].model.now_us + sim_draw(s, 100000);
    submit(s, call);
}

void sim_on_call(struct sim *s, const struct sim_event *e)
{
    unsigned h = (unsigned)e->index;
    struct sim_handle *handle = &s->handle[h];
    uint64_t wait_ms = draw_wait_ms(s);
    struct sim_call *call;
    bool is_held = shed_hold_is_safe(&handle->machine.hold, local_ms(s, h));

    if (handle->life != SIM_IN_USE ||
        (is_held && wait_ms == 0 && sim_chance(s, 50)))
        return;
    if (s->algorithm->has_tokens && handle->closing_ms == 0 &&
        sim_chance(s, s->mode->advance_pct))
        advance(s, h);
    call = make_call(s, h, SHED_LOCK_OP_ACQUIRE);
    if (call == NULL)
        return;
    if (s->algorithm->has_lease && sim_chance(s, s->mode->forgotten_pct))
        call->request.owner = owner_that_has_ended();
    draw_holder(s, &call->request.holder);
    call->request.holder.wait_ms = wait_ms;
    call->request.deadline_ms = local_ms(s, h) + wait_ms;
    (void)shed_fail(&call->request.error, SHED_ETIMEDOUT, "held by another");
    sim_trace(s, "acquires", handle->process, h, index_of(s, call));
    submit(s, call);
    if (sim_chance(s, s->mode->cancel_pct))
        plan_call_event(s, call, sim_draw(s, wait_ms + 10), SIM_CANCEL);
}

/* A call for which a thread waits is not cancelled. */
void sim_on_cancel(struct sim *s, const struct sim_event *e)
{
    struct sim_call *call = &s->call[e->index];

    if (call->state != SIM_WAITING || call->is_blocking ||
        s->handle[call->handle].life != SIM_IN_USE)
        return;
    if (shed_lock_machine_cancel(machine_of(s, call->handle), call) != 1)
        sim_fail(s, "an acquire that waits cannot be cancelled");
    call->cancelled_ms = s->now_ms;
    sim_trace(s, "cancels", e->process, 0, e->index);
    wake(s, call->handle);
}

static uint64_t draw_hold_ms(struct sim *s)
{
    if (s->mode->hold_ms > 0)
        return sim_between(s, 0, s->mode->hold_ms);
    switch (sim_draw(s, 10)) {
    case 0:
        return s->faults_end_ms + 4 * s->options.lease_ms - s->now_ms;
    case 1:
    case 2:
        return sim_between(s, s->options.lease_ms, 3 * s->options.lease_ms);
    case 3:
    case 4:
    case 5:
        return sim_between(s, 10, 80);
    default:
        return sim_between(s, 0, 5);
    }
}

static void begin_holding(struct sim *s, struct sim_call *call)
{
    uint64_t hold_ms = draw_hold_ms(s);

    call->state = SIM_HOLDING;
    call->generation = machine_of(s, call->handle)->hold.generation;
    if (call->request.owner != NULL)
        return; /* it has already ended */
    plan_call_event(s, call, hold_ms, SIM_RELEASE);
    while (sim_chance(s, s->mode->extend_pct))
        plan_call_event(s, call, sim_draw(s, hold_ms + 1), SIM_EXTEND);
}

/* In a crowd each handle wants the lock again at once. */
static void call_again(struct sim *s, unsigned h)
{
    if (s->mode->is_crowd && s->now_ms < s->calls_end_ms &&
        s->call_count < SIM_CALLS - 2 * SIM_HANDLES)
        sim_plan(s, 0,
                 (struct sim_event){.type = SIM_CALL,
                                    .process = s->handle[h].process,
                                    .index = h});
}

static void on_done(struct sim *s, struct sim_call *call)
{
    call->answers++;
    sim_trace(s, "answered", s->handle[call->handle].process, index_of(s, call),
              (uint64_t)call->request.code);
    sim_check_answer(s, call);
    call->state = SIM_ENDED;
    if (call->request.op != SHED_LOCK_OP_ACQUIRE) {
        s->handle[call->handle].busy_calls--;
        if (call->request.op == SHED_LOCK_OP_RELEASE)
            call_again(s, call->handle);
    } else if (call->request.code == SHED_OK) {
        begin_holding(s, call);
    }
}

/* ------------------------------------------------------ the end of a command
 */

static void end_here(struct sim *s, struct sim_call *call)
{
    s->handle[call->handle].busy_calls -=
        call->request.op == SHED_LOCK_OP_ACQUIRE;
    call->state = SIM_WAITING;
    step_here(s, call->handle, SHED_LOCK_EV_ANSWERED);
    if (shed_lock_machine_take_answer(machine_of(s, call->handle),
                                      &call->request))
        on_done(s, call);
    changed(s, call->handle);
}

static void finish(struct sim *s, const struct sim_request *r)
{
    if (r->call < SIM_CALLS)
        end_here(s, &s->call[r->call]);
    else
        drive(s, r->handle, SHED_LOCK_EV_ANSWERED, r->server);
}

void sim_on_reply(struct sim *s, const struct sim_event *e)
{
    struct sim_request *r = &s->request[e->index];
    struct sim_request copy;
    struct sim_handle *handle = &s->handle[r->handle];
    struct shed_exchange *exchange = &handle->voter[r->server].exchange;
    bool is_heard = !r->has_reply && handle->life != SIM_UNUSED;

    r->pending--;
    r->has_reply = true;
    r->is_used = r->pending > 0;
    copy = *r; /* its slot may be reused now */
    if (is_heard && (!copy.was_sent || sim_take_reply(s, &copy, exchange)))
        finish(s, &copy);
}

/* ------------------------------------------------------------ what follows */

void sim_on_release(struct sim *s, const struct sim_event *e)
{
    struct sim_call *call = &s->call[e->index];
    struct shed_lock_machine *m = machine_of(s, call->handle);
    const struct shed_hold *hold = &m->hold;
    uint64_t now_us = 1000 * local_ms(s, call->handle);
    struct sim_call *release;

    if (call->state != SIM_HOLDING ||
        s->handle[call->handle].life != SIM_IN_USE ||
        s->handle[call->handle].closing_ms != 0)
        return;
    call->state = SIM_ENDED;
    if (!hold->is_held || hold->generation != call->generation) {
        call_again(s, call->handle); /* it was lost */
        return;
    }
    if (!shed_hold_is_safe(hold, local_ms(s, call->handle)) &&
        sim_chance(s, 50)) { /* it was entered twice */
        shed_lock_machine_see_end(m, now_us);
        changed(s, call->handle);
        call_again(s, call->handle);
        return;
    }
    release = make_call(s, call->handle, SHED_LOCK_OP_RELEASE);
    if (release == NULL)
        sim_fail(s, "more calls than fit");
    shed_lock_machine_leave(m, &release->request, now_us);
    s->handle[call->handle].ended_generation = hold->generation;
    changed(s, call->handle);
    sim_trace(s, "releases", e->process, 0, e->index);
    submit(s, release);
}

void sim_on_extend(struct sim *s, const struct sim_event *e)
{
    const struct sim_call *call = &s->call[e->index];
    const struct shed_hold *hold = &machine_of(s, call->handle)->hold;
    struct sim_call *extend;

    if (call->state != SIM_HOLDING ||
        s->handle[call->handle].life != SIM_IN_USE ||
        s->handle[call->handle].closing_ms != 0 ||
        hold->generation != call->generation ||
        !shed_hold_is_safe(hold, local_ms(s, call->handle)))
        return;
    extend = make_call(s, call->handle, SHED_LOCK_OP_EXTEND);
    if (extend == NULL)
        return;
    s->handle[call->handle].extended_generation = call->generation;
    extend->request.generation = call->generation;
    extend->request.lease_ms = sim_chance(s, 50)
                                   ? s->options.lease_ms
                                   : sim_between(s, 50, s->options.lease_ms);
    submit(s, extend);
}

/* --------------------------------------------------------- begin and close */

void sim_on_close(struct sim *s, const struct sim_event *e)
{
    unsigned h = (unsigned)e->index;
    struct sim_handle *handle = &s->handle[h];

    if (handle->life != SIM_IN_USE || handle->closing_ms != 0)
        return;
    if (handle->busy_calls > 0) {
        sim_plan(s, 3, *e);
        return;
    }
    handle->closing_ms = s->now_ms;
    handle->stalled_ms = s->process[handle->process].stalled_ms;
    handle->tries = shed_count_read(&handle->counters.tries);
    shed_lock_machine_close(&handle->machine, &handle->closer);
    wake(s, h);
}

static void on_lost(void *user, struct shed_lock *lock,
                    const struct shed_error *reason)
{
    (void)user;
    (void)lock;
    (void)reason;
}

void sim_open_handle(struct sim *s, unsigned p)
{
    static const char *const keys[SHED_LOCK_KEYS] = {"k",  "kf", "ks",
                                                     "kw", "kq", "ko"};
    struct sim_handle *handle = &s->handle[s->handle_count];

    *handle = (struct sim_handle){.life = SIM_IN_USE,
                                  .process = p,
                                  .spec.options = &s->options,
                                  .spec.algorithm = s->algorithm,
                                  .timer_at_ms = UINT64_MAX};
    for (int i = 0; i < SHED_LOCK_KEYS; i++) {
        handle->spec.key[i] = shed_str(keys[i]);
    }
    memset(handle->spec.handle, (int)('A' + s->handle_count),
           sizeof(handle->spec.handle));
    s->options.on_lost = s->is_watched ? on_lost : NULL;
    shed_lock_machine_init(&handle->machine, handle->voter, s->server_count,
                           &handle->spec, &handle->counters, SIM_TIMEOUT_MS,
                           "redis");
    s->handle_count++;
}
