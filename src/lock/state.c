/* What the machine is made of: the queues, the hold, the voters, and the basic
 * changes of which every decision consists. Its invariant: a request is in one
 * queue until its only answer; a hold that is replaced is reported as lost. */
#include "lock/state.h"

#include <assert.h>

#include "base/backoff.h"
#include "base/error.h"
#include "base/random.h"

/* For how long a handle may acquire the lock repeatedly while others wait
 * elsewhere. Its own threads get it fastest, so some repetition pays. */
#define COHORT_MS 4

/* A renewal is sent at a third of the lease, so that two may fail, and repeated
 * after at most a twentieth of it. A rewrite is repeated sooner, because others
 * take the holder for dead after a few hundred ms. */
#define RENEW_DIVISOR 3
#define RETRY_DIVISOR 20
#define RETRY_FIRST_MS 5
#define REWRITE_MS 40

uint64_t shed_lock_jitter_ms(struct shed_lock_machine *m)
{
    return shed_lock_is_alone(m)
               ? 0
               : shed_backoff_ms(0, SHED_LOCK_SPREAD_MS, SHED_LOCK_SPREAD_MS,
                                 shed_random_next(&m->random));
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
    shed_list_remove(queue_of(m, r), &r->node);
    if (r->is_cancelled)
        code =
            shed_fail(&r->error, SHED_ETIMEDOUT, "the acquire was cancelled");
    if (r->op == SHED_LOCK_OP_ACQUIRE) {
        m->retry_at_ms = 0; /* so that the next request of the queue asks */
        m->attempts = 0;
    }
    r->code = code;
    shed_list_append(&m->act.answered, &r->node);
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

/* --------------------------------------------------------------- the hold */

void shed_hold_renew(struct shed_hold *h, const struct shed_exchange *exchange)
{
    const struct shed_lock_spec *spec = exchange->spec;

    assert(h->is_held);
    h->lease_ms = exchange->lease_ms;
    h->valid_until_ms = shed_lock_valid_until_ms(exchange);
    h->renew_until_ms = h->since_ms + spec->options->watchdog_ms;
    h->renew_at_ms = exchange->asked_ms + exchange->lease_ms / RENEW_DIVISOR;
    if (!spec->algorithm->has_lease || h->renew_at_ms >= h->renew_until_ms)
        h->renew_at_ms = UINT64_MAX;
    h->epochs = exchange->epochs;
}

/* Begin a hold of what an acquire has won; there must be none. */
static void begin_hold(struct shed_lock_machine *m, struct shed_owner *owner,
                       const struct shed_exchange *exchange)
{
    struct shed_hold *h = &m->hold;

    assert(!h->is_held);
    *h = (struct shed_hold){.is_held = true,
                            .owner = shed_owner_ref(owner),
                            .count = 1,
                            .generation = h->generation + 1,
                            .holder = exchange->holder,
                            .fence = exchange->fence,
                            .since_ms = exchange->asked_ms,
                            .granted_us = m->facts.now_us};
    shed_hold_renew(h, exchange);
}

void shed_lock_machine_retry(struct shed_lock_machine *m)
{
    struct shed_hold *h = &m->hold;
    uint64_t pause_ms = h->epochs != m->epochs
                            ? REWRITE_MS
                            : RETRY_FIRST_MS + h->lease_ms / RETRY_DIVISOR;

    h->renew_at_ms =
        m->now_ms + shed_backoff_equal_ms(0, pause_ms, h->lease_ms,
                                          shed_random_next(&m->random));
}

/* Returns: how long it lasted. */
static uint64_t end_hold(struct shed_lock_machine *m, uint64_t now_us)
{
    struct shed_hold *h = &m->hold;
    uint64_t held_us = now_us - h->granted_us;

    shed_histogram_add(&m->counters->hold_us, held_us);
    shed_owner_unref(h->owner);
    h->owner = NULL;
    h->is_held = false;
    return held_us;
}

bool shed_hold_is_safe(const struct shed_hold *h, uint64_t now_ms)
{
    return h->is_held && now_ms < h->valid_until_ms;
}

bool shed_hold_is_mine(const struct shed_hold *h,
                       const struct shed_owner *owner)
{
    return h->is_held && (h->owner == NULL || h->owner == owner);
}

uint64_t shed_hold_due_ms(const struct shed_hold *h, bool is_watched)
{
    uint64_t due_ms = is_watched || h->renew_at_ms != UINT64_MAX
                          ? h->valid_until_ms
                          : UINT64_MAX;

    return h->is_held ? shed_lock_sooner_ms(due_ms, h->renew_at_ms)
                      : UINT64_MAX;
}

const char *shed_hold_reason(const struct shed_hold *h)
{
    if (shed_owner_has_ended(h->owner))
        return "the thread that held the lock has ended without a release";
    if (h->valid_until_ms < h->renew_until_ms)
        return "the lease has ended: no renewal succeeded";
    if (h->renew_until_ms > h->since_ms)
        return "the lease has ended: watchdog_ms has passed";
    return "the lease has ended";
}

/* This handle has lost or released the lock: its first request asks. If changes
 * are announced, it hears of that in the same way as others do. With tokens it
 * need not wait for that. */
static void wake_first(struct shed_lock_machine *m)
{
    if (m->spec->algorithm->has_tokens || !m->facts.is_pushed)
        m->retry_at_ms = 0;
}

void shed_lock_machine_lose(struct shed_lock_machine *m, const char *reason)
{
    (void)shed_fail(&m->act.lost_reason, SHED_ELOST, "%s", reason);
    m->act.lost++;
    shed_count(&m->counters->lost, 1);
    m->lost_generation = m->hold.generation;
    /* a quorum's server that did not have it may get it by a late extension */
    if (!shed_lock_is_alone(m))
        shed_lock_cancel_try(m, &m->hold.holder);
    wake_first(m);
    m->act.lost_us = end_hold(m, m->facts.now_us);
}

void shed_lock_machine_grant(struct shed_lock_machine *m,
                             struct shed_lock_request *r,
                             const struct shed_exchange *exchange)
{
    if (m->hold.is_held)
        shed_lock_machine_lose(m, shed_hold_reason(&m->hold));
    begin_hold(m, r->owner, exchange);
    r->is_takeover |= exchange->is_takeover;
    shed_count(&m->counters->acquired, 1);
    m->last_try.code = SHED_OK;
    if (m->epochs != exchange->epochs)
        m->hold.renew_at_ms = 0;
    if (m->cohort_since_ms == 0)
        m->cohort_since_ms = exchange->asked_ms;
}

void shed_lock_machine_see_end(struct shed_lock_machine *m, uint64_t now_us)
{
    m->facts.now_us = now_us;
    m->now_ms = now_us / SHED_US_PER_MS;
    if (m->hold.is_held && m->now_ms >= m->hold.valid_until_ms)
        shed_lock_machine_lose(m, shed_hold_reason(&m->hold));
}

void shed_lock_machine_leave(struct shed_lock_machine *m,
                             struct shed_lock_request *release, uint64_t now_us)
{
    release->holder = m->hold.holder;
    release->held_us = end_hold(m, now_us);
}

/* The releaser hears of its release first and would win every time, however
 * many wait elsewhere. So after COHORT_MS it steps back for as long as they
 * need to ask. */
void shed_lock_machine_released(struct shed_lock_machine *m, bool has_waiters)
{
    if (!has_waiters) {
        m->cohort_since_ms = 0;
    } else if (m->now_ms - m->cohort_since_ms >= COHORT_MS) {
        m->cohort_since_ms = 0;
        m->cohort_ended_ms = m->now_ms;
    }
    wake_first(m);
}

/* What a link gains, measured with one thread that acquires and releases a free
 * LEASE lock, alternating with a build without links, on a busy machine with 2
 * cores, medians of 25 runs: 7545 per second with 44 us of CPU time each. By
 * the loop's thread, which has to be woken and then wakes the caller: 4326 per
 * second, 109 us.
 *
 * A command over a link may be sent twice, so the algorithm must compare
 * tokens. An extension stays in the order of the session's: a late one would
 * shorten the lease that a later one has set. Nothing goes over a link while
 * the lock is held here: a caller that waits for a link would hold up the
 * renewal and the release. */
bool shed_lock_machine_lend(struct shed_lock_machine *m,
                            const struct shed_lock_request *r)
{
    struct shed_exchange *exchange = &m->voter[0].exchange;

    if (m->hold.is_held || m->act.ask != 1 || !m->round.is_open ||
        m->round.request != r || exchange->op != r->op ||
        r->op == SHED_LOCK_OP_EXTEND || !shed_lock_is_alone(m) ||
        !m->spec->algorithm->has_tokens)
        return false;
    exchange->is_by_link = true;
    m->act.ask = 0;
    return true;
}

struct shed_lock_act shed_lock_machine_take(struct shed_lock_machine *m)
{
    struct shed_lock_act act = m->act;

    m->act.ask = 0;
    m->act.lost = 0;
    m->act.answered = (struct shed_list){0};
    return act;
}

bool shed_lock_machine_take_answer(struct shed_lock_machine *m,
                                   struct shed_lock_request *r)
{
    for (struct shed_lock_request *a =
             shed_lock_request_of(m->act.answered.first);
         a != NULL; a = shed_lock_next(a))
        if (a == r) {
            shed_list_remove(&m->act.answered, &r->node);
            return true;
        }
    return false;
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
        m->act.ask |= UINT32_C(1) << i;
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
    m->spec = spec;
    m->where = where;
    m->count = count;
    m->command_timeout_ms = command_timeout_ms;
    m->patience_ms = shed_quorum_patience_ms(count, spec->options->lease_ms,
                                             command_timeout_ms);
    m->voter = voter;
    m->counters = counters;
    m->retry_at_ms = UINT64_MAX;
    for (size_t i = 0; i < count; i++)
        voter[i].exchange.spec = spec;
}
