/* The simulation's world. Its one invariant: all that happens is an event, and
 * all chance comes from the seed. */
#include "sim/sim_world.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "entry/entry.h"
#include "support/testing.h"

#define START_MS 1700000000000  /* by the server's clock */
#define TIMEOUT_MS UINT64_C(60) /* of a request */
#define LOSSES_MAX 3 /* in a row; a flight takes more for a dead server */
#define RETRY_MS 7
#define CALLS_MS 2500  /* calls begin before this time */
#define FAULTS_MS 3000 /* faults end by this time */
#define CYCLE_MS 100
#define STEPS_MAX 200000
#define PAUSE_MS 200

static bool has_faults(const struct sim *s)
{
    return s->now_ms < s->faults_end_ms;
}

void sim_trace(const struct sim *s, const char *what, unsigned process,
               size_t key, uint64_t number)
{
    if (s->is_tracing)
        fprintf(stderr, "%6" PRIu64 " %-10s process %u key %zu %" PRIu64 "\n",
                s->now_ms, what, process, key, number);
}

/* ------------------------------------------------------------------ network */

static uint64_t latency(struct sim *s)
{
    return sim_between(s, 0, s->mode->latency_ms);
}

struct sim_request *sim_make_request(struct sim *s, size_t *index)
{
    for (size_t i = 0; i < SIM_REQUESTS; i++) {
        struct sim_request *r = &s->request[i];

        if (r->is_used)
            continue;
        r->is_used = true;
        r->is_lost = false;
        r->is_refused = false;
        r->has_failed = false;
        r->pending = 0;
        r->flight_number = 0;
        *index = i;
        return r;
    }
    sim_fail(s, "more requests than fit");
}

void sim_plan_request(struct sim *s, uint64_t delay_ms,
                      enum sim_event_type type, size_t index)
{
    s->request[index].pending++;
    sim_plan(s, delay_ms,
             (struct sim_event){.type = type,
                                .process = s->request[index].process,
                                .key = s->request[index].call.key,
                                .index = index});
}

/* A reply arrives after two latencies, or never. A lost request may have been
 * executed, or may still be, after its sender has given it up. */
static bool gets_lost(struct sim *s, const struct sim_request *r)
{
    if (s->mode->answer_max_ms > 0 && r->what != SHED_SEND_NOTHING &&
        s->flight[r->flight].machine.troubles >= LOSSES_MAX)
        return false;
    return has_faults(s) && sim_chance(s, s->mode->lost_pct);
}

void sim_transmit(struct sim *s, size_t index)
{
    struct sim_request *r = &s->request[index];

    if (s->is_down) {
        r->is_lost = r->is_refused = true;
        sim_plan_request(s, 1, SIM_REPLY, index);
    } else if (gets_lost(s, r)) {
        r->is_lost = true;
        sim_plan_request(s, TIMEOUT_MS, SIM_REPLY, index);
        if (sim_chance(s, s->mode->late_pct))
            sim_plan_request(s, sim_between(s, TIMEOUT_MS, 5 * TIMEOUT_MS),
                             SIM_EXECUTE, index);
        else if (sim_chance(s, 50))
            sim_plan_request(s, latency(s), SIM_EXECUTE, index);
    } else {
        sim_plan_request(s, latency(s), SIM_EXECUTE, index);
    }
}

static void deliver_pushes(struct sim *s)
{
    for (size_t key = 0; key < SIM_KEYS; key++) {
        /* receivers treat the key and its refresh key alike */
        uint64_t pushed =
            s->model.slot[key].pushed | s->model.refresh[key].pushed;
        for (unsigned p = 0; p < s->process_count; p++) {
            bool was_sent = (pushed >> p & 1) != 0;
            unsigned copies = 1;

            if (!was_sent || !s->process[p].has_pushes)
                continue;
            if (has_faults(s) && sim_chance(s, s->mode->no_push_pct))
                copies = 0;
            else if (sim_chance(s, s->mode->twice_pct))
                copies = 2;
            while (copies-- > 0)
                sim_plan(s, latency(s),
                         (struct sim_event){.type = SIM_PUSH,
                                            .process = p,
                                            .key = key,
                                            .number = s->process[p].epoch});
        }
        s->model.slot[key].pushed = s->model.refresh[key].pushed = 0;
    }
}

/* To be called after a DEL, by whatever program. */
static void put_out(struct sim *s, size_t key)
{
    s->floor[key] = s->row[key];
}

/* Whether the lease of a refresh was granted. */
static bool leads_refresh(const struct sim_request *r)
{
    return sim_leads(r) && r->reply.count >= 4;
}

/* Whether nobody may be given a value any longer: its ttl is over, or it is
 * only kept for a refresh, without an end. */
static bool has_ended(const struct sim *s, const struct model_slot *value)
{
    return value->expires_ms <= s->model.now_ms + LEEWAY_MS + 1 ||
           model_get_u64(value->bytes.at + SIM_UNTIL_AT) == 0;
}

/* Whether a load was granted in place of such a value. */
static bool leads_ended(const struct sim *s, const struct sim_request *r,
                        const struct model_slot *before)
{
    return sim_leads(r) && r->reply.count == 3 && sim_is_value(before) &&
           !model_bytes_are(&r->reply.part[2], "corrupt") &&
           has_ended(s, before);
}

/* Note a lease that was taken or renewed. */
static void note_lease(struct sim *s, const struct sim_request *r)
{
    bool is_renewal = r->call.script == SHED_SCRIPT_RENEW;
    bool is_refresh = is_renewal ? r->call.is_refresh : leads_refresh(r);
    struct sim_lease *lease =
        is_refresh ? &s->refreshing[r->call.key] : &s->held[r->call.key];
    struct sim_lease now = {.process = r->process,
                            .flight = r->flight_number,
                            .epoch = r->epoch,
                            .at_ms = s->now_ms};

    if (!(is_renewal && r->reply.type == MODEL_INTEGER &&
          r->reply.integer == 1) &&
        !sim_leads(r))
        return;
    /* a late call leaves the name of a later epoch */
    if ((is_renewal || model_bytes_are(&r->reply.part[2], "mine")) &&
        lease->epoch > now.epoch)
        now.epoch = lease->epoch;
    *lease = now;
}

static void on_execute(struct sim *s, size_t index)
{
    struct sim_request *r = &s->request[index];
    static struct model_slot before, refresh;
    bool is_ended, is_of_refresh;

    before = *model_peek(&s->model, &s->model.slot[r->call.key]);
    refresh = *model_peek(&s->model, &s->model.refresh[r->call.key]);
    if (before.type == MODEL_ABSENT && r->call.script == SHED_SCRIPT_ACQUIRE &&
        r->call.first != SHED_FIRST_GET && r->call.first != SHED_FIRST_BOTH)
        s->absences++;
    model_call(&s->model, &r->call, &r->reply);
    if (leads_refresh(r) && refresh.type == MODEL_ABSENT)
        s->elections++;
    is_ended = leads_ended(s, r, &before);
    if (is_ended)
        s->absences++;
    sim_check_owner(s, r->call.is_refresh ? &refresh : &before, &r->call);
    is_of_refresh = is_ended || leads_refresh(r);
    sim_check_takeover(s, is_of_refresh ? &refresh : &before,
                       is_of_refresh ? &s->refreshing[r->call.key]
                                     : &s->held[r->call.key],
                       r, is_ended);
    note_lease(s, r);
    sim_trace(s, "executes", r->process, r->call.key, r->call.script);
    if (r->call.script == SHED_SCRIPT_INVALIDATE)
        put_out(s, r->call.key);
    if (r->call.script == SHED_SCRIPT_EXPIRE)
        s->fresh_floor[r->call.key] = s->row[r->call.key];
    if (r->call.script == SHED_SCRIPT_PUBLISH && r->reply.type == MODEL_PARTS &&
        model_bytes_are(&r->reply.part[0], "STORED"))
        s->stored_ms[r->call.key] = s->now_ms;
    sim_check_publish(s, &r->call, &r->reply);
    if (!r->is_lost)
        sim_plan_request(s, latency(s), SIM_REPLY, index);
}

/* ------------------------------------------------------------------ writers */

static void on_commit(struct sim *s, const struct sim_event *e)
{
    uint64_t version = ++s->row[e->key];

    sim_trace(s, "commits", e->process, e->key, version);
    if (sim_chance(s, 50) && s->process[e->process].is_alive)
        sim_send_invalidation(s, e->process, e->key, version,
                              sim_chance(s, s->mode->expire_pct));
    else
        sim_plan(s, sim_between(s, 0, 40),
                 (struct sim_event){.type = SIM_DEL, .key = e->key});
}

static void on_del(struct sim *s, const struct sim_event *e)
{
    sim_trace(s, "deletes", 0, e->key, s->row[e->key]);
    model_del(&s->model, &s->model.slot[e->key]);
    put_out(s, e->key);
}

/* ------------------------------------------------------------------- faults */

/* It loses its connections; the server notices at once. */
static void end_epoch(struct sim *s, unsigned p)
{
    s->process[p].has_pushes = false;
    s->process[p].epoch++;
    s->process[p].lost_ms = s->now_ms;
    s->process[p].joined_ms[1] = s->process[p].joined_ms[0];
    s->process[p].joined_ms[0] = UINT64_MAX;
    s->model.channels[p] = 0;
    for (size_t i = 0; i < SIM_KEYS; i++)
        s->model.slot[i].trackers &= ~(UINT64_C(1) << p);
}

void sim_end_epoch(struct sim *s, unsigned p, uint64_t for_ms)
{
    end_epoch(s, p);
    sim_plan(s, for_ms,
             (struct sim_event){.type = SIM_JOIN,
                                .process = p,
                                .number = s->process[p].epoch});
}

static void join(struct sim *s, unsigned p)
{
    s->process[p].has_pushes = s->process[p].wants_pushes;
    s->process[p].joined_ms[0] = s->now_ms;
    s->model.channels[p] = UINT64_C(1) << s->process[p].epoch % MODEL_EPOCHS;
}

static void on_join(struct sim *s, const struct sim_event *e)
{
    if (!s->process[e->process].is_alive ||
        s->process[e->process].epoch != e->number)
        return;
    if (s->is_down) {
        sim_plan(s, RETRY_MS, *e);
        return;
    }
    join(s, e->process);
    sim_tell_epoch(s, e->process);
}

static void begin_process(struct sim *s, bool has_pushes)
{
    struct sim_process *p = &s->process[s->process_count];

    if (s->process_count == MODEL_PROCESSES)
        return;
    p->is_alive = true;
    p->wants_pushes = has_pushes;
    p->epoch = 1;
    join(s, s->process_count);
    s->process_count++;
    s->alive_count++;
}

static void kill_process(struct sim *s, unsigned p)
{
    if (s->alive_count < 2 || !s->process[p].is_alive)
        return;
    sim_trace(s, "killed", p, 0, 0);
    s->process[p].is_alive = false;
    s->alive_count--;
    end_epoch(s, p);
    for (size_t i = 0; i < SIM_FLIGHTS; i++)
        if (s->flight[i].number != 0 && s->flight[i].process == p)
            s->flight[i].number = 0;
    for (size_t i = 0; i < s->caller_count; i++)
        if (s->caller[i].process == p && s->caller[i].state == SIM_WAITS)
            s->caller[i].state = SIM_LEFT;
    if (s->killed_ms == 0)
        s->killed_ms = s->now_ms;
    else
        begin_process(s, true);
}

static void stall_process(struct sim *s, unsigned p)
{
    s->process[p].stalled_until_ms =
        s->now_ms + sim_between(s, 1, 2 * s->lease.lease_ms);
}

static void corrupt_key(struct sim *s, size_t key)
{
    struct model_slot *slot = &s->model.slot[key];

    if (slot->type == MODEL_STRING &&
        slot->bytes.size > SHED_ENTRY_HEADER_BYTES)
        slot->bytes.at[33] ^= 1; /* in the checksum */
}

static void on_fault(struct sim *s, const struct sim_event *e)
{
    unsigned p =
        s->process[e->process].is_alive ? e->process : sim_pick_process(s);
    struct sim_event repair = *e;

    sim_trace(s, "fault", p, e->key, e->fault);
    repair.type = SIM_REPAIR;
    repair.process = p;
    switch (e->fault) {
    case SIM_KILL:
        kill_process(s, p);
        break;
    case SIM_STALL:
        stall_process(s, p);
        break;
    case SIM_DOWN:
        s->is_down = true;
        for (unsigned i = 0; i < s->process_count; i++)
            if (s->process[i].is_alive)
                sim_end_epoch(s, i, RETRY_MS);
        sim_plan(s, sim_between(s, 1, 300), repair);
        break;
    case SIM_FULL:
        s->model.is_full = true;
        sim_plan(s, sim_between(s, 1, 300), repair);
        break;
    case SIM_EPOCH: /* its connections are lost for a moment */
        sim_end_epoch(s, p, sim_between(s, 1, 100));
        break;
    case SIM_FLUSH:
        model_flush(&s->model);
        for (size_t i = 0; i < SIM_KEYS; i++)
            put_out(s, i);
        break;
    case SIM_JUMP:
        s->model.now_ms += sim_between(s, 0, 2 * SIM_JUMP_MS) - SIM_JUMP_MS;
        break;
    case SIM_CORRUPT:
        corrupt_key(s, e->key);
        break;
    case SIM_FOREIGN:
        model_set(&s->model.slot[e->key], "not ours", 8);
        put_out(s, e->key);
        break;
    }
}

static void on_mend(struct sim *s, const struct sim_event *e)
{
    switch (e->fault) {
    case SIM_DOWN:
        s->is_down = false;
        break;
    case SIM_FULL:
        s->model.is_full = false;
        break;
    default:
        break;
    }
}

static void plan_faults(struct sim *s)
{
    for (enum sim_fault fault = 0; fault < SIM_FAULTS; fault++)
        for (uint64_t i = sim_between(s, 0, s->mode->faults[fault]); i > 0; i--)
            sim_plan(s, sim_between(s, 1, FAULTS_MS - 1),
                     (struct sim_event){.type = SIM_FAULT,
                                        .fault = fault,
                                        .process = sim_pick_process(s),
                                        .key = sim_draw(s, SIM_KEYS)});
}

/* ----------------------------------------------------------------- schedule */

static void plan_calls(struct sim *s, size_t keys)
{
    uint64_t within = s->mode->is_burst ? 2 : CALLS_MS;

    for (unsigned i = 0; i < s->mode->calls; i++)
        sim_plan(s, sim_between(s, 0, within),
                 (struct sim_event){.type = SIM_CALL,
                                    .process = sim_pick_process(s),
                                    .key = sim_draw(s, keys)});
    for (uint64_t i = sim_between(s, 0, s->mode->writes); i > 0; i--)
        sim_plan(s, sim_between(s, 0, CALLS_MS),
                 (struct sim_event){.type = SIM_COMMIT,
                                    .process = sim_pick_process(s),
                                    .key = sim_draw(s, keys)});
    sim_plan(s, CYCLE_MS, (struct sim_event){.type = SIM_CYCLE});
}

static void set_up(struct sim *s, const struct sim_mode *mode, uint64_t seed)
{
    uint64_t processes;

    memset(s, 0, offsetof(struct sim, version));
    for (size_t i = 0; i < SIM_FLIGHTS; i++)
        s->flight[i].number = 0;
    for (size_t i = 0; i < SIM_REQUESTS; i++)
        s->request[i].is_used = false;
    s->mode = mode;
    s->seed = s->random = seed;
    s->now_ms = 1000;
    s->faults_end_ms = s->now_ms + FAULTS_MS;
    s->is_tracing = getenv("SHED_SIM_TRACE") != NULL;
    s->model.now_ms = START_MS;
    s->lease.lease_ms = mode->fixed_lease_ms > 0 ? mode->fixed_lease_ms
                                                 : sim_between(s, 200, 600);
    s->lease.grace_ms = sim_between(s, 20, 100);
    s->policy.lease_ms = s->lease.lease_ms;
    s->policy.load_timeout_ms = s->lease.lease_ms * sim_between(s, 2, 5);
    s->policy.load_when_down = sim_chance(s, 50);
    s->policy.pause_ms = PAUSE_MS;
    s->lease.record_ms = s->policy.load_timeout_ms + s->lease.lease_ms;
    s->ttl_ms = sim_between(s, mode->ttl_ms / 10, mode->ttl_ms);
    s->failure_ttl_ms = sim_between(s, 0, 200);
    for (size_t i = 0; i < SIM_KEYS; i++)
        s->row[i] = s->floor[i] = 1;
    for (processes = sim_between(s, 2, 5); processes > 0; processes--)
        begin_process(s, !mode->no_pushes &&
                             (mode->is_prompt || mode->looks_max > 0 ||
                              sim_chance(s, 70)));
}

/* Events of a stalled process wait. */
static bool is_put_off(struct sim *s, const struct sim_event *e)
{
    uint64_t until = s->process[e->process].stalled_until_ms;

    if (e->type != SIM_CALL && e->type != SIM_REPLY && e->type != SIM_TIMER &&
        e->type != SIM_PUSH && e->type != SIM_LOAD_END && e->type != SIM_JOIN)
        return false;
    if (until <= s->now_ms)
        return false;
    sim_plan(s, until - s->now_ms + sim_between(s, 0, 1), *e);
    return true;
}

static void on_leave(struct sim *s, const struct sim_event *e)
{
    if (s->caller[e->index].state == SIM_WAITS)
        s->caller[e->index].state = SIM_LEFT;
}

static void on_request_event(struct sim *s, const struct sim_event *e)
{
    struct sim_request *r = &s->request[e->index];

    if (e->type == SIM_EXECUTE)
        on_execute(s, e->index);
    else if (e->type == SIM_REPLY)
        sim_on_reply(s, e->index);
    else if (e->type == SIM_LOAD_READ)
        r->version = s->row[r->call.key];
    else
        sim_on_load_end(s, e->index);
    if (--r->pending == 0)
        r->is_used = false;
}

static void happen(struct sim *s, const struct sim_event *e)
{
    switch (e->type) {
    case SIM_CALL:
        sim_on_call(s, e);
        break;
    case SIM_LEAVE:
        on_leave(s, e);
        break;
    case SIM_COMMIT:
        on_commit(s, e);
        break;
    case SIM_DEL:
        on_del(s, e);
        break;
    case SIM_TIMER:
        sim_on_timer(s, e);
        break;
    case SIM_PUSH:
        sim_on_push(s, e);
        break;
    case SIM_FAULT:
        on_fault(s, e);
        break;
    case SIM_REPAIR:
        on_mend(s, e);
        break;
    case SIM_JOIN:
        on_join(s, e);
        break;
    case SIM_CYCLE:
        model_expire(&s->model);
        if (s->event_count > 0)
            sim_plan(s, CYCLE_MS, *e);
        break;
    default:
        on_request_event(s, e);
    }
}

void sim_run(struct sim *s, const struct sim_mode *mode, uint64_t seed)
{
    unsigned steps = 0;

    set_up(s, mode, seed);
    plan_calls(s, mode->is_holder_killed ? 1 : sim_between(s, 1, SIM_KEYS));
    plan_faults(s);
    while (s->event_count > 0) {
        struct sim_event e = sim_take_next(s);

        s->model.now_ms += e.at_ms - s->now_ms;
        s->now_ms = e.at_ms;
        if (++steps > STEPS_MAX)
            sim_fail(s, "it does not come to rest");
        if (is_put_off(s, &e))
            continue;
        happen(s, &e);
        sim_check_store(s);
        deliver_pushes(s);
    }
    sim_check_end(s);
}
