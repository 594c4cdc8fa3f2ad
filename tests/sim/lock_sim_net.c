/* Commands, connections and servers. Its invariant: the commands of a
 * connection are executed before a later connection of the same process exists,
 * or never; those in the sockets of a frozen server are executed when it thaws,
 * in any order, and before all that is sent after that. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "sim/lock_sim.h"

#define RECONNECT_MS 20
#define DOWN_MS 100
#define FROZEN_MS 150
#define STALL_MS 400
#define JUMP_MS UINT64_C(2000)

static uint64_t latency(struct sim *s)
{
    return sim_between(s, 0, s->mode->latency_ms);
}

/* --------------------------------------------------------------- requests */

static struct sim_request *make_request(struct sim *s, size_t *index)
{
    for (size_t i = 0; i < SIM_REQUESTS; i++) {
        struct sim_request *r = &s->request[i];
        if (r->is_used)
            continue;
        *r = (struct sim_request){.is_used = true, .number = ++s->last_number};
        *index = i;
        return r;
    }
    sim_fail(s, "more requests than fit");
}

static void plan_request(struct sim *s, uint64_t delay_ms,
                         enum sim_event_type type, size_t index)
{
    struct sim_request *r = &s->request[index];

    r->pending++;
    sim_plan(s, delay_ms,
             (struct sim_event){.type = type,
                                .process = r->process,
                                .server = r->server,
                                .index = index,
                                .number = r->number});
}

/* Its reply will not come, which is noticed a moment later. */
static void break_request(struct sim *s, size_t index, bool is_server_gone)
{
    struct sim_request *r = &s->request[index];

    if (!r->is_used)
        return;
    r->is_dropped |= is_server_gone;
    if (r->has_reply || r->is_broken)
        return;
    r->is_broken = true;
    r->is_dropped |= sim_chance(s, 50);
    plan_request(s, sim_between(s, 0, 1), SIM_REPLY, index);
}

/* Links are connections of their own. */
static bool is_reachable(const struct sim *s, const struct sim_request *r)
{
    return !s->server[r->server].is_down &&
           (r->call < SIM_CALLS ||
            s->process[r->process].session[r->server].is_up ||
            s->process[r->process].session[r->server].is_deaf);
}

/* A request's next try may get a lower number from another majority. What is
 * still under way for the former number does not count. */
static void begin_number(struct sim *s, const struct sim_request *r,
                         const struct shed_exchange *exchange)
{
    struct sim_call *call = &s->call[r->for_call];

    if (exchange->op != SHED_LOCK_OP_ADVANCE || r->for_call == SIM_CALLS ||
        call->number == exchange->fence)
        return;
    call->number = exchange->fence;
    call->below = 0;
}

/* Note the servers at which a number that is written back is above all known
 * ones. */
static void note_number(struct sim *s, const struct sim_request *r)
{
    uint64_t number = (uint64_t)strtoull(r->command.arg[7].at, NULL, 10);

    if (r->command.what == LOCK_MODEL_SCRIPT &&
        r->command.script == SHED_SCRIPT_LOCK_ADVANCE &&
        r->for_call < SIM_CALLS && s->call[r->for_call].number == number &&
        (uint64_t)r->reply.integer < number)
        s->call[r->for_call].below |= UINT32_C(1) << r->server;
}

void sim_send(struct sim *s, unsigned handle, unsigned server, size_t call,
              const struct shed_exchange *exchange,
              const struct shed_args *args)
{
    size_t index;
    struct sim_request *r = make_request(s, &index);
    uint64_t delay_ms = latency(s);

    r->process = s->handle[handle].process;
    r->server = server;
    r->handle = handle;
    r->call = call;
    r->copies = 1;
    if (args == NULL) { /* no further command */
        plan_request(s, 0, SIM_REPLY, index);
        return;
    }
    r->was_sent = true;
    r->for_call = sim_find_call(s, &exchange->holder);
    begin_number(s, r, exchange);
    lock_model_read(&r->command, exchange->script, args);
    /* links are not tracked */
    r->command.client = call < SIM_CALLS ? SIM_PROCESSES : r->process;
    if (!is_reachable(s, r)) {
        break_request(s, index, true);
        return;
    }
    if (call < SIM_CALLS && sim_chance(s, s->mode->twice_pct)) {
        r->copies = 2;
        plan_request(s, delay_ms, SIM_EXECUTE, index);
        delay_ms += latency(s);
    }
    plan_request(s, delay_ms, SIM_EXECUTE, index);
    if (s->server[server].frozen_until_ms > s->now_ms)
        plan_request(s, SIM_TIMEOUT_MS, SIM_BREAK, index);
    else if (sim_chance(s, s->mode->lost_pct))
        plan_request(s, sim_between(s, 0, SIM_TIMEOUT_MS / 4), SIM_BREAK,
                     index);
}

static void deliver_pushes(struct sim *s, unsigned server)
{
    struct lock_model *model = &s->server[server].model;

    for (unsigned p = 0; p < s->process_count; p++) {
        unsigned copies = 1;
        if ((model->pushed >> p & 1) == 0 || !s->process[p].has_pushes ||
            !s->process[p].session[server].is_up)
            continue;
        if (sim_chance(s, s->mode->push_lost_pct))
            copies = 0;
        else if (sim_chance(s, s->mode->push_twice_pct))
            copies = 2;
        while (copies-- > 0)
            sim_plan(s, s->mode->push_late_ms + latency(s),
                     (struct sim_event){
                         .type = SIM_PUSH,
                         .process = p,
                         .server = server,
                         .number = s->process[p].session[server].number});
    }
    model->pushed = 0;
}

/* The server removes an expired lock some time later. */
static void plan_expiry(struct sim *s, unsigned i)
{
    struct sim_server *server = &s->server[i];
    uint64_t now_ms = server->model.now_us / 1000;
    uint64_t ends_ms = server->model.lock.ends_ms;

    if (!server->model.lock.is_set || ends_ms == 0 || server->is_expiring)
        return;
    server->is_expiring = true;
    sim_plan(s,
             (ends_ms > now_ms ? ends_ms - now_ms : 0) + sim_between(s, 1, 5),
             (struct sim_event){.type = SIM_EXPIRE_KEYS, .server = i});
}

void sim_on_expire(struct sim *s, const struct sim_event *e)
{
    unsigned i = e->server;

    s->server[i].is_expiring = false;
    sim_tick(s, i);
    lock_model_expire(&s->server[i].model);
    deliver_pushes(s, i);
    plan_expiry(s, i);
}

void sim_on_execute(struct sim *s, const struct sim_event *e)
{
    struct sim_request *r = &s->request[e->index];

    r->pending--;
    if (!r->is_dropped) {
        sim_tick(s, r->server);
        lock_model_execute(&s->server[r->server].model, &r->command, &r->reply);
        sim_trace(s, "executes", r->process, r->server,
                  r->command.what * 100u + r->command.script);
        note_number(s, r);
        s->commands++;
        if (--r->copies == 0 && !r->is_broken)
            plan_request(s, latency(s), SIM_REPLY, e->index);
        deliver_pushes(s, r->server);
        plan_expiry(s, r->server);
    }
    r->is_used = r->pending > 0;
}

/* --------------------------------------------------------------- sessions */

static void end_session(struct sim *s, unsigned p, unsigned i)
{
    struct sim_process *process = &s->process[p];

    s->server[i].model.trackers &= ~(UINT32_C(1) << p);
    s->server[i].model.channels &= ~(UINT32_C(1) << p);
    if (!process->session[i].is_up)
        return;
    sim_trace(s, "cut", p, i, 0);
    process->changed_ms = s->now_ms;
    process->session[i].is_up = false;
    process->session[i].number++;
    if (!process->is_alive)
        return;
    sim_plan(s, 0,
             (struct sim_event){.type = SIM_DOWN, .process = p, .server = i});
    sim_plan(s, s->mode->latency_ms + sim_between(s, 1, RECONNECT_MS),
             (struct sim_event){.type = SIM_UP, .process = p, .server = i});
}

static void cut(struct sim *s, unsigned p, unsigned i, bool is_server_gone)
{
    for (size_t r = 0; r < SIM_REQUESTS; r++)
        if (s->request[r].is_used && s->request[r].process == p &&
            s->request[r].server == i &&
            (is_server_gone || s->request[r].call == SIM_CALLS ||
             sim_chance(s, 50))) /* links are connections of their own */
            break_request(s, r, is_server_gone);
    s->process[p].session[i].is_deaf = false;
    end_session(s, p, i);
}

/* Lose the connection for pushes alone: commands still arrive. */
static void cut_pushes(struct sim *s, unsigned p, unsigned i)
{
    s->process[p].session[i].is_deaf |= s->process[p].session[i].is_up;
    end_session(s, p, i);
}

void sim_on_break(struct sim *s, const struct sim_event *e)
{
    struct sim_request *r = &s->request[e->index];

    r->pending--;
    if (!r->has_reply && !r->is_broken && r->call < SIM_CALLS &&
        s->server[r->server].frozen_until_ms > s->now_ms)
        break_request(s, e->index,
                      false); /* the session does not wait for it */
    else if (!r->has_reply && !r->is_broken)
        cut(s, r->process, r->server, false);
    r->is_used = r->pending > 0;
}

void sim_on_up(struct sim *s, const struct sim_event *e)
{
    struct sim_process *process = &s->process[e->process];
    struct sim_server *server = &s->server[e->server];

    if (!process->is_alive || server->is_down ||
        process->session[e->server].is_up)
        return; /* a starting server plans another one */
    sim_trace(s, "up", e->process, e->server, 0);
    process->changed_ms = s->now_ms;
    process->session[e->server].is_up = true;
    process->session[e->server].is_deaf = false;
    process->session[e->server].number++;
    process->session[e->server].has_told_age =
        !sim_chance(s, s->mode->ageless_pct);
    memcpy(process->session[e->server].run, server->model.run, SHED_RUN_BYTES);
    if (!process->has_pushes)
        return;
    process->is_settled = true;
    server->model.channels |= UINT32_C(1) << e->process;
    sim_on_epoch(s, e->process, e->server);
}

/* ----------------------------------------------------------------- faults */

static void stop_server(struct sim *s, unsigned i, uint64_t down_ms)
{
    s->server[i].is_down = true;
    for (unsigned p = 0; p < s->process_count; p++)
        cut(s, p, i, true);
    sim_plan(s, down_ms, (struct sim_event){.type = SIM_START, .server = i});
}

void sim_on_start(struct sim *s, const struct sim_event *e)
{
    struct sim_server *server = &s->server[e->server];

    if (!server->is_down)
        return;
    server->is_down = false;
    server->frozen_until_ms = 0;
    server->since_ms = s->now_ms;
    server->runs += SIM_SERVERS;
    memset(server->model.run, (int)('a' + server->runs % 26), SHED_RUN_BYTES);
    server->model.channels = server->model.trackers = 0;
    for (unsigned p = 0; p < s->process_count; p++)
        sim_plan(s, sim_between(s, 1, RECONNECT_MS),
                 (struct sim_event){
                     .type = SIM_UP, .process = p, .server = e->server});
}

static void freeze(struct sim *s, unsigned i)
{
    uint64_t until_ms = s->now_ms + sim_between(s, 1, FROZEN_MS);

    if (until_ms > s->server[i].frozen_until_ms)
        s->server[i].frozen_until_ms = until_ms;
    for (size_t r = 0; r < SIM_REQUESTS; r++)
        if (s->request[r].is_used && s->request[r].server == i &&
            !s->request[r].has_reply)
            plan_request(s, SIM_TIMEOUT_MS, SIM_BREAK, r);
}

static void kill_process(struct sim *s, unsigned p)
{
    unsigned alive = 0;

    for (unsigned i = 0; i < s->process_count; i++)
        alive += s->process[i].is_alive;
    if (alive < 2 || !s->process[p].is_alive)
        return;
    sim_trace(s, "killed", p, 0, 0);
    s->process[p].is_alive = false;
    s->has_deaths = true;
    for (unsigned i = 0; i < s->server_count; i++)
        cut(s, p, i, false);
    for (unsigned h = 0; h < s->handle_count; h++)
        if (s->handle[h].process == p)
            s->handle[h].life = SIM_UNUSED;
}

static void stall(struct sim *s, unsigned p)
{
    uint64_t stall_ms = sim_between(s, 1, STALL_MS);
    uint64_t until_ms = s->now_ms + stall_ms;

    if (until_ms > s->process[p].stalled_until_ms)
        s->process[p].stalled_until_ms = until_ms;
    s->process[p].stalled_ms += stall_ms;
}

void sim_on_fault(struct sim *s, const struct sim_event *e)
{
    struct sim_server *server = &s->server[e->server];

    sim_trace(s, "fault", e->process, e->server, e->fault);
    switch (e->fault) {
    case SIM_CUT:
        if (sim_chance(s, 30))
            cut_pushes(s, e->process, e->server);
        else
            cut(s, e->process, e->server, false);
        break;
    case SIM_KILL:
        kill_process(s, e->process);
        break;
    case SIM_STALL:
        stall(s, e->process);
        break;
    case SIM_WIPE:
        if (!server->is_down)
            lock_model_flush(&server->model);
        server->model.pushed = 0;
        stop_server(s, e->server, sim_between(s, 1, DOWN_MS));
        break;
    case SIM_RESTART:
        stop_server(s, e->server, sim_between(s, 1, DOWN_MS));
        break;
    case SIM_FREEZE:
        freeze(s, e->server);
        break;
    case SIM_OUTAGE:
        stop_server(s, e->server, s->mode->outage_ms);
        break;
    case SIM_FLUSH:
        lock_model_flush(&server->model);
        deliver_pushes(s, e->server);
        break;
    case SIM_JUMP:
        server->jump_ms +=
            (int64_t)sim_between(s, 0, 2 * JUMP_MS) - (int64_t)JUMP_MS;
        break;
    }
}
