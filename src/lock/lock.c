/*
 * The calls of a lock, blocking and asynchronous: ownership by threads, and
 * re-entry. An asynchronous call is a request that the engine answers on its
 * thread, exactly once; it uses no link, because that would be I/O in the
 * caller's thread. A blocking call sends the request's command over a link
 * where it may, or waits at a latch for the same answer.
 */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/latch.h"
#include "base/process.h"
#include "base/thread.h"
#include "lock/engine.h"

#define NUMBER_MAX (((uint64_t)1 << 52) - 1)

_Static_assert(sizeof(((struct shed_fence *)0)->owner) == SHED_TOKEN_BYTES,
               "the owner of a fence is the holder's token");

/* Copy the error of a request that has failed. Returns: its code. */
static enum shed_code tell_answer(const struct shed_lock_request *r,
                                  struct shed_error *err)
{
    if (r->code != SHED_OK && err != NULL)
        *err = r->error;
    return r->code;
}

/* Under mu. Give a request to the engine, which answers it exactly once; it is
 * the engine's until then. Returns: SHED_ECLOSED: it will not be answered. */
static enum shed_code submit_locked(struct shed_lock *l,
                                    struct shed_lock_request *r,
                                    struct shed_error *err)
{
    if (!shed_lock_machine_add(&l->machine, r))
        return shed_lock_fail_closed(err);
    shed_lock_wake(l);
    return SHED_OK;
}

/* Have a request answered, and wait for the answer. */
static enum shed_code run(struct shed_lock *l, struct shed_lock_request *r,
                          struct shed_error *err)
{
    struct shed_latch latch = SHED_LATCH_INIT(1);

    r->latch = &latch;
    if (!shed_lock_ask_here(l, r))
        /* bounded: the request's deadline and the connections' timeouts end
         * it */
        (void)shed_latch_wait(&latch, UINT64_MAX);
    shed_lock_count(l, r);
    return tell_answer(r, err);
}

/* Every call that may block begins with this. */
static enum shed_code enter(struct shed_lock *l, struct shed_owner **self,
                            struct shed_error *err)
{
    enum shed_code code = shed_lock_check(l, err);

    if (code == SHED_OK)
        code = shed_thread_check_call(err);
    if (code != SHED_OK)
        return code;
    *self = shed_owner_self();
    return *self != NULL ? SHED_OK : shed_fail_nomem(err, "a lock's owner");
}

/* ---------------------------------------------------------------- acquire */

static enum shed_code check_wait(uint64_t wait_ms, struct shed_error *err)
{
    return shed_check_range(wait_ms, 0, SHED_LOCK_WAIT_MAX_MS, "lock wait_ms",
                            err);
}

/* Fill in an acquire's request, all zero. owner NULL: the process.
 * Returns: SHED_OK; SHED_EBUSY (no random numbers are available). */
static enum shed_code begin_acquire(struct shed_lock_request *r,
                                    struct shed_owner *owner, uint64_t wait_ms,
                                    struct shed_error *err)
{
    r->op = SHED_LOCK_OP_ACQUIRE;
    r->owner = owner;
    r->begun_us = shed_now_us();
    r->deadline_ms = shed_deadline_ms(shed_now_ms(), wait_ms);
    (void)shed_fail(&r->error, SHED_ETIMEDOUT, "the lock is held by another");
    return shed_lock_holder_init(&r->holder, wait_ms, err);
}

/* Answer what can be answered without Redis, which may hang in a renewal. */
static bool answer_here(struct shed_lock *l, const struct shed_owner *self,
                        uint64_t wait_ms, enum shed_code *code,
                        struct shed_error *err)
{
    struct shed_hold *hold = &l->machine.hold;
    bool is_safe, is_mine;

    shed_mutex_lock(&l->mu);
    is_safe = shed_hold_is_safe(hold, shed_now_ms());
    is_mine = is_safe && hold->owner == self;
    hold->count += is_mine; /* then *code is SHED_OK */
    shed_mutex_unlock(&l->mu);
    if (!is_safe || is_mine || wait_ms > 0)
        return is_mine;
    shed_count(&l->counters.timeouts, 1);
    *code = shed_fail(err, SHED_ETIMEDOUT,
                      "the lock is held by another thread of this process");
    return true;
}

enum shed_code shed_lock_acquire(struct shed_lock *l, uint64_t wait_ms,
                                 struct shed_error *err)
{
    struct shed_lock_request r = {0};
    struct shed_owner *self = NULL;
    enum shed_code code = enter(l, &self, err);

    if (code == SHED_OK)
        code = check_wait(wait_ms, err);
    if (code != SHED_OK || answer_here(l, self, wait_ms, &code, err))
        return code;
    code = begin_acquire(&r, self, wait_ms, err);
    return code == SHED_OK ? run(l, &r, err) : code;
}

/* ------------------------------------------------- release, extend, advance */

/* Under mu. Say in err why this thread has no hold. */
static enum shed_code fail_lost_locked(const struct shed_lock *l,
                                       struct shed_error *err)
{
    const struct shed_lock_machine *m = &l->machine;
    const char *why = NULL;

    if (m->hold.is_held && !shed_hold_is_safe(&m->hold, shed_now_ms()))
        why = shed_hold_reason(&m->hold);
    else if (!m->hold.is_held && m->lost_generation != 0 &&
             m->lost_generation == m->hold.generation)
        why = m->act.lost_reason.reason;
    if (why != NULL)
        return shed_fail(err, SHED_ELOST, "the lock was lost: %s", why);
    return shed_fail(err, SHED_ELOST, "this thread does not hold the lock: %s",
                     m->hold.is_held
                         ? "another thread of this process does"
                         : "it was not acquired, or has already been released");
}

/* Under mu. Leave the hold of self, or of the process, once. Returns: true if
 * this was the last entry: then r is the request that releases it. Otherwise r
 * has the answer. */
static bool leave_locked(struct shed_lock *l, const struct shed_owner *self,
                         struct shed_lock_request *r)
{
    struct shed_hold *hold = &l->machine.hold;
    bool is_last = false;

    r->op = SHED_LOCK_OP_RELEASE;
    if (shed_hold_is_mine(hold, self) && hold->count > 1)
        shed_lock_machine_see_end(&l->machine, shed_now_us());
    if (!shed_hold_is_mine(hold, self)) {
        r->code = fail_lost_locked(l, &r->error);
    } else if (--hold->count == 0) {
        is_last = true;
        shed_lock_machine_leave(&l->machine, r, shed_now_us());
    }
    shed_lock_changed_locked(l);
    return is_last;
}

enum shed_code shed_lock_release(struct shed_lock *l, struct shed_error *err)
{
    struct shed_owner *self = NULL;
    struct shed_lock_request r = {0};
    bool is_last;
    enum shed_code code = enter(l, &self, err);

    if (code != SHED_OK)
        return code;
    shed_mutex_lock(&l->mu);
    is_last = leave_locked(l, self, &r);
    shed_mutex_unlock(&l->mu);
    return is_last ? run(l, &r, err) : tell_answer(&r, err);
}

enum shed_code shed_lock_extend(struct shed_lock *l, uint64_t lease_ms,
                                struct shed_error *err)
{
    struct shed_owner *self = NULL;
    struct shed_lock_request r = {.op = SHED_LOCK_OP_EXTEND};
    enum shed_code code = enter(l, &self, err);

    if (code != SHED_OK)
        return code;
    r.lease_ms = lease_ms != 0 ? lease_ms : l->options.lease_ms;
    /* a restarted server abstains only for the lease of the options */
    code =
        shed_check_range(r.lease_ms, SHED_LEASE_MIN_MS,
                         l->count > 1 ? l->options.lease_ms : SHED_LEASE_MAX_MS,
                         "lock lease_ms", err);
    if (code != SHED_OK)
        return code;
    shed_mutex_lock(&l->mu);
    if (shed_hold_is_mine(&l->machine.hold, self))
        shed_lock_machine_see_end(&l->machine, shed_now_us());
    if (!shed_hold_is_mine(&l->machine.hold, self))
        code = fail_lost_locked(l, err);
    shed_lock_changed_locked(l);
    r.generation = l->machine.hold.generation;
    shed_mutex_unlock(&l->mu);
    return code != SHED_OK ? code : run(l, &r, err);
}

static enum shed_code check_tokens(const struct shed_lock *l,
                                   struct shed_error *err)
{
    return l->spec.algorithm->has_tokens
               ? SHED_OK
               : shed_fail(err, SHED_EINVAL,
                           "this algorithm has no fencing tokens: use "
                           "SHED_LOCK_LEASE");
}

enum shed_code shed_lock_advance(struct shed_lock *l, uint64_t number,
                                 struct shed_error *err)
{
    struct shed_owner *self = NULL;
    struct shed_lock_request r = {.op = SHED_LOCK_OP_ADVANCE,
                                  .fence_number = number};
    enum shed_code code = enter(l, &self, err);

    if (code == SHED_OK)
        code = check_tokens(l, err);
    if (code == SHED_OK)
        code = shed_check_range(number, 0, NUMBER_MAX, "fencing number", err);
    return code != SHED_OK ? code : run(l, &r, err);
}

/* ------------------------------------------------------------ what is known */

uint64_t shed_lock_remaining_ms(const struct shed_lock *l)
{
    struct shed_owner *self = shed_owner_self();
    uint64_t now_ms = shed_now_ms();
    struct shed_mutex *mu;
    uint64_t left_ms = 0;

    if (l == NULL || l->pid != shed_process_id())
        return 0;
    mu = (struct shed_mutex *)&l->mu; /* callers see no change */
    shed_mutex_lock(mu);
    if (shed_hold_is_mine(&l->machine.hold, self))
        left_ms = l->machine.hold.valid_until_ms == UINT64_MAX
                      ? UINT64_MAX
                      : shed_left_ms(l->machine.hold.valid_until_ms, now_ms);
    shed_mutex_unlock(mu);
    return left_ms;
}

enum shed_code shed_lock_fence(struct shed_lock *l, struct shed_fence *out,
                               struct shed_error *err)
{
    const struct shed_owner *self = shed_owner_self();
    enum shed_code code;

    if (out == NULL)
        return shed_fail(err, SHED_EINVAL, "shed_lock_fence: out is NULL");
    *out = (struct shed_fence){0};
    code = shed_lock_check(l, err);
    if (code == SHED_OK)
        code = check_tokens(l, err);
    if (code != SHED_OK)
        return code;
    shed_mutex_lock(&l->mu);
    if (shed_hold_is_mine(&l->machine.hold, self) &&
        shed_hold_is_safe(&l->machine.hold, shed_now_ms())) {
        out->number = l->machine.hold.fence;
        memcpy(out->owner, l->machine.hold.holder.token, sizeof(out->owner));
    } else {
        code = fail_lost_locked(l, err);
    }
    shed_mutex_unlock(&l->mu);
    return code;
}

/* ------------------------------------------------- calls that do not block */

/* The engine frees the request when it has called done. */
static enum shed_code create(struct shed_lock *l, shed_lock_done_fn *done,
                             void *user, const char *name,
                             struct shed_lock_request **out,
                             struct shed_error *err)
{
    enum shed_code code = shed_lock_check(l, err);

    *out = NULL;
    if (code != SHED_OK)
        return code;
    if (done == NULL)
        return shed_fail(err, SHED_EINVAL, "%s: done is NULL", name);
    *out = calloc(1, sizeof(**out));
    if (*out == NULL)
        return shed_fail_nomem(err, "an asynchronous call");
    (*out)->done = done;
    (*out)->user = user;
    return SHED_OK;
}

enum shed_code shed_lock_acquire_async(struct shed_lock *l, uint64_t wait_ms,
                                       shed_lock_done_fn *done, void *user,
                                       struct shed_error *err)
{
    struct shed_lock_request *r;
    enum shed_code code =
        create(l, done, user, "shed_lock_acquire_async", &r, err);

    if (code == SHED_OK)
        code = check_wait(wait_ms, err);
    if (code == SHED_OK)
        code = begin_acquire(r, NULL, wait_ms, err);
    if (code == SHED_OK) {
        shed_mutex_lock(&l->mu);
        code = submit_locked(l, r, err);
        shed_mutex_unlock(&l->mu);
    }
    if (code != SHED_OK)
        free(r);
    return code;
}

size_t shed_lock_cancel(struct shed_lock *l, const void *user)
{
    size_t count;

    if (shed_lock_check(l, NULL) != SHED_OK)
        return 0;
    shed_mutex_lock(&l->mu);
    count = shed_lock_machine_cancel(&l->machine, user);
    if (count > 0)
        shed_lock_wake(l); /* under mu: a done may let another thread close l */
    shed_mutex_unlock(&l->mu);
    return count;
}

/* Leave the hold, and have the engine release it if this was the last entry. If
 * the lock is being closed the hold stays, and closing releases it. */
static enum shed_code leave(struct shed_lock *l, struct shed_lock_request *r,
                            struct shed_error *err)
{
    const struct shed_owner *self = shed_owner_self();
    enum shed_code code = SHED_OK;

    if (self == NULL)
        return shed_fail_nomem(err, "a lock's owner");
    shed_mutex_lock(&l->mu);
    if (l->machine.life != SHED_LOCK_OPEN) {
        code = shed_lock_fail_closed(err);
    } else {
        r->is_inner = !leave_locked(l, self, r);
        code = tell_answer(r, err);
    }
    if (code == SHED_OK)
        code = submit_locked(l, r, err);
    shed_mutex_unlock(&l->mu);
    return code;
}

enum shed_code shed_lock_release_async(struct shed_lock *l,
                                       shed_lock_done_fn *done, void *user,
                                       struct shed_error *err)
{
    struct shed_lock_request *r;
    enum shed_code code =
        create(l, done, user, "shed_lock_release_async", &r, err);

    if (code == SHED_OK)
        code = leave(l, r, err);
    if (code != SHED_OK)
        free(r);
    return code;
}
