/* The simulation's world. Its one invariant: all that happens is an event, and
 * all chance comes from the seed. */
#include "sim_world.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "entry.h"

#define START_MS                                                               \
    1700000000000     /* the server's clock is not the monotonic one           \
                       */
#define TIMEOUT_MS 60 /* of a request */
#define RETRY_MS 7
#define CALLS_MS 2500  /* calls come within */
#define FAULTS_MS 3000 /* faults end after */
#define CYCLE_MS 100
#define STEPS_MAX 200000
#define BURST_FAILURE_MS 300

static void give(struct sim *s, struct sim_flight *f,
                 struct shed_flight_event event);

/* ------------------------------------------------------------------- chance */

static uint64_t draw(struct sim *s, uint64_t below)
{
    /* splitmix64 */
    uint64_t z = s->random += 0x9e3779b97f4a7c15;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    z ^= z >> 31;
    return below > 0 ? z % below : z;
}

static bool chance(struct sim *s, unsigned pct)
{
    return pct > 0 && draw(s, 100) < pct;
}

static uint64_t between(struct sim *s, uint64_t low, uint64_t high)
{
    return low + draw(s, high - low + 1);
}

static bool has_faults(const struct sim *s)
{
    return s->now_ms < s->faults_end_ms;
}

static void trace(const struct sim *s, const char *what, unsigned process,
                  size_t key, uint64_t number)
{
    if (s->is_tracing)
        fprintf(stderr, "%6" PRIu64 " %-10s process %u key %zu %" PRIu64 "\n",
                s->now_ms, what, process, key, number);
}

/* ------------------------------------------------------------------- events */

static void plan(struct sim *s, uint64_t delay_ms, struct sim_event event)
{
    if (s->event_count == SIM_EVENTS)
        sim_fail(s, "more events than fit");
    event.at_ms = s->now_ms + delay_ms;
    event.order = ++s->event_order;
    s->event[s->event_count++] = event;
}

static struct sim_event take_next(struct sim *s)
{
    struct sim_event next;
    size_t best = 0;

    for (size_t i = 1; i < s->event_count; i++)
        if (s->event[i].at_ms < s->event[best].at_ms ||
            (s->event[i].at_ms == s->event[best].at_ms &&
             s->event[i].order < s->event[best].order))
            best = i;
    next = s->event[best];
    s->event[best] = s->event[--s->event_count];
    return next;
}

/* ------------------------------------------------------------------ network */

static uint64_t latency(struct sim *s)
{
    return between(s, 0, s->mode->latency_ms);
}

static struct sim_request *make_request(struct sim *s, size_t *index)
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

static void plan_request(struct sim *s, uint64_t delay_ms,
                         enum sim_event_type type, size_t index)
{
    s->request[index].pending++;
    plan(s, delay_ms,
         (struct sim_event){.type = type,
                            .process = s->request[index].process,
                            .key = s->request[index].call.key,
                            .index = index});
}

/* A reply is there after two latencies, or never; a lost request may have been
 * executed, or be so still, after its sender has given it up. */
static void transmit(struct sim *s, size_t index)
{
    struct sim_request *r = &s->request[index];

    if (s->is_down) {
        r->is_lost = r->is_refused = true;
        plan_request(s, 1, SIM_REPLY, index);
    } else if (has_faults(s) && chance(s, s->mode->lost_pct)) {
        r->is_lost = true;
        plan_request(s, TIMEOUT_MS, SIM_REPLY, index);
        if (chance(s, s->mode->late_pct))
            plan_request(s, between(s, TIMEOUT_MS, 5 * TIMEOUT_MS), SIM_EXECUTE,
                         index);
        else if (chance(s, 50))
            plan_request(s, latency(s), SIM_EXECUTE, index);
    } else {
        plan_request(s, latency(s), SIM_EXECUTE, index);
    }
}

static void deliver_pushes(struct sim *s)
{
    for (size_t key = 0; key < SIM_KEYS; key++) {
        for (unsigned p = 0; p < s->process_count; p++) {
            bool was_sent = (s->twin.pushed[key] >> p & 1) != 0;
            unsigned copies = 1;

            if (!was_sent || !s->process[p].has_pushes)
                continue;
            if (has_faults(s) && chance(s, s->mode->no_push_pct))
                copies = 0;
            else if (chance(s, s->mode->twice_pct))
                copies = 2;
            while (copies-- > 0)
                plan(s, latency(s),
                     (struct sim_event){.type = SIM_PUSH,
                                        .process = p,
                                        .key = key,
                                        .number = s->process[p].epoch});
        }
        s->twin.pushed[key] = 0;
    }
}

/* A DEL of whatever kind has been executed. */
static void put_out(struct sim *s, size_t key)
{
    s->floor[key] = s->row[key];
}

static void on_execute(struct sim *s, size_t index)
{
    struct sim_request *r = &s->request[index];
    static struct twin_slot before;

    before = *twin_peek(&s->twin, r->call.key);
    if (before.type == TWIN_ABSENT && r->call.script == SHED_SCRIPT_ACQUIRE)
        s->absences++;
    twin_call(&s->twin, &r->call, &r->reply);
    sim_check_owner(s, &before, &r->call);
    trace(s, "executes", r->process, r->call.key, r->call.script);
    if (r->call.script == SHED_SCRIPT_INVALIDATE)
        put_out(s, r->call.key);
    if (r->call.script == SHED_SCRIPT_PUBLISH && r->reply.type == TWIN_PARTS &&
        twin_bytes_are(&r->reply.part[0], "STORED"))
        s->stored_ms[r->call.key] = s->now_ms;
    if (!r->is_lost)
        plan_request(s, latency(s), SIM_REPLY, index);
}

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
        trace(s, "answers", f->process, f->key, version);
        sim_check_answer(s, caller, act->answer, version);
        caller->state = SIM_ANSWERED;
        caller->answered_ms = s->now_ms;
    }
}

static void plan_load(struct sim *s, struct sim_flight *f, uint64_t number)
{
    uint64_t lasts = between(s, 5, s->lease.lease_ms / 2), snapshot;
    struct sim_request *r;
    size_t index;

    r = make_request(s, &index);
    r->what = SHED_SEND_LOAD;
    r->number = number;
    r->process = f->process;
    r->flight = (size_t)(f - s->flight);
    r->flight_number = f->number;
    r->call.key = f->key;
    r->has_failed = chance(s, s->mode->fail_pct);
    if (chance(s, s->mode->slow_pct))
        lasts += between(s, 0, 2 * s->lease.lease_ms);
    if (s->mode->overdue_pct == 0 && lasts >= s->policy.load_timeout_ms)
        lasts = s->policy.load_timeout_ms - 1;
    if (chance(s, s->mode->overdue_pct))
        lasts = s->policy.load_timeout_ms + between(s, 0, 300);
    if (s->mode->fixed_load_ms > 0)
        lasts = s->mode->fixed_load_ms;
    snapshot = between(s, 0, lasts);
    plan_request(s, snapshot, SIM_LOAD_READ, index);
    plan_request(s, lasts, SIM_LOAD_END, index);
}

static void send_load(struct sim *s, struct sim_flight *f, uint64_t number)
{
    if (chance(s, s->mode->refuse_pct)) {
        give(s, f,
             (struct shed_flight_event){.type = SHED_EV_LOAD_REFUSED,
                                        .request = number});
        return;
    }
    trace(s, "loads", f->process, f->key, f->machine.is_leased);
    sim_check_load(s, f, f->machine.is_leased);
    plan_load(s, f, number);
    if (s->mode->is_holder_killed && !s->is_kill_planned)
        plan(s, between(s, 1, s->mode->fixed_load_ms / 2),
             (struct sim_event){
                 .type = SIM_FAULT, .fault = SIM_KILL, .process = f->process});
    s->is_kill_planned = true;
}

static void make_version(struct sim *s, unsigned char version[16])
{
    for (size_t i = 0; i < 16; i += 8)
        shed_entry_put_u64(version + i, draw(s, 0));
}

static void make_publish(struct sim *s, const struct sim_flight *f,
                         struct twin_call *call)
{
    char payload[24];
    int size = snprintf(payload, sizeof(payload), "%" PRIu64, f->loaded);

    /* each fourth version of a row is "no such row" */
    twin_make_publish(call, f->key, f->owner.version, f->loaded % 4 != 0,
                      payload, (size_t)size,
                      s->ttl_ms - draw(s, s->ttl_ms / 10 + 1));
}

static void make_call(struct sim *s, struct sim_flight *f,
                      enum shed_flight_send what, struct twin_call *call)
{
    struct twin_owner asks = f->owner;

    if (what == SHED_SEND_ACQUIRE) {
        make_version(s, asks.version);
        twin_make_acquire(call, f->key, &asks, !s->mode->no_channels, &s->lease,
                          f->has_seen ? &f->seen : NULL);
        f->has_seen = false;
        call->is_tracked = s->process[f->process].has_pushes;
    } else if (what == SHED_SEND_PUBLISH) {
        make_publish(s, f, call);
    } else if (what == SHED_SEND_RENEW) {
        twin_make_renew(call, f->key, &f->owner, s->lease.lease_ms);
    } else {
        twin_make_fail(call, f->key, &f->owner, "why",
                       what == SHED_SEND_FAIL ? s->failure_ttl_ms : 0);
    }
    call->client = f->process;
}

static void send_to_store(struct sim *s, struct sim_flight *f,
                          const struct shed_flight_act *act)
{
    size_t index;
    struct sim_request *r = make_request(s, &index);

    r->what = act->send;
    r->number = act->request;
    r->process = f->process;
    r->flight = (size_t)(f - s->flight);
    r->flight_number = f->number;
    make_call(s, f, act->send, &r->call);
    transmit(s, index);
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
        plan(s, act->timer_ms,
             (struct sim_event){.type = SIM_TIMER,
                                .process = f->process,
                                .key = f->key,
                                .index = (size_t)(f - s->flight),
                                .number = f->number,
                                .timer = f->timer});
    }
    if (act->send == SHED_SEND_LOAD)
        send_load(s, f, act->request);
    else if (act->send != SHED_SEND_NOTHING)
        send_to_store(s, f, act);
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
    act = shed_flight_step(&f->machine, &event, s->now_ms, draw(s, 0));
    if (s->is_tracing)
        fprintf(stderr,
                "%6" PRIu64 "   flight %" PRIu64 " (p%u k%zu) event %d -> "
                "state %d send %d answer %d upto %" PRIu64 "\n",
                s->now_ms, f->number, f->process, f->key, event.type,
                f->machine.state, act.send, act.answer, act.answer_upto);
    obey(s, f, &act);
}

/* ------------------------------------------------------------------ replies */

uint64_t sim_version_of(const struct twin_bytes *entry)
{
    char text[24] = "";
    size_t size = entry->size - SHED_ENTRY_HEADER_BYTES;

    if (size < sizeof(text))
        memcpy(text, entry->at + SHED_ENTRY_HEADER_BYTES, size);
    return strtoull(text, NULL, 10);
}

static bool is_sound(const struct twin_bytes *bytes)
{
    struct shed_entry entry;

    return shed_entry_decode(bytes->at, bytes->size, &entry) == SHED_ENTRY_OK;
}

/* What shows bytes that do not decode must replace just these. */
static enum shed_flight_event_type read_entry(struct sim_flight *f,
                                              const struct twin_bytes *bytes,
                                              enum shed_flight_event_type good,
                                              enum shed_flight_event_type bad)
{
    if (is_sound(bytes)) {
        f->entry = sim_version_of(bytes);
        return good;
    }
    twin_bytes_set(&f->seen, bytes->at, SHED_ENTRY_HEADER_BYTES);
    f->has_seen = bad == SHED_EV_CORRUPT;
    return bad;
}

static enum shed_flight_event_type
translate_acquire(struct sim *s, struct sim_flight *f,
                  const struct twin_reply *reply)
{
    const struct twin_bytes *word = &reply->part[0];

    if (twin_bytes_are(word, "WAIT"))
        return SHED_EV_WAIT;
    if (twin_bytes_are(word, "HIT"))
        return read_entry(f, &reply->part[1], SHED_EV_HIT, SHED_EV_CORRUPT);
    if (twin_bytes_are(word, "FAILED"))
        return is_sound(&reply->part[1])
                   ? SHED_EV_MARKER
                   : read_entry(f, &reply->part[1], SHED_EV_MARKER,
                                SHED_EV_CORRUPT);
    memcpy(f->owner.version, reply->part[1].at, sizeof(f->owner.version));
    if (twin_bytes_are(&reply->part[2], "takeover"))
        s->takeovers++;
    return SHED_EV_LEAD;
}

static enum shed_flight_event_type
translate_publish(struct sim_flight *f, const struct twin_reply *reply)
{
    if (twin_bytes_are(&reply->part[0], "STORED"))
        return SHED_EV_STORED;
    if (twin_bytes_are(&reply->part[0], "SUPERSEDED"))
        return read_entry(f, &reply->part[1], SHED_EV_SUPERSEDED,
                          SHED_EV_INVALIDATED);
    return SHED_EV_INVALIDATED;
}

static void on_flight_reply(struct sim *s, struct sim_flight *f,
                            const struct sim_request *r)
{
    struct shed_flight_event event = {.request = r->number};

    if (r->is_lost || r->reply.type == TWIN_OOM) {
        event.type = SHED_EV_TROUBLE;
        event.trouble = r->is_refused ? SHED_TROUBLE_DOWN
                        : r->is_lost  ? SHED_TROUBLE_PASSING
                                      : SHED_TROUBLE_NO_WRITE;
    } else if (r->what == SHED_SEND_ACQUIRE) {
        /* a late reply is not for us any more */
        if (f->machine.request != r->number)
            return;
        event.type = translate_acquire(s, f, &r->reply);
        event.wait_ms = (uint64_t)r->reply.integer;
    } else if (r->what == SHED_SEND_PUBLISH) {
        event.type = translate_publish(f, &r->reply);
    } else if (r->what == SHED_SEND_RENEW) {
        event.type =
            r->reply.integer == 1 ? SHED_EV_RENEWED : SHED_EV_LEASE_LOST;
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

static void send_invalidation(struct sim *s, unsigned process, size_t key,
                              uint64_t version)
{
    size_t index;
    struct sim_request *r = make_request(s, &index);

    r->what = SHED_SEND_NOTHING;
    r->process = process;
    r->version = version;
    twin_make_invalidate(&r->call, key);
    r->call.client = process;
    transmit(s, index);
}

static void on_reply(struct sim *s, size_t index)
{
    struct sim_request *r = &s->request[index];
    struct sim_flight *f = &s->flight[r->flight];
    struct sim_process *p = &s->process[r->process];
    size_t key = r->call.key;

    if (!p->is_alive)
        return;
    if (r->what != SHED_SEND_NOTHING) {
        if (r->flight_number != 0 && f->number == r->flight_number)
            on_flight_reply(s, f, r);
        return;
    }
    if (r->is_lost) {
        send_invalidation(s, r->process, key, r->version);
        return;
    }
    detach(s, r->process, key);
    if (p->own[key] < r->version)
        p->own[key] = r->version;
}

/* ------------------------------------------------------------------ callers */

static struct sim_flight *join_flight(struct sim *s, unsigned process,
                                      size_t key, bool *is_new)
{
    struct sim_flight *free_one = NULL;

    *is_new = false;
    for (size_t i = 0; i < SIM_FLIGHTS; i++) {
        struct sim_flight *f = &s->flight[i];

        if (f->number == 0)
            free_one = f;
        else if (f->process == process && f->key == key && !f->is_detached)
            return f;
    }
    if (free_one == NULL)
        sim_fail(s, "more flights than fit");
    *is_new = true;
    free_one->number = ++s->last_flight;
    free_one->process = process;
    free_one->key = key;
    free_one->is_detached = false;
    free_one->has_seen = false;
    free_one->caller_count = 0;
    free_one->owner =
        (struct twin_owner){.process = process, .flight = free_one->number};
    shed_flight_init(&free_one->machine, &s->policy);
    return free_one;
}

static unsigned pick_process(struct sim *s)
{
    unsigned nth = (unsigned)draw(s, s->alive_count), p = 0;

    for (;; p++)
        if (s->process[p].is_alive && nth-- == 0)
            return p;
}

static void on_call(struct sim *s, const struct sim_event *e)
{
    struct sim_caller *caller = &s->caller[s->caller_count];
    unsigned process =
        s->process[e->process].is_alive ? e->process : pick_process(s);
    struct sim_flight *f;
    bool is_new;

    *caller = (struct sim_caller){.key = e->key,
                                  .process = process,
                                  .joined_ms = s->now_ms,
                                  .oldest = s->floor[e->key]};
    if (caller->oldest < s->process[process].own[e->key])
        caller->oldest = s->process[process].own[e->key];
    f = join_flight(s, process, e->key, &is_new);
    f->caller[f->caller_count++] = s->caller_count;
    if (chance(s, s->mode->leave_pct))
        plan(s, between(s, 1, 300),
             (struct sim_event){.type = SIM_LEAVE, .index = s->caller_count});
    s->caller_count++;
    trace(s, "calls", process, e->key, f->number);
    if (is_new)
        give(s, f, (struct shed_flight_event){.type = SHED_EV_START});
}

/* ------------------------------------------------------------------- source */

static void on_load_end(struct sim *s, size_t index)
{
    struct sim_request *r = &s->request[index];
    struct sim_flight *f = &s->flight[r->flight];

    if (!s->process[r->process].is_alive || f->number != r->flight_number)
        return;
    if (f->machine.state == SHED_FLIGHT_LOADING)
        f->loaded = r->version;
    give(s, f,
         (struct shed_flight_event){.type = r->has_failed ? SHED_EV_LOAD_FAILED
                                                          : SHED_EV_LOADED,
                                    .request = r->number});
}

/* ------------------------------------------------------------------ writers */

static void on_commit(struct sim *s, const struct sim_event *e)
{
    uint64_t version = ++s->row[e->key];

    trace(s, "commits", e->process, e->key, version);
    if (chance(s, 50) && s->process[e->process].is_alive)
        send_invalidation(s, e->process, e->key, version);
    else
        plan(s, between(s, 0, 40),
             (struct sim_event){.type = SIM_DEL, .key = e->key});
}

static void on_del(struct sim *s, const struct sim_event *e)
{
    trace(s, "deletes", 0, e->key, s->row[e->key]);
    twin_del(&s->twin, e->key);
    put_out(s, e->key);
}

/* ------------------------------------------------------------------- faults */

static void end_epoch(struct sim *s, unsigned p)
{
    s->process[p].has_pushes = false;
    s->process[p].epoch++;
    for (size_t i = 0; i < SIM_KEYS; i++)
        s->twin.slot[i].trackers &= ~(UINT64_C(1) << p);
}

static void begin_process(struct sim *s, bool has_pushes)
{
    if (s->process_count == TWIN_PROCESSES)
        return;
    s->process[s->process_count].is_alive = true;
    s->process[s->process_count].has_pushes = has_pushes;
    s->twin.channels |= UINT64_C(1) << s->process_count;
    s->process_count++;
    s->alive_count++;
}

static void kill_process(struct sim *s, unsigned p)
{
    if (s->alive_count < 2 || !s->process[p].is_alive)
        return;
    trace(s, "killed", p, 0, 0);
    s->process[p].is_alive = false;
    s->alive_count--;
    s->twin.channels &= ~(UINT64_C(1) << p);
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
        s->now_ms + between(s, 1, 2 * s->lease.lease_ms);
}

static void corrupt_key(struct sim *s, size_t key)
{
    struct twin_slot *slot = &s->twin.slot[key];

    if (slot->type == TWIN_STRING && slot->bytes.size > SHED_ENTRY_HEADER_BYTES)
        slot->bytes.at[33] ^= 1; /* in the checksum */
}

static void on_fault(struct sim *s, const struct sim_event *e)
{
    unsigned p = s->process[e->process].is_alive ? e->process : pick_process(s);
    struct sim_event mend = *e;

    trace(s, "fault", p, e->key, e->fault);
    mend.type = SIM_MEND;
    mend.process = p;
    switch (e->fault) {
    case SIM_KILL:
        kill_process(s, p);
        break;
    case SIM_STALL:
        stall_process(s, p);
        break;
    case SIM_DOWN:
        s->is_down = true;
        plan(s, between(s, 1, 300), mend);
        break;
    case SIM_FULL:
        s->twin.is_full = true;
        plan(s, between(s, 1, 300), mend);
        break;
    case SIM_EPOCH: /* its connections are lost, for a moment */
        end_epoch(s, p);
        s->twin.channels &= ~(UINT64_C(1) << p);
        plan(s, between(s, 1, 100), mend);
        break;
    case SIM_FLUSH:
        twin_flush(&s->twin);
        for (size_t i = 0; i < SIM_KEYS; i++)
            put_out(s, i);
        break;
    case SIM_JUMP:
        s->twin.now_ms += between(s, 0, 2 * SIM_JUMP_MS) - SIM_JUMP_MS;
        break;
    case SIM_CORRUPT:
        corrupt_key(s, e->key);
        break;
    case SIM_FOREIGN:
        twin_set(&s->twin, e->key, "not ours", 8);
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
        s->twin.is_full = false;
        break;
    default:
        if (!s->process[e->process].is_alive)
            break;
        s->process[e->process].has_pushes = true;
        s->twin.channels |= UINT64_C(1) << e->process;
    }
}

static void plan_faults(struct sim *s, enum sim_fault fault, unsigned most)
{
    uint64_t count = between(s, 0, most);

    while (count-- > 0)
        plan(s, between(s, 1, FAULTS_MS - 1),
             (struct sim_event){.type = SIM_FAULT,
                                .fault = fault,
                                .process = pick_process(s),
                                .key = draw(s, SIM_KEYS)});
}

/* ----------------------------------------------------------------- schedule */

static void plan_calls(struct sim *s, size_t keys)
{
    uint64_t within = s->mode->is_burst ? 2 : CALLS_MS;

    for (unsigned i = 0; i < s->mode->calls; i++)
        plan(s, between(s, 0, within),
             (struct sim_event){.type = SIM_CALL,
                                .process = pick_process(s),
                                .key = draw(s, keys)});
    for (uint64_t i = between(s, 0, s->mode->writes); i > 0; i--)
        plan(s, between(s, 0, CALLS_MS),
             (struct sim_event){.type = SIM_COMMIT,
                                .process = pick_process(s),
                                .key = draw(s, keys)});
    plan(s, CYCLE_MS, (struct sim_event){.type = SIM_CYCLE});
}

static void plan_all_faults(struct sim *s)
{
    const struct sim_mode *m = s->mode;

    plan_faults(s, SIM_KILL, m->kills);
    plan_faults(s, SIM_STALL, m->stalls);
    plan_faults(s, SIM_DOWN, m->downs);
    plan_faults(s, SIM_FULL, m->fulls);
    plan_faults(s, SIM_EPOCH, m->epochs);
    plan_faults(s, SIM_FLUSH, m->flushes);
    plan_faults(s, SIM_JUMP, m->jumps);
    plan_faults(s, SIM_CORRUPT, m->corruptions);
    plan_faults(s, SIM_FOREIGN, m->foreigners);
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
    s->twin.now_ms = START_MS;
    s->lease.lease_ms =
        mode->fixed_lease_ms > 0 ? mode->fixed_lease_ms : between(s, 200, 600);
    s->lease.grace_ms = between(s, 20, 100);
    s->policy.lease_ms = s->lease.lease_ms;
    s->policy.load_timeout_ms = s->lease.lease_ms * between(s, 2, 5);
    s->policy.load_when_down = chance(s, 50);
    s->lease.record_ms = s->policy.load_timeout_ms + s->lease.lease_ms;
    s->ttl_ms = between(s, mode->ttl_ms / 10, mode->ttl_ms);
    /* a marker that is gone before the slowest poll makes the next loader */
    s->failure_ttl_ms = mode->is_burst ? BURST_FAILURE_MS : between(s, 20, 200);
    for (size_t i = 0; i < SIM_KEYS; i++)
        s->row[i] = s->floor[i] = 1;
    for (processes = between(s, 2, 5); processes > 0; processes--)
        begin_process(s, mode->is_prompt || chance(s, 70));
}

/* Events of a process that is stalled wait for it. */
static bool is_put_off(struct sim *s, const struct sim_event *e)
{
    uint64_t until = s->process[e->process].stalled_until_ms;

    if (e->type != SIM_CALL && e->type != SIM_REPLY && e->type != SIM_TIMER &&
        e->type != SIM_PUSH && e->type != SIM_LOAD_END)
        return false;
    if (until <= s->now_ms)
        return false;
    plan(s, until - s->now_ms + between(s, 0, 1), *e);
    return true;
}

static void on_push(struct sim *s, const struct sim_event *e)
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
        on_reply(s, e->index);
    else if (e->type == SIM_LOAD_READ)
        r->version = s->row[r->call.key];
    else
        on_load_end(s, e->index);
    if (--r->pending == 0)
        r->is_used = false;
}

static void happen(struct sim *s, const struct sim_event *e)
{
    struct sim_flight *f;

    switch (e->type) {
    case SIM_CALL:
        on_call(s, e);
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
        f = find_flight(s, e);
        if (f != NULL && f->timer == e->timer)
            give(s, f, (struct shed_flight_event){.type = SHED_EV_TIMER});
        break;
    case SIM_PUSH:
        on_push(s, e);
        break;
    case SIM_FAULT:
        on_fault(s, e);
        break;
    case SIM_MEND:
        on_mend(s, e);
        break;
    case SIM_CYCLE:
        twin_expire(&s->twin);
        if (s->event_count > 0)
            plan(s, CYCLE_MS, *e);
        break;
    default:
        on_request_event(s, e);
    }
}

void sim_run(struct sim *s, const struct sim_mode *mode, uint64_t seed)
{
    unsigned steps = 0;

    set_up(s, mode, seed);
    plan_calls(s, mode->is_holder_killed ? 1 : between(s, 1, SIM_KEYS));
    plan_all_faults(s);
    while (s->event_count > 0) {
        struct sim_event e = take_next(s);

        s->twin.now_ms += e.at_ms - s->now_ms;
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
