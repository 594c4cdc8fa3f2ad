/* What is left in Redis: the invariant that somebody will remove it. */
#include <string.h>

#include "sim/lock_sim.h"

/* How much longer a lock lasts in Redis than it is safe for the holder. */
#define REST_MS 25

static bool is_same(const struct shed_lock_holder *a,
                    const struct shed_lock_holder *b)
{
    return memcmp(a->token, b->token, SHED_TOKEN_BYTES) == 0;
}

bool sim_is_leftover(const struct shed_voter *v,
                     const struct shed_lock_holder *holder)
{
    for (size_t i = 0; i < v->leftover_count; i++)
        if (is_same(&v->leftover[i], holder))
            return true;
    return false;
}

static const struct sim_call *call_of(const struct sim *s,
                                      const struct lock_model *model)
{
    for (size_t i = 0; i < s->call_count; i++)
        if (s->call[i].request.op == SHED_LOCK_OP_ACQUIRE &&
            lock_model_is_held_by(model, &s->call[i].request.holder))
            return &s->call[i];
    return NULL;
}

/* Whether somebody has something under way with a server, or will have. */
static bool is_busy_with(const struct sim *s, unsigned h, unsigned i,
                         const struct shed_lock_holder *holder)
{
    const struct sim_handle *handle = &s->handle[h];
    const struct shed_voter *v = &handle->voter[i];

    if (v->state != SHED_VOTER_IDLE || handle->is_posted ||
        handle->machine.round.is_open)
        return true;
    if (sim_is_leftover(v, holder))
        return true;
    for (size_t r = 0; r < SIM_REQUESTS; r++)
        if (s->request[r].is_used && s->request[r].handle == h &&
            s->request[r].server == i)
            return true;
    return false;
}

/* A lock in Redis is held, or soon expires, or somebody will remove it, unless
 * its process is dead, its handle is closed, or its thread has ended. */
static void check_orphan(struct sim *s, unsigned i)
{
    const struct lock_model *model = &s->server[i].model;
    const struct sim_call *call = call_of(s, model);
    const struct sim_handle *handle;
    const struct shed_hold *hold;

    if (call == NULL || call->state != SIM_ENDED ||
        call->request.owner != NULL || !sim_is_alive(s, call->handle) ||
        (model->lock.ends_ms > 0 &&
         model->lock.ends_ms < model->now_us / 1000 + REST_MS))
        return;
    handle = &s->handle[call->handle];
    hold = &handle->machine.hold;
    if (handle->life != SIM_IN_USE || handle->closing_ms != 0 ||
        (hold->is_held && is_same(&hold->holder, &call->request.holder)) ||
        is_busy_with(s, call->handle, i, &call->request.holder) ||
        (call->generation > 0 &&
         call->generation <= handle->machine.lost_generation &&
         s->server_count == 1 && !call->is_renewed_late))
        return;
    sim_fail(s, "server %u has what nobody holds, and nobody removes: %u", i,
             call->request.holder.token[0]);
}

void sim_check_orphans(struct sim *s)
{
    /* if there are more leftovers than fit, leases end the oldest */
    if (!s->algorithm->can_undo || s->mode->jumps > 0 ||
        (s->mode->outage_ms > 0 && s->algorithm->has_lease))
        return;
    for (unsigned i = 0; i < s->server_count; i++)
        if (s->server[i].model.lock.is_set) {
            sim_tick(s, i);
            check_orphan(s, i);
        }
}

/* A lock in Redis expires, or belongs to a dead process, or to a handle that
 * was closed before Redis could be asked. */
void sim_check_server(struct sim *s, unsigned i)
{
    struct lock_model *model = &s->server[i].model;
    const struct sim_call *call;

    sim_tick(s, i);
    lock_model_expire(model);
    if (s->algorithm->has_tokens && model->lock.is_set &&
        model->lock.ends_ms == 0)
        sim_fail(s, "a record without an end");
    if (model->queue_count > 0 && model->queue_ends_ms == 0)
        sim_fail(s, "a queue without an end");
    call = call_of(s, model);
    if (call == NULL || !s->algorithm->can_undo)
        return;
    if (sim_is_alive(s, call->handle) &&
        s->handle[call->handle].life == SIM_IN_USE &&
        call->request.owner == NULL &&
        s->algorithm->has_lease + s->mode->jumps == 0)
        sim_fail(s, "server %u has what nobody wants", i);
    if (sim_is_alive(s, call->handle) &&
        s->handle[call->handle].life == SIM_IN_USE &&
        call->request.owner == NULL && s->mode->is_calm)
        sim_fail(s, "server %u has what was released", i);
}
