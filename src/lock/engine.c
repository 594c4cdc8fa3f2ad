/*
 * The engine. Its invariants: the machine is stepped under mu; an act is
 * carried out on the home reactor only, after mu is released, in the order of
 * its fields; nothing is touched after the closer has been told.
 *
 * Design notes
 *
 * Three kinds of threads meet here. A caller that waits adds its request and
 * makes a step. If its command is the next one, it may send it over a link
 * itself: that saves waking two threads (shed_lock_machine_lend). All else that
 * such a step decides it leaves to the home reactor, which it wakes. Callers
 * that do not wait only add requests. The reactors of a quorum's other clients
 * only run exchanges. Whatever happens on any of these threads reaches the home
 * reactor by a post of one of the servers, which counts as one however often it
 * is posted before it runs (server.c).
 *
 * A step decides, and perform() acts. Between the two mu is free, so a caller
 * may change the machine before a question is sent. That does no harm: the
 * question is in its voter, which belongs to the thread that sends it until the
 * answer comes; the next step sees what the caller did; and a request in the
 * act has left its queue, so neither a cancel nor another step finds it.
 *
 * A callback may call any function of the lock that does not block. Such
 * functions take mu and post; they never step. The list of answered requests is
 * taken out of the machine before the walk. A request leaves it before its
 * caller is told, to whom it belongs again then.
 *
 * The closer waits at a latch on its stack. The latch is counted down last,
 * after all callbacks, because the lock may be freed right after that. A timer
 * or a session event that was posted earlier can still reach the machine, and
 * finds it CLOSED: the timer is destroyed and the listeners are removed by
 * later posts.
 */
#include "lock/engine.h"

#include <assert.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/latch.h"
#include "base/mutex.h"
#include "base/random.h"

/* --------------------------------------------------- counting and telling */

static void tell(const struct shed_lock *l, enum shed_event_kind kind,
                 enum shed_code outcome, uint64_t duration_us,
                 const char *reason)
{
    const struct shed_event event = {.kind = kind,
                                     .outcome = outcome,
                                     .name = {l->name, l->name_size},
                                     .duration_us = duration_us,
                                     .reason = reason};

    shed_events_tell(l->home->events, &event);
}

static void count_acquire(struct shed_lock *l,
                          const struct shed_lock_request *r)
{
    uint64_t wait_us = shed_now_us() - r->begun_us;

    if (r->code != SHED_OK) {
        shed_count(r->code == SHED_ETIMEDOUT ? &l->counters.timeouts
                                             : &l->counters.failures,
                   1);
        return;
    }
    if (r->is_takeover)
        tell(l, SHED_EVENT_LOCK_TAKEN_OVER, SHED_OK, 0, "its holder was dead");
    shed_histogram_add(&l->counters.wait_us, wait_us);
    tell(l, SHED_EVENT_LOCK_ACQUIRED, SHED_OK, wait_us, NULL);
}

static void count_release(struct shed_lock *l,
                          const struct shed_lock_request *r)
{
    if (r->code == SHED_ELOST) {
        shed_count(&l->counters.lost, 1);
        tell(l, SHED_EVENT_LOCK_LOST, r->code, r->held_us,
             "it was already gone when it was released");
        return;
    }
    if (r->code == SHED_OK)
        shed_count(&l->counters.released, 1);
    tell(l, SHED_EVENT_LOCK_RELEASED, r->code, r->held_us,
         r->code == SHED_OK ? NULL : r->error.reason);
}

void shed_lock_count(struct shed_lock *l, const struct shed_lock_request *r)
{
    if (r->op == SHED_LOCK_OP_ACQUIRE)
        count_acquire(l, r);
    else if (r->op == SHED_LOCK_OP_RELEASE && !r->is_inner)
        count_release(l, r);
}

/* ---------------------------------------------------------------- the facts */

/* Whether the session is connected, or has failed to connect for now. Always
 * true if others do not use the session to tell that a holder is alive. If a
 * holder acquired before that and died, nobody would notice until its lease
 * ends. Any thread. */
static bool is_settled(const struct shed_lock *l)
{
    return !l->spec.algorithm->has_tokens || l->count > 1 ||
           shed_client_is_settled(l->home, l->spec.key[SHED_LOCK_KEY]);
}

static bool is_same_server(const struct shed_lock *l, struct shed_client *a,
                           struct shed_client *b)
{
    struct shed_server *of_a = shed_client_hold(a, l->spec.key[SHED_LOCK_KEY]);
    struct shed_server *of_b = shed_client_hold(b, l->spec.key[SHED_LOCK_KEY]);
    bool is_same = shed_session_is_same_server(of_a->session, of_b->session);

    shed_client_give_back(b, of_b);
    shed_client_give_back(a, of_a);
    return is_same;
}

/* Clients of the same server must not count as separate votes, nor clients of
 * one cluster, all of which ask the owner of the key. Their run ids are known
 * once they are connected. */
static bool has_twins(const struct shed_lock *l, struct shed_error *err)
{
    for (size_t i = 1; i < l->count; i++)
        for (size_t j = 0; j < i; j++)
            if (is_same_server(l, l->server[j].client, l->server[i].client)) {
                (void)shed_fail(
                    err, SHED_EINVAL,
                    "clients %zu and %zu of the quorum are connected to the "
                    "same server or cluster: use independent servers",
                    j, i);
                return true;
            }
    return false;
}

/* ----------------------------------------------------------------- the acts */

/* The thread that waits at a latch counts its call itself. */
static void finish(struct shed_lock *l, struct shed_lock_request *r)
{
    if (r->latch != NULL) {
        shed_latch_count_down(r->latch, 1);
        return;
    }
    shed_lock_count(l, r);
    r->done(r->user, l, r->code, r->code != SHED_OK ? &r->error : NULL);
    free(r);
}

static void perform(struct shed_lock *l, struct shed_lock_act *act)
{
    struct shed_lock_request *r;

    for (size_t i = 0; i < l->count; i++)
        if ((act->ask >> i & 1) != 0)
            shed_lock_server_ask(&l->server[i]);
    for (unsigned i = 0; i < act->lost; i++) {
        tell(l, SHED_EVENT_LOCK_LOST, SHED_ELOST, act->lost_us,
             act->lost_reason.reason);
        if (l->options.on_lost != NULL)
            l->options.on_lost(l->options.user, l, &act->lost_reason);
    }
    while ((r = shed_lock_request_of(shed_list_pop(&act->answered))) != NULL)
        finish(l, r); /* after the last one the lock may be gone */
}

void shed_lock_drive(struct shed_lock *l, enum shed_lock_event event,
                     size_t server)
{
    struct shed_lock_facts facts = {
        .random = shed_random_jitter(),
        .is_pushed = shed_session_is_on(
            shed_client_session(l->home, l->spec.key[SHED_LOCK_KEY])),
        .is_settled = is_settled(l)};
    struct shed_lock_act act;
    bool is_other_time;

    assert(shed_reactor_is_current(l->home->reactor));
    shed_mutex_lock(&l->mu);
    facts.now_us = shed_now_us(); /* not before a hold that has just begun */
    facts.refusal = has_twins(l, &l->refusal) ? &l->refusal : NULL;
    if (event == SHED_LOCK_EV_TIMER)
        l->timer_at_ms = UINT64_MAX;
    shed_lock_step(&l->machine, event, server, &facts);
    act = shed_lock_machine_take(&l->machine);
    is_other_time = act.timer_at_ms != l->timer_at_ms;
    l->timer_at_ms = act.timer_at_ms;
    shed_mutex_unlock(&l->mu);
    if (is_other_time && act.timer_at_ms != UINT64_MAX)
        shed_timer_set(l->timer, shed_left_ms(act.timer_at_ms, shed_now_ms()));
    else if (is_other_time)
        shed_timer_stop(l->timer);
    perform(l, &act);
}

/* --------------------------------------------------------------- any thread */

void shed_lock_wake(struct shed_lock *l)
{
    shed_lock_server_tell(&l->server[0], SHED_LOCK_EV_WAKE);
}

void shed_lock_changed_locked(struct shed_lock *l)
{
    const struct shed_lock_act *act = &l->machine.act;

    if (act->ask != 0 || act->lost > 0 || act->answered.first != NULL ||
        act->timer_at_ms < l->timer_at_ms)
        shed_lock_wake(l);
}

/* Make a step in the caller's thread, which does not know whether changes are
 * announced. What the step decides is left for the engine to do. */
static void step_locked(struct shed_lock *l, enum shed_lock_event event)
{
    struct shed_lock_facts facts = l->machine.facts;

    facts.now_us = shed_now_us();
    facts.random = shed_random_jitter();
    facts.is_settled = is_settled(l);
    shed_lock_step(&l->machine, event, 0, &facts);
}

static void exchange_here(struct shed_exchange *exchange,
                          struct shed_client *client)
{
    struct shed_args args;
    struct shed_error err;
    struct shed_reply *reply = NULL;
    unsigned sent;

    if (!shed_exchange_next_command(exchange, client, &args))
        return;
    if (shed_client_call(client, &args, 1, &reply, NULL, &sent,
                         exchange->asked_ms + client->command_timeout_ms,
                         &err) != SHED_OK) {
        reply = NULL;
        /* to an acquire, the other code says that others have the lock */
        if (exchange->op == SHED_LOCK_OP_ACQUIRE && err.code == SHED_ETIMEDOUT)
            err.code = SHED_EREDIS;
    }
    exchange->is_repeated = sent > 1;
    exchange->is_unsent = sent == 0;
    (void)shed_exchange_on_reply(exchange, reply, &err);
    shed_reply_free(reply);
}

bool shed_lock_ask_here(struct shed_lock *l, struct shed_lock_request *r)
{
    bool is_answered;

    shed_mutex_lock(&l->mu);
    if (!shed_lock_machine_add(&l->machine, r)) {
        shed_mutex_unlock(&l->mu);
        r->code = shed_lock_fail_closed(&r->error);
        return true;
    }
    step_locked(l, SHED_LOCK_EV_WAKE);
    if (shed_lock_machine_lend(&l->machine, r)) {
        shed_lock_changed_locked(l);
        shed_mutex_unlock(&l->mu);
        exchange_here(l->server[0].exchange, l->home);
        shed_mutex_lock(&l->mu);
        step_locked(l, SHED_LOCK_EV_ANSWERED);
    }
    is_answered = shed_lock_machine_take_answer(&l->machine, r);
    shed_lock_changed_locked(l);
    shed_mutex_unlock(&l->mu);
    return is_answered;
}
