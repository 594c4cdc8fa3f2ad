/*
 * The calls that do not block. Their requests always go to the engine, which
 * answers each exactly once on its thread. None of them uses a link, because
 * that would be I/O in the caller's thread.
 */
#include <stdlib.h>

#include "base/container.h"
#include "base/error.h"
#include "base/mutex.h"
#include "lock/engine.h"

struct async_request {
    struct shed_lock_request request;
    struct shed_lock *lock;
    shed_lock_done_fn *done;
    void *user;
};

static void on_done(struct shed_lock_request *r)
{
    struct async_request *a =
        shed_container_of(r, struct async_request, request);

    shed_lock_count(a->lock, r);
    a->done(a->user, a->lock, r->code, r->code != SHED_OK ? &r->error : NULL);
    free(a);
}

static enum shed_code create(struct shed_lock *l, shed_lock_done_fn *done,
                             void *user, const char *name,
                             struct async_request **out, struct shed_error *err)
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
    (*out)->request.done = on_done;
    (*out)->lock = l;
    (*out)->done = done;
    (*out)->user = user;
    return SHED_OK;
}

enum shed_code shed_lock_acquire_async(struct shed_lock *l, uint64_t wait_ms,
                                       shed_lock_done_fn *done, void *user,
                                       struct shed_error *err)
{
    struct async_request *a;
    enum shed_code code =
        create(l, done, user, "shed_lock_acquire_async", &a, err);

    if (code == SHED_OK)
        code = shed_check_range(wait_ms, 0, SHED_LOCK_WAIT_MAX_MS,
                                "lock wait_ms", err);
    if (code == SHED_OK)
        code = shed_lock_begin_request(&a->request, NULL, wait_ms, err);
    if (code == SHED_OK) {
        a->request.user = user;
        a->request.may_cancel = true;
        if (!shed_lock_submit(l, &a->request))
            code = shed_lock_fail_closed(err);
    }
    if (code != SHED_OK)
        free(a);
    return code;
}

size_t shed_lock_cancel(struct shed_lock *l, const void *user)
{
    return shed_lock_check(l, NULL) == SHED_OK
               ? shed_lock_cancel_requests(l, user)
               : 0;
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
        r->is_inner = !shed_lock_leave_locked(l, self, r);
        code = shed_lock_tell_answer(r, err);
    }
    if (code == SHED_OK && !shed_lock_submit_locked(l, r))
        code = shed_lock_fail_closed(err);
    shed_mutex_unlock(&l->mu);
    return code;
}

enum shed_code shed_lock_release_async(struct shed_lock *l,
                                       shed_lock_done_fn *done, void *user,
                                       struct shed_error *err)
{
    struct async_request *a;
    enum shed_code code =
        create(l, done, user, "shed_lock_release_async", &a, err);

    if (code == SHED_OK)
        code = leave(l, &a->request, err);
    if (code != SHED_OK)
        free(a);
    return code;
}
