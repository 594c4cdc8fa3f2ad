/* What the machine is made of: the queues, the hold, the voters, and the basic
 * changes of which every decision consists. Its invariant: a request is in one
 * queue until its only answer; a hold that is replaced is reported as lost. */
#include "lock/state.h"

#include <assert.h>

#include "base/backoff.h"
#include "base/error.h"

/* For how long a handle may acquire the lock repeatedly while others wait
 * elsewhere. Its own threads get it fastest, so some repetition pays. */
#define COHORT_MS 4

/* How long a waiter elsewhere needs at most to hear of a release of one server,
 * and to ask. */
#define STEP_BACK_MS 2

uint64_t shed_lock_draw(struct shed_lock_machine *m)
{
    /* splitmix64 (G. Steele, D. Lea, C. Flood, OOPSLA 2014) */
    uint64_t z = m->random += 0x9e3779b97f4a7c15;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

uint64_t shed_lock_jitter_ms(struct shed_lock_machine *m)
{
    return shed_lock_is_alone(m)
               ? 0
               : shed_backoff_ms(0, SHED_LOCK_SPREAD_MS, SHED_LOCK_SPREAD_MS,
                                 shed_lock_draw(m));
}

/* ------------------------------------------------------------- the queues */

static struct shed_list *queue_of(struct shed_lock_machine *m,
                                  const struct shed_lock_request *r)
{
    return r->op == SHED_LOCK_OP_ACQUIRE ? &m->acquires : &m->others;
}

void shed_lock_answer(struct shed_lock_machine *m, struct shed_lock_request *r,
                      enum shed_code code)
{
    assert(m->act != NULL);
    shed_list_remove(queue_of(m, r), &r->node);
    if (r->is_cancelled)
        code =
            shed_fail(&r->error, SHED_ETIMEDOUT, "the acquire was cancelled");
    if (r->op == SHED_LOCK_OP_ACQUIRE) {
        m->is_awake = true; /* so that the next request of the queue asks */
        m->attempts = 0;
    }
    r->code = code;
    shed_list_append(&m->act->answered, &r->node);
}

bool shed_lock_machine_add(struct shed_lock_machine *m,
                           struct shed_lock_request *r)
{
    if (m->life != SHED_LOCK_OPEN)
        return false;
    shed_list_append(queue_of(m, r), &r->node);
    return true;
}

size_t shed_lock_machine_cancel(struct shed_lock_machine *m, const void *user)
{
    size_t count = 0;

    for (struct shed_lock_request *r = shed_lock_request_of(m->acquires.first);
         r != NULL; r = shed_lock_next(r)) {
        if (r->done == NULL || r->is_cancelled || r->user != user)
            continue;
        r->is_cancelled = true;
        count++;
    }
    return count;
}

enum shed_code shed_lock_fail_closed(struct shed_error *err)
{
    return shed_fail(err, SHED_ECLOSED, "the lock is closed");
}

void shed_lock_fail_gone(struct shed_lock_request *r)
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

/* --------------------------------------------------------------- the hold */

void shed_lock_machine_lose(struct shed_lock_machine *m, const char *reason)
{
    (void)shed_fail(&m->lost_reason, SHED_ELOST, "%s", reason);
    m->lost++;
    shed_count(&m->counters->lost, 1);
    m->lost_generation = m->hold.generation;
    m->is_released = true;
    shed_hold_end(&m->hold);
}

void shed_lock_machine_grant(struct shed_lock_machine *m,
                             struct shed_lock_request *r,
                             const struct shed_exchange *exchange)
{
    if (m->hold.is_held)
        shed_lock_machine_lose(m, shed_hold_reason(&m->hold));
    shed_hold_begin(&m->hold, r->owner, exchange);
    r->is_takeover |= exchange->is_takeover;
    shed_count(&m->counters->acquired, 1);
    m->last_try.code = SHED_OK;
    if (m->epochs != exchange->epochs)
        m->hold.rewrite_at_ms = 0;
    if (m->cohort_since_ms == 0)
        m->cohort_since_ms = exchange->asked_ms;
}

void shed_lock_machine_see_end(struct shed_lock_machine *m, uint64_t now_ms)
{
    if (m->hold.is_held && now_ms >= m->hold.valid_until_ms)
        shed_lock_machine_lose(m, shed_hold_reason(&m->hold));
}

void shed_lock_machine_leave(struct shed_lock_machine *m,
                             struct shed_lock_request *release)
{
    release->holder = m->hold.holder;
    release->memory = m->hold.memory;
    shed_hold_end(&m->hold);
}

/* The releaser hears of its release first and would win every time, however
 * many wait elsewhere. So after COHORT_MS it steps back for as long as they
 * need to ask. */
void shed_lock_machine_released(struct shed_lock_machine *m, bool has_waiters,
                                uint64_t now_ms)
{
    if (!has_waiters) {
        m->cohort_since_ms = 0;
    } else if (now_ms - m->cohort_since_ms >= COHORT_MS) {
        m->cohort_since_ms = 0;
        m->cohort_ended_ms = now_ms;
    }
    m->is_released = true;
}

uint64_t shed_lock_machine_step_back_ms(const struct shed_lock_machine *m,
                                        uint64_t now_ms)
{
    uint64_t moment_ms =
        shed_lock_is_alone(m) ? STEP_BACK_MS : SHED_LOCK_SPREAD_MS;

    return now_ms - m->cohort_ended_ms < moment_ms ? moment_ms : 0;
}

void shed_lock_machine_close(struct shed_lock_machine *m,
                             struct shed_lock_request *closer)
{
    assert(m->life == SHED_LOCK_OPEN);
    m->life = SHED_LOCK_CLOSING;
    m->closer = closer;
    closer->op = SHED_LOCK_OP_RELEASE;
    closer->is_inner = true;
}

/* ----------------------------------------------------------------- asking */

void shed_lock_clean(struct shed_lock_machine *m, size_t i)
{
    if (shed_voter_clean(&m->voter[i], m->now_ms))
        m->act->ask |= UINT32_C(1) << i;
}

void shed_lock_cancel_try(struct shed_lock_machine *m,
                          const struct shed_lock_holder *holder)
{
    for (size_t i = 0; i < m->count; i++) {
        shed_voter_cancel(&m->voter[i], holder, m->now_ms);
        shed_lock_clean(m, i);
    }
}

/* -------------------------------------------------------------- the begin */

void shed_lock_machine_init(struct shed_lock_machine *m,
                            struct shed_voter *voter, size_t count,
                            const struct shed_lock_spec *spec,
                            struct shed_lock_counters *counters,
                            uint64_t command_timeout_ms, const char *where)
{
    assert(count > 0 && count <= SHED_LOCK_CLIENTS_MAX);
    *m = (struct shed_lock_machine){
        .spec = spec,
        .where = where,
        .count = count,
        .command_timeout_ms = command_timeout_ms,
        .patience_ms = shed_quorum_patience_ms(count, spec->options->lease_ms,
                                               command_timeout_ms),
        .voter = voter,
        .counters = counters,
        .retry_at_ms = UINT64_MAX};
    for (size_t i = 0; i < count; i++)
        voter[i] = (struct shed_voter){.exchange.spec = spec};
}
