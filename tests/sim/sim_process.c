/* The processes of the simulation: each drives the flights of its callers. Its
 * one invariant: it does what a machine says, in that order. */
#include "sim/sim_world.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "entry/entry.h"

static void give(struct sim *s, struct sim_flight *f,
                 struct shed_flight_event event);

/* ------------------------------------------------------------------ flights */

static struct sim_flight *find_flight(struct sim *s, const struct sim_event *e)
{
    struct sim_flight *f = &s->flight[e->index];

    return f->number == e->number && s->process[f->process].is_alive ? f : NULL;
}

static uint64_t newest_of(const struct sim *s, const struct sim_flight *f)
{
    for (size_t i = f->caller_count; i > 0; i--)
        if (f->caller[i - 1] < SIM_CALLERS &&
            s->caller[f->caller[i - 1]].state == SIM_WAITS)
            return i;
    return 0;
}

static void answer(struct sim *s, struct sim_flight *f,
                   const struct shed_flight_act *act)
{
    uint64_t version = act->answer == SHED_ANSWER_ENTRY ? f->entry : f->loaded;

    for (size_t i = 0; i < act->answer_upto && i < f->caller_count; i++) {
        struct sim_caller *caller = &s->caller[f->caller[i]];

        if (caller->state != SIM_WAITS)
            continue;
        sim_trace(s, "answers", f->process, f->key, version);
        if (act->answer != SHED_ANSWER_ENTRY &&
            act->answer != SHED_ANSWER_FAILURE && f->is_unmodified)
            sim_fail(s, "a caller gets an unmodified row, which was not read");
        sim_check_answer(s, caller, act->answer, version);
        caller->state = SIM_ANSWERED;
        caller->answered_ms = s->now_ms;
        f->looks = 0;
    }
}

static void plan_load(struct sim *s, struct sim_flight *f)
{
    uint64_t lasts = sim_between(s, 5, s->lease.lease_ms / 2), snapshot;
    struct sim_request *r;
    size_t index;

    r = sim_make_request(s, &index);
    r->what = SHED_SEND_LOAD;
    r->process = f->process;
    r->flight = (size_t)(f - s->flight);
    r->flight_number = f->number;
    r->call.key = f->key;
    r->has_failed = sim_chance(s, s->mode->fail_pct);
    if (sim_chance(s, s->mode->slow_pct))
        lasts += sim_between(s, 0, 2 * s->lease.lease_ms);
    if (s->mode->overdue_pct == 0 && lasts >= s->policy.load_timeout_ms)
        lasts = s->policy.load_timeout_ms - 1;
    if (sim_chance(s, s->mode->overdue_pct))
        lasts = s->policy.load_timeout_ms + sim_between(s, 0, 300);
    if (s->mode->fixed_load_ms > 0)
        lasts = s->mode->fixed_load_ms;
    snapshot = sim_between(s, 0, lasts);
    sim_plan_request(s, snapshot, SIM_LOAD_READ, index);
    sim_plan_request(s, lasts, SIM_LOAD_END, index);
}

static void send_load(struct sim *s, struct sim_flight *f)
{
    if (sim_chance(s, s->mode->refuse_pct)) {
        give(s, f, (struct shed_flight_event){.type = SHED_EV_LOAD_REFUSED});
        return;
    }
    sim_trace(s, "loads", f->process, f->key, f->machine.is_leased);
    sim_check_load(s, f, f->machine.is_leased);
    plan_load(s, f);
    if (s->mode->is_holder_killed && !s->is_kill_planned)
        sim_plan(s, sim_between(s, 1, s->mode->fixed_load_ms / 2),
                 (struct sim_event){.type = SIM_FAULT,
                                    .fault = SIM_KILL,
                                    .process = f->process});
    s->is_kill_planned = true;
}

static void make_version(struct sim *s, unsigned char version[16])
{
    for (size_t i = 0; i < 16; i += 8)
        shed_entry_put_u64(version + i, sim_draw(s, 0));
}

static void make_publish(struct sim *s, const struct sim_flight *f,
                         struct model_call *call)
{
    char payload[24];
    int size = snprintf(payload, sizeof(payload), "%" PRIu64, f->loaded);
    /* every fourth version of a row is "no such row" */
    bool is_row = f->loaded % 4 != 0 || s->mode->refresh_pct > 0;
    struct model_value value = {.is_row = is_row,
                                .payload = payload,
                                .size = is_row ? (size_t)size : 0,
                                .fresh_ms =
                                    s->ttl_ms - sim_draw(s, s->ttl_ms / 10 + 1),
                                .has_version = true,
                                .version = f->loaded};

    value.ttl_ms = value.fresh_ms + s->mode->stale_ms;
    make_version(s, value.nonce);
    model_make_publish(call, f->key, f->owner.version, &value,
                       f->is_refresh ? f->replaced : NULL,
                       !f->is_unmodified       ? ""
                       : f->machine.newest > 0 ? "keep and get"
                                               : "keep");
}

static void make_call(struct sim *s, struct sim_flight *f,
                      enum shed_flight_send what, enum shed_flight_first first,
                      struct model_call *call)
{
    struct model_owner asks = f->owner;

    asks.epoch = s->mode->no_channels ? 0 : s->process[f->process].epoch;
    if (what == SHED_SEND_ACQUIRE) {
        make_version(s, asks.version);
        model_make_acquire(
            call, f->key, &asks, &s->lease, f->has_seen ? &f->seen : NULL,
            f->is_background ? f->due : NULL, f->machine.had_holder);
        call->first = first;
        f->has_seen = false;
        f->looks += first == SHED_FIRST_NOTHING;
        sim_check_look(s, f);
        call->is_tracked = s->process[f->process].has_pushes;
    } else if (what == SHED_SEND_PUBLISH) {
        make_publish(s, f, call);
    } else if (what == SHED_SEND_RENEW) {
        model_make_renew(call, f->key, f->is_refresh, &asks, s->lease.lease_ms);
    } else {
        model_make_fail(
            call, f->key, f->is_refresh, &f->owner, "why", s->failure_ttl_ms,
            what == SHED_SEND_FAIL ? s->failure_ttl_ms + SIM_LATE_LOOK_MS : 0);
    }
    call->client = f->process;
}

static void send_to_store(struct sim *s, struct sim_flight *f,
                          enum shed_flight_send what,
                          enum shed_flight_first first)
{
    size_t index;
    struct sim_request *r = sim_make_request(s, &index);

    r->what = what;
    r->process = f->process;
    r->flight = (size_t)(f - s->flight);
    r->flight_number = f->number;
    r->epoch = s->process[f->process].epoch;
    make_call(s, f, what, first, &r->call);
    sim_transmit(s, index);
}

static void obey(struct sim *s, struct sim_flight *f,
                 const struct shed_flight_act *act)
{
    if (act->answer != SHED_ANSWER_NOTHING)
        answer(s, f, act);
    if (act->detach)
        f->is_detached = true;
    if (act->set_timer) {
        f->timer = ++s->event_order;
        sim_plan(s, act->timer_ms,
                 (struct sim_event){.type = SIM_TIMER,
                                    .process = f->process,
                                    .key = f->key,
                                    .index = (size_t)(f - s->flight),
                                    .number = f->number,
                                    .timer = f->timer});
    }
    if (act->send == SHED_SEND_LOAD)
        send_load(s, f);
    else if (act->send != SHED_SEND_NOTHING)
        send_to_store(s, f, act->send, act->first);
    if (f->number == 0 || f->machine.state != SHED_FLIGHT_OVER)
        return;
    if (newest_of(s, f) != 0)
        sim_fail(s, "a flight is over and somebody waits");
    f->number = 0;
}

static void give(struct sim *s, struct sim_flight *f,
                 struct shed_flight_event event)
{
    struct shed_flight_act act;

    f->machine.newest = newest_of(s, f);
    f->machine.has_pushes = s->process[f->process].has_pushes;
    f->machine.is_background = f->is_background;
    act = shed_flight_step(&f->machine, &event, s->now_ms, sim_draw(s, 0));
    if (s->process[f->process].pace.is_known &&
        s->process[f->process].learnt_ms == 0)
        s->process[f->process].learnt_ms = s->now_ms;
    if (s->is_tracing)
        fprintf(stderr,
                "%6" PRIu64 "   flight %" PRIu64 " (p%u k%zu) event %d -> "
                "state %d send %d answer %d upto %" PRIu64 "\n",
                s->now_ms, f->number, f->process, f->key, event.type,
                f->machine.state, act.send, act.answer, act.answer_upto);
    obey(s, f, &act);
}

/* ------------------------------------------------------------------ replies */

uint64_t sim_version_of(const struct model_bytes *entry)
{
    return shed_entry_row_version(entry->at).number;
}

static bool is_sound(struct shed_bytes key, const struct model_bytes *bytes)
{
    struct shed_entry entry;

    return shed_entry_decode(key, bytes->at, bytes->size, &entry) ==
           SHED_ENTRY_OK;
}

/* An acquire that reports corrupt bytes must replace exactly these. */
static enum shed_flight_event_type read_entry(struct sim_flight *f,
                                              const struct model_bytes *bytes,
                                              enum shed_flight_event_type good,
                                              enum shed_flight_event_type bad)
{
    if (is_sound(model_key(f->key), bytes)) {
        f->entry = sim_version_of(bytes);
        return good;
    }
    model_bytes_set(&f->seen, bytes->at, SHED_ENTRY_HEADER_BYTES);
    f->has_seen = bad == SHED_EV_CORRUPT;
    return bad;
}

static enum shed_flight_event_type
translate_acquire(struct sim *s, struct sim_flight *f,
                  const struct model_reply *reply)
{
    const struct model_bytes *word = &reply->part[0];

    if (model_bytes_are(word, "WAIT"))
        return SHED_EV_WAIT;
    if (model_bytes_are(word, "HIT"))
        return read_entry(f, &reply->part[1], SHED_EV_HIT, SHED_EV_CORRUPT);
    if (model_bytes_are(word, "FAILED"))
        return is_sound(reply->count > 2 ? model_refresh_key(f->key)
                                         : model_key(f->key),
                        &reply->part[1])
                   ? SHED_EV_MARKER
                   : read_entry(f, &reply->part[1], SHED_EV_MARKER,
                                SHED_EV_CORRUPT);
    memcpy(f->owner.version, reply->part[1].at, sizeof(f->owner.version));
    f->is_refresh = reply->count > 3;
    if (f->is_refresh)
        memcpy(f->replaced, reply->part[3].at, sizeof(f->replaced));
    f->old_version = reply->count > 5 ? model_get_u64(reply->part[5].at) : 0;
    if (model_bytes_are(&reply->part[2], "takeover"))
        s->takeovers++;
    return SHED_EV_LEAD;
}

static enum shed_flight_event_type
translate_publish(struct sim_flight *f, const struct model_reply *reply)
{
    if (model_bytes_are(&reply->part[0], "STORED"))
        return SHED_EV_STORED;
    if (model_bytes_are(&reply->part[0], "SUPERSEDED") ||
        model_bytes_are(&reply->part[0], "KEPT"))
        return read_entry(f, &reply->part[1], SHED_EV_SUPERSEDED,
                          SHED_EV_INVALIDATED);
    return SHED_EV_INVALIDATED;
}

/* What went before acquire has not decided. */
static void send_next(struct sim *s, struct sim_flight *f,
                      const struct sim_request *r)
{
    enum shed_flight_first next = SHED_FIRST_NOTHING;

    if (r->call.first == SHED_FIRST_BOTH && r->reply.integer == 1)
        next = SHED_FIRST_SET;
    else if (r->call.first == SHED_FIRST_SET &&
             s->process[f->process].has_pushes)
        next = SHED_FIRST_GET;
    send_to_store(s, f, r->what, next);
}

static void on_flight_reply(struct sim *s, struct sim_flight *f,
                            const struct sim_request *r)
{
    struct shed_flight_event event = {0};

    if (r->what == SHED_SEND_ACQUIRE && !r->is_lost &&
        r->reply.type == MODEL_INTEGER) {
        send_next(s, f, r);
        return;
    }
    if (r->what == SHED_SEND_RENEW) {
        event.type =
            !r->is_lost && r->reply.type != MODEL_OOM && r->reply.integer == 0
                ? SHED_EV_LEASE_LOST
                : SHED_EV_RENEWED;
    } else if (r->is_lost || r->reply.type == MODEL_OOM) {
        event.type = SHED_EV_TROUBLE;
        event.trouble = r->is_refused ? SHED_TROUBLE_DOWN
                        : r->is_lost  ? SHED_TROUBLE_PASSING
                                      : SHED_TROUBLE_NO_WRITE;
    } else if (r->what == SHED_SEND_ACQUIRE) {
        event.type = translate_acquire(s, f, &r->reply);
        event.wait_ms = (uint64_t)r->reply.integer;
        event.is_refresh = r->reply.count > 3 && (event.type == SHED_EV_WAIT ||
                                                  event.type == SHED_EV_LEAD);
        if (event.type == SHED_EV_WAIT) {
            event.age_ms = r->reply.age_ms;
            event.may_be_older = event.age_ms < SHED_LEASE_ALIVE_MS;
        }
        if (event.type == SHED_EV_HIT)
            event.age_ms = s->model.now_ms -
                           model_get_u64(r->reply.part[1].at + SIM_WRITTEN_AT);
    } else if (r->what == SHED_SEND_PUBLISH) {
        event.type = translate_publish(f, &r->reply);
    } else {
        event.type = SHED_EV_ENDED;
    }
    give(s, f, event);
}

static void detach(struct sim *s, unsigned process, size_t key)
{
    for (size_t i = 0; i < SIM_FLIGHTS; i++)
        if (s->flight[i].number != 0 && s->flight[i].process == process &&
            s->flight[i].key == key)
            s->flight[i].is_detached = true;
}

void sim_send_invalidation(struct sim *s, unsigned process, size_t key,
                           uint64_t version, bool is_expiry)
{
    size_t index;
    struct sim_request *r = sim_make_request(s, &index);

    r->what = SHED_SEND_NOTHING;
    r->process = process;
    r->version = version;
    r->is_expiry = is_expiry;
    if (is_expiry)
        model_make_expire(&r->call, key, 0);
    else
        model_make_invalidate(&r->call, key);
    r->call.client = process;
    sim_transmit(s, index);
}

void sim_on_reply(struct sim *s, size_t index)
{
    struct sim_request *r = &s->request[index];
    struct sim_flight *f = &s->flight[r->flight];
    struct sim_process *p = &s->process[r->process];
    size_t key = r->call.key;

    if (!p->is_alive)
        return;
    if (r->what != SHED_SEND_NOTHING) {
        /* a lost reply ends its connection, and all that is under way there */
        if (r->epoch != p->epoch)
            r->is_lost = true;
        else if (r->is_lost && !r->is_refused)
            sim_end_epoch(s, r->process,
                          sim_between(s, 0, 4 * s->mode->latency_ms));
        if (r->flight_number != 0 && f->number == r->flight_number)
            on_flight_reply(s, f, r);
        return;
    }
    if (r->is_lost) {
        sim_send_invalidation(s, r->process, key, r->version, r->is_expiry);
        return;
    }
    detach(s, r->process, key);
    if (!r->is_expiry && p->own[key] < r->version)
        p->own[key] = r->version;
}

/* ------------------------------------------------------------------ callers */

static struct sim_flight *make_flight(struct sim *s, unsigned process,
                                      size_t key)
{
    struct sim_flight *f = s->flight;

    while (f < s->flight + SIM_FLIGHTS && f->number != 0)
        f++;
    if (f == s->flight + SIM_FLIGHTS)
        sim_fail(s, "more flights than fit");
    f->number = ++s->last_flight;
    f->process = process;
    f->key = key;
    f->is_detached = false;
    f->is_background = false;
    f->is_refresh = false;
    f->has_seen = false;
    f->looks = 0;
    f->caller_count = 0;
    f->owner =
        (struct model_owner){.process = process, .flight = (uint32_t)f->number};
    shed_flight_init(&f->machine, &s->policy, &s->process[process].pace);
    return f;
}

/* The flight that a caller joins, or that prevents another one in the
 * background. */
static struct sim_flight *find_flight_of(struct sim *s, unsigned process,
                                         size_t key, bool is_background)
{
    for (size_t i = 0; i < SIM_FLIGHTS; i++) {
        struct sim_flight *f = &s->flight[i];

        if (f->number != 0 && f->process == process && f->key == key &&
            (!f->is_detached || (is_background && f->is_background)))
            return f;
    }
    return NULL;
}

static void start_background(struct sim *s, unsigned process, size_t key,
                             const unsigned char *identity)
{
    struct sim_flight *f;

    if (find_flight_of(s, process, key, true) != NULL)
        return;
    f = make_flight(s, process, key);
    f->is_background = f->is_detached = true;
    memcpy(f->due, identity, sizeof(f->due));
    sim_trace(s, "refreshes", process, key, f->number);
    give(s, f, (struct shed_flight_event){.type = SHED_EV_START});
}

static void refresh(struct sim *s, const struct sim_caller *caller,
                    const struct model_slot *slot)
{
    unsigned char identity[SHED_ENTRY_IDENTITY_BYTES];

    shed_entry_identity(slot->bytes.at, identity);
    start_background(s, caller->process, caller->key, identity);
}

/* Do what shed_get does before it needs a flight. Returns: whether the caller
 * is answered. */
static bool serve(struct sim *s, struct sim_caller *caller)
{
    const struct model_slot *slot =
        model_peek(&s->model, &s->model.slot[caller->key]);
    struct shed_entry entry;

    if (slot->type != MODEL_STRING ||
        shed_entry_decode(model_key(caller->key), slot->bytes.at,
                          slot->bytes.size, &entry) != SHED_ENTRY_OK ||
        entry.type != SHED_ENTRY_VALUE ||
        s->model.now_ms >= entry.until_ms + s->mode->stale_ms)
        return false;
    sim_trace(s, "is served", caller->process, caller->key,
              sim_version_of(&slot->bytes));
    sim_check_served(s, caller, sim_version_of(&slot->bytes),
                     s->model.now_ms - entry.written_ms);
    if (s->model.now_ms >=
        entry.written_ms + s->ttl_ms * s->mode->refresh_pct / 100)
        refresh(s, caller, slot);
    return true;
}

unsigned sim_pick_process(struct sim *s)
{
    unsigned nth = (unsigned)sim_draw(s, s->alive_count), p = 0;

    for (;; p++)
        if (s->process[p].is_alive && nth-- == 0)
            return p;
}

void sim_on_call(struct sim *s, const struct sim_event *e)
{
    struct sim_caller *caller = &s->caller[s->caller_count];
    unsigned process =
        s->process[e->process].is_alive ? e->process : sim_pick_process(s);
    struct sim_flight *f;
    bool is_new;

    if (s->caller_count == SIM_CALLERS)
        sim_fail(s, "more callers than fit");
    *caller = (struct sim_caller){.key = e->key,
                                  .process = process,
                                  .joined_ms = s->now_ms,
                                  .oldest = s->floor[e->key]};
    if (caller->oldest < s->process[process].own[e->key])
        caller->oldest = s->process[process].own[e->key];
    if (s->mode->refresh_pct > 0 && serve(s, caller))
        return;
    sim_check_wait(s, caller);
    f = find_flight_of(s, process, e->key, false);
    is_new = f == NULL;
    if (is_new) {
        f = make_flight(s, process, e->key);
        /* what the caller's GET found can be wrong by now */
        f->machine.first = (enum shed_flight_first)sim_draw(s, 4);
    }
    f->caller[f->caller_count++] = s->caller_count;
    if (sim_chance(s, s->mode->leave_pct))
        sim_plan(
            s, sim_between(s, 1, 300),
            (struct sim_event){.type = SIM_LEAVE, .index = s->caller_count});
    s->caller_count++;
    sim_trace(s, "calls", process, e->key, f->number);
    if (is_new)
        give(s, f, (struct shed_flight_event){.type = SHED_EV_START});
}

/* ------------------------------------------------------------------- source */

void sim_on_load_end(struct sim *s, size_t index)
{
    struct sim_request *r = &s->request[index];
    struct sim_flight *f = &s->flight[r->flight];

    if (!s->process[r->process].is_alive || f->number != r->flight_number)
        return;
    if (f->machine.state == SHED_FLIGHT_LOADING) {
        f->loaded = r->version;
        f->is_unmodified = f->machine.is_leased && !r->has_failed &&
                           r->version == f->old_version && sim_chance(s, 50);
    }
    give(s, f,
         (struct shed_flight_event){.type = r->has_failed ? SHED_EV_LOAD_FAILED
                                                          : SHED_EV_LOADED,
                                    .is_unmodified = f->is_unmodified});
}

/* ------------------------------------------------------- pushes and timers */

void sim_on_push(struct sim *s, const struct sim_event *e)
{
    const struct sim_process *p = &s->process[e->process];

    if (!p->is_alive || p->epoch != e->number)
        return;
    for (size_t i = 0; i < SIM_FLIGHTS; i++)
        if (s->flight[i].number != 0 && s->flight[i].process == e->process &&
            s->flight[i].key == e->key)
            give(s, &s->flight[i],
                 (struct shed_flight_event){.type = SHED_EV_PUSH});
}

void sim_tell_epoch(struct sim *s, unsigned process)
{
    for (size_t i = 0; i < SIM_FLIGHTS; i++)
        if (s->flight[i].number != 0 && s->flight[i].process == process)
            give(s, &s->flight[i],
                 (struct shed_flight_event){.type = SHED_EV_EPOCH});
}

void sim_on_timer(struct sim *s, const struct sim_event *e)
{
    struct sim_flight *f = find_flight(s, e);

    if (f != NULL && f->timer == e->timer)
        give(s, f, (struct shed_flight_event){.type = SHED_EV_TIMER});
}
