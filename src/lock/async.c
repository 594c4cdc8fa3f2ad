/*
 * The calls that do not block. Their requests always go to the engine, which
 * answers each exactly once on its thread. None of them uses a link, because
 * that would be I/O in the caller's thread.
 */
#include <stdlib.h>

#include "base/container.h"
#include "base/error.h"
#include "base/mutex.h"
#include "lock/call.h"

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

static struct async_request *create(struct shed_lock *l,
                                    shed_lock_done_fn *done, void *user)
{
    struct async_request *a = calloc(1, sizeof(*a));

    if (a == NULL)
        return NULL;
    a->lock = l;
    a->done = done;
    a->user = user;
    return a;
}

static enum shed_code check_done(const struct shed_lock *l,
                                 shed_lock_done_fn *done, const char *name,
                                 struct shed_error *err)
{
    enum shed_code code = shed_lock_check(l, err);

    if (code == SHED_OK && done == NULL)
        code = shed_fail(err, SHED_EINVAL, "%s: done is NULL", name);
    return code;
}

enum shed_code shed_lock_acquire_async(struct shed_lock *l, uint64_t wait_ms,
                                       shed_lock_done_fn *done, void *user,
                                       struct shed_error *err)
{
    struct async_request *a;
    enum shed_code code = check_done(l, done, "shed_lock_acquire_async", err);

    if (code == SHED_OK)
        code = shed_lock_check_wait(wait_ms, err);
    if (code != SHED_OK)
        return code;
    a = create(l, done, user);
    if (a == NULL)
        return shed_fail_nomem(err, "an asynchronous acquire");
    code = shed_lock_begin_request(l, &a->request, NULL, wait_ms, err);
    a->request.done = on_done;
    a->request.user = user;
    a->request.may_cancel = true;
    if (code == SHED_OK && !shed_lock_submit(l, &a->request))
        code = shed_lock_fail_closed(err);
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
static enum shed_code leave(struct shed_lock *l, const struct shed_owner *self,
                            struct shed_lock_request *r, struct shed_error *err)
{
    enum shed_code code = SHED_OK;

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
    struct shed_owner *self;
    struct async_request *a;
    enum shed_code code = check_done(l, done, "shed_lock_release_async", err);

    if (code != SHED_OK)
        return code;
    self = shed_owner_self();
    a = self != NULL ? create(l, done, user) : NULL;
    if (a == NULL)
        return shed_fail_nomem(err, "an asynchronous release");
    a->request.done = on_done;
    code = leave(l, self, &a->request, err);
    if (code != SHED_OK)
        free(a);
    return code;
}
