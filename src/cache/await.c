/*
 * Threads that wait for calls. Its invariant: a wait's memory stays until its
 * thread and all of its calls have left it.
 */
#include "cache/await.h"

#include <stdlib.h>

#include "base/error.h"
#include "base/value.h"

struct shed_await *shed_await_create(size_t count)
{
    struct shed_await *await =
        calloc(1, sizeof(*await) + count * sizeof(await->outcome[0]));

    if (await == NULL)
        return NULL;
    shed_latch_init(&await->latch, count);
    atomic_init(&await->users, count + 1);
    await->count = count;
    return await;
}

void shed_await_leave(struct shed_await *await)
{
    if (atomic_fetch_sub(&await->users, 1) > 1)
        return;
    for (size_t i = 0; i < await->count; i++) {
        shed_value_unref(await->outcome[i].value);
        free(await->outcome[i].why);
    }
    free(await);
}

static void end(void *user, enum shed_code code, struct shed_value *value,
                const struct shed_error *reason)
{
    struct shed_outcome *outcome = user;
    struct shed_await *await = outcome->await;

    outcome->code = code;
    outcome->value = value;
    if (reason != NULL)
        outcome->why = shed_error_keep(reason);
    shed_latch_count_down(&await->latch, 1);
    shed_await_leave(await);
}

void shed_await_add(struct shed_await *await, size_t i,
                    struct shed_pending *call)
{
    await->outcome[i].await = await;
    call->then = (struct shed_then){end, &await->outcome[i], NULL};
    call->next = await->added;
    await->added = call;
}

void shed_await_begin(struct shed_await *await)
{
    if (await->added != NULL)
        shed_async_begin(await->added);
}

void shed_await_skip(struct shed_await *await)
{
    shed_latch_count_down(&await->latch, 1);
    shed_await_leave(await);
}

enum shed_code shed_await_ends(struct shed_await *await, uint64_t late_ms,
                               struct shed_error *err)
{
    if (shed_latch_wait(&await->latch, late_ms))
        return SHED_OK;
    return shed_fail(err, SHED_ETIMEDOUT,
                     "the deadline has passed, and a callback blocks the "
                     "client's thread");
}

enum shed_code shed_await_one(struct shed_await *await,
                              struct shed_pending *call, uint64_t late_ms,
                              struct shed_value **out, struct shed_error *err)
{
    struct shed_outcome *outcome = &await->outcome[0];
    enum shed_code code;

    shed_await_add(await, 0, call);
    shed_await_begin(await);
    code = shed_await_ends(await, late_ms, err);
    if (code == SHED_OK) {
        code = outcome->code;
        *out = outcome->value;
        outcome->value = NULL;
        if (code != SHED_OK)
            (void)shed_fail(err, code, "%s", shed_error_kept(outcome->why));
    }
    shed_await_leave(await);
    return code;
}
