/*
 * The public calls of a lock: argument checks, ownership by threads, re-entry.
 */
#include <snowshed/stats.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/process.h"
#include "base/latch.h"
#include "base/mutex.h"
#include "base/random.h"
#include "base/thread.h"
#include "client/probe.h"
#include "lock/engine.h"
#include "lock/keys.h"

/* The ranges that lock.h states. */
#define LEASE_MIN_MS 10
#define LEASE_MAX_MS 86400000
#define WATCHDOG_MAX_MS ((uint64_t)315360000000) /* ten years */
#define GRACE_MAX_MS 60000
#define REPLICAS_MAX 100
#define NUMBER_MAX (((uint64_t)1 << 52) - 1)

#define LENGTH(array) (sizeof(array) / sizeof(*(array)))

/* ---------------------------------------------------------------- opening */

/* A quorum of one is a lock on that server. */
static enum shed_code check_options(const struct shed_lock_options *o,
                                    size_t count, struct shed_error *err)
{
    const struct shed_range ranges[] = {
        {o->algorithm, SHED_LOCK_SETNX, SHED_LOCK_LEASE, "lock algorithm"},
        {o->lease_ms, LEASE_MIN_MS, LEASE_MAX_MS, "lock lease_ms"},
        {o->watchdog_ms, 0, WATCHDOG_MAX_MS, "lock watchdog_ms"},
        {o->fair, 0, 1, "lock fair"},
        {o->death_grace_ms, 0, GRACE_MAX_MS, "lock death_grace_ms"},
        {o->exact_key, 0, 1, "lock exact_key"},
        {o->replicas, 0, REPLICAS_MAX, "lock replicas"},
    };
    bool is_other = o->algorithm != SHED_LOCK_LEASE, is_quorum = count > 1;
    const struct {
        bool is_so;
        const char *why;
    } refusals[] = {
        {o->fair != 0 && is_other, "only a SHED_LOCK_LEASE lock can be fair"},
        {o->replicas != 0 && is_other,
         "only a SHED_LOCK_LEASE lock can wait for replicas"},
        {is_quorum && is_other, "a quorum works only with SHED_LOCK_LEASE"},
        {is_quorum && o->fair != 0, "a quorum cannot be fair"},
        {is_quorum && o->replicas != 0,
         "a quorum cannot wait for replicas: it survives without them"},
    };
    enum shed_code code = shed_check_ranges(ranges, LENGTH(ranges), err);

    for (size_t i = 0; i < LENGTH(refusals) && code == SHED_OK; i++)
        if (refusals[i].is_so)
            code = shed_fail(err, SHED_EINVAL, "%s", refusals[i].why);
    return code;
}

static enum shed_code check_clients(struct shed_client *const *clients,
                                    size_t count, struct shed_error *err)
{
    enum shed_code code = SHED_OK;

    if (count % 2 == 0 || count > SHED_LOCK_CLIENTS_MAX)
        return shed_fail(err, SHED_EINVAL,
                         "a quorum needs an odd number of clients, at most %d, "
                         "not %zu",
                         SHED_LOCK_CLIENTS_MAX, count);
    if (clients == NULL)
        return shed_fail(err, SHED_EINVAL, "shed_lock_open: clients is NULL");
    for (size_t i = 0; i < count && code == SHED_OK; i++) {
        if (clients[i] == NULL)
            return shed_fail(err, SHED_EINVAL,
                             "shed_lock_open: client %zu is NULL", i);
        code = shed_client_check_call(clients[i], err);
        for (size_t j = 0; code == SHED_OK && j < i; j++)
            if (clients[j] == clients[i])
                code = shed_fail(err, SHED_EINVAL,
                                 "clients %zu and %zu of a quorum are the same",
                                 j, i);
    }
    return code;
}

static void destroy(struct shed_lock *l)
{
    for (size_t i = 0; i < l->count; i++)
        shed_client_unref(l->server[i].client);
    shed_mutex_destroy(&l->mu);
    free(l);
}

static struct shed_lock *create(struct shed_client *const *clients,
                                size_t count, const void *name,
                                size_t name_size,
                                const struct shed_lock_options *options)
{
    size_t servers_bytes =
        count * (sizeof(struct shed_lock_server) + sizeof(struct shed_voter));
    struct shed_lock *l =
        calloc(1, sizeof(*l) + servers_bytes + shed_lock_keys_bytes(name_size));

    if (l == NULL || shed_mutex_init(&l->mu, SHED_RANK_LOCK) != 0) {
        free(l);
        return NULL;
    }
    l->pid = clients[0]->pid;
    l->home = clients[0];
    l->options = *options;
    l->spec.options = &l->options;
    l->spec.algorithm = shed_algorithm_of(options);
    l->count = count;
    l->voter = (struct shed_voter *)(void *)&l->server[count];
    for (size_t i = 0; i < count; i++)
        l->server[i].client = shed_client_ref(clients[i]);
    /* the keys are behind the handle, in one piece */
    l->name = shed_lock_keys_name(&l->spec, l->spec.algorithm->has_tokens, name,
                                  name_size, (char *)(l + 1) + servers_bytes);
    l->name_size = name_size;
    return l;
}

enum shed_code shed_lock_open_quorum(struct shed_client *const *clients,
                                     size_t count, struct shed_bytes name,
                                     const struct shed_lock_options *options,
                                     struct shed_lock **out,
                                     struct shed_error *err)
{
    struct shed_lock_options o = SHED_LOCK_OPTIONS_INIT;
    struct shed_lock *l;
    enum shed_code code;

    if (out == NULL)
        return shed_fail(err, SHED_EINVAL, "shed_lock_open: out is NULL");
    *out = NULL;
    code = shed_options_take(&o, sizeof(o), options, "struct shed_lock_options",
                             err);
    if (code == SHED_OK)
        code = check_options(&o, count, err);
    if (code == SHED_OK)
        code = check_clients(clients, count, err);
    if (code == SHED_OK && (name.data == NULL || name.size == 0 ||
                            name.size > SHED_LOCK_NAME_MAX_BYTES))
        code = shed_fail(
            err, SHED_EINVAL, "lock name must have 1 to %d bytes, not %zu",
            SHED_LOCK_NAME_MAX_BYTES, name.data != NULL ? name.size : 0);
    if (code != SHED_OK)
        return code;
    l = create(clients, count, name.data, name.size, &o);
    if (l == NULL)
        return shed_fail_nomem(err, "a lock");
    code = shed_random_token(l->spec.handle, sizeof(l->spec.handle), err);
    if (code == SHED_OK)
        code = shed_lock_engine_open(l, err);
    if (code != SHED_OK) {
        destroy(l);
        return code;
    }
    *out = l;
    return SHED_OK;
}

enum shed_code shed_lock_open(struct shed_client *client,
                              struct shed_bytes name,
                              const struct shed_lock_options *options,
                              struct shed_lock **out, struct shed_error *err)
{
    return shed_lock_open_quorum(&client, 1, name, options, out, err);
}

static void *close_lock(void *handle)
{
    struct shed_lock *l = handle;

    if (l->pid == shed_process_id())
        shed_lock_engine_close(l);
    destroy(l);
    return NULL;
}

void shed_lock_close(struct shed_lock *l)
{
    /* on a loop's thread another one does it: the engine needs the loop to
     * release the hold */
    if (l != NULL)
        shed_thread_close(SHED_THREAD_LOOP, close_lock, l);
}

/* --------------------------------------------------------------- the calls */

_Static_assert(sizeof(((struct shed_fence *)0)->owner) == SHED_TOKEN_BYTES,
               "the owner of a fence is the holder's token");

enum shed_code shed_lock_tell_answer(const struct shed_lock_request *r,
                                     struct shed_error *err)
{
    if (r->code != SHED_OK && err != NULL)
        *err = r->error;
    return r->code;
}

/* Have a request answered, in this thread if it goes the short way, and by the
 * engine otherwise. */
static enum shed_code run(struct shed_lock *l, struct shed_lock_request *r,
                          bool goes_short, struct shed_error *err)
{
    struct shed_latch latch = SHED_LATCH_INIT(1);
    bool is_settled;

    r->done = shed_lock_count_down;
    r->latch = &latch;
    is_settled = goes_short && shed_lock_go_short(l, r);
    if (!is_settled && shed_lock_submit(l, r))
        /* bounded: the request's deadline and the connections' timeouts end
         * it */
        (void)shed_latch_wait(&latch, UINT64_MAX);
    else if (!is_settled)
        r->code = shed_lock_fail_closed(&r->error);
    shed_lock_count(l, r);
    return shed_lock_tell_answer(r, err);
}

enum shed_code shed_lock_check(const struct shed_lock *l,
                               struct shed_error *err)
{
    if (l == NULL)
        return shed_fail(err, SHED_EINVAL,
                         "the lock is NULL: shed_lock_open has failed, "
                         "or it has been closed");
    return l->pid == shed_process_id()
               ? SHED_OK
               : shed_fail(
                     err, SHED_EFORKED,
                     "the lock was opened before fork: open one in the child");
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

static enum shed_use use_of(const struct shed_lock *l)
{
    if (l->options.algorithm != SHED_LOCK_LEASE)
        return SHED_USE_TEXT_LOCK;
    return l->options.exact_key != 0 ? SHED_USE_EXACT_LOCK : SHED_USE_LOCK;
}

enum shed_code shed_lock_probe(struct shed_lock *l, uint64_t timeout_ms,
                               struct shed_error *err)
{
    enum shed_code code = shed_lock_check(l, err);
    uint64_t deadline_ms;

    if (code == SHED_OK)
        code = shed_client_check_timed_call(l->home, timeout_ms, err);
    if (code != SHED_OK)
        return code;
    deadline_ms = shed_deadline_ms(
        shed_now_ms(),
        timeout_ms > 0 ? timeout_ms : l->home->command_timeout_ms);
    for (size_t i = 0; i < l->count && code == SHED_OK; i++)
        code = shed_probe(l->server[i].client, use_of(l),
                          shed_bytes(l->name, l->name_size), deadline_ms, err);
    if (code == SHED_OK && l->options.replicas > 0)
        code = shed_probe(l->home, SHED_USE_REPLICAS,
                          shed_bytes(l->name, l->name_size), deadline_ms, err);
    return code;
}

/* ---------------------------------------------------------------- acquire */

enum shed_code shed_lock_begin_request(struct shed_lock_request *r,
                                       struct shed_owner *owner,
                                       uint64_t wait_ms, struct shed_error *err)
{
    r->op = SHED_LOCK_OP_ACQUIRE;
    r->owner = owner;
    r->begun_us = shed_now_us();
    r->deadline_ms = shed_deadline_ms(shed_now_ms(), wait_ms);
    (void)shed_fail(&r->error, SHED_ETIMEDOUT, "the lock is held by another");
    return shed_lock_holder_init(&r->holder, wait_ms, err);
}

/* Answer what can be answered without Redis, and find out whether the short way
 * may be used. */
static bool answer_here(struct shed_lock *l, const struct shed_owner *self,
                        uint64_t wait_ms, bool *may_try, enum shed_code *code,
                        struct shed_error *err)
{
    struct shed_hold *hold = &l->machine.hold;
    bool is_safe, is_answered;

    shed_mutex_lock(&l->mu);
    is_safe = shed_hold_is_safe(hold, shed_now_ms());
    is_answered = is_safe && (hold->owner == self || wait_ms == 0);
    if (is_answered && hold->owner == self)
        hold->count++; /* *code is SHED_OK */
    else if (is_answered)
        *code = shed_fail(err, SHED_ETIMEDOUT,
                          "the lock is held by another thread of this process");
    *may_try = !is_safe && shed_lock_is_settled(l) &&
               shed_lock_machine_may_try(&l->machine, wait_ms, shed_now_ms());
    shed_mutex_unlock(&l->mu);
    return is_answered;
}

enum shed_code shed_lock_acquire(struct shed_lock *l, uint64_t wait_ms,
                                 struct shed_error *err)
{
    struct shed_lock_request r = {0};
    struct shed_owner *self = NULL;
    bool may_try = false;
    enum shed_code code = enter(l, &self, err);

    if (code == SHED_OK)
        code = shed_check_range(wait_ms, 0, SHED_LOCK_WAIT_MAX_MS,
                                "lock wait_ms", err);
    if (code != SHED_OK || answer_here(l, self, wait_ms, &may_try, &code, err))
        return code;
    code = shed_lock_begin_request(&r, self, wait_ms, err);
    return code == SHED_OK ? run(l, &r, may_try, err) : code;
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
        why = m->lost_reason.reason;
    if (why != NULL)
        return shed_fail(err, SHED_ELOST, "the lock was lost: %s", why);
    return shed_fail(err, SHED_ELOST, "this thread does not hold the lock: %s",
                     m->hold.is_held
                         ? "another thread of this process does"
                         : "it was not acquired, or has already been released");
}

bool shed_lock_leave_locked(struct shed_lock *l, const struct shed_owner *self,
                            struct shed_lock_request *r)
{
    struct shed_hold *hold = &l->machine.hold;
    bool is_last = false;

    r->op = SHED_LOCK_OP_RELEASE;
    if (shed_hold_is_mine(hold, self) && hold->count > 1)
        shed_lock_machine_see_end(&l->machine, shed_now_ms());
    if (!shed_hold_is_mine(hold, self)) {
        r->code = fail_lost_locked(l, &r->error);
    } else if (--hold->count == 0) {
        is_last = true;
        shed_lock_machine_leave(&l->machine, r);
    }
    shed_lock_changed_locked(l);
    r->held_us = l->held_us;
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
    is_last = shed_lock_leave_locked(l, self, &r);
    shed_mutex_unlock(&l->mu);
    return is_last ? run(l, &r, shed_lock_machine_goes_short(&l->machine), err)
                   : shed_lock_tell_answer(&r, err);
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
    code = shed_check_range(r.lease_ms, LEASE_MIN_MS,
                            l->count > 1 ? l->options.lease_ms : LEASE_MAX_MS,
                            "lock lease_ms", err);
    if (code != SHED_OK)
        return code;
    shed_mutex_lock(&l->mu);
    if (shed_hold_is_mine(&l->machine.hold, self))
        shed_lock_machine_see_end(&l->machine, shed_now_ms());
    if (!shed_hold_is_mine(&l->machine.hold, self))
        code = fail_lost_locked(l, err);
    shed_lock_changed_locked(l);
    r.generation = l->machine.hold.generation;
    shed_mutex_unlock(&l->mu);
    return code != SHED_OK ? code : run(l, &r, false, err);
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
    return code != SHED_OK ? code : run(l, &r, false, err);
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
