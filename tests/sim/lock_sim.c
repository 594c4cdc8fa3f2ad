/* The world of the simulated locks. Its one invariant: all that happens is an
 * event, and all chance comes from the seed. */
#include "sim/lock_sim.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SERVER_MS UINT64_C(1700000000000) /* the servers' clock */
#define CLOCK_MS UINT64_C(5000000)        /* a process's clock */
#define CALLS_MS 300                      /* calls begin before this time */
#define FAULTS_MS 350                     /* faults begin before this time */
#define SETTLE_MS 400         /* faults and their effects have ended by then */
#define SERVERS_APART_MS 5000 /* the clocks of servers differ by less */
#define LOOK_MS 30 /* how often to look at holds that are rarely renewed */
#define STEPS_MAX 10000

void sim_trace(const struct sim *s, const char *what, unsigned process,
               size_t server, uint64_t number)
{
    if (s->is_tracing)
        fprintf(stderr,
                "%6" PRIu64 " %-12s process %u server %zu %" PRIu64 "\n",
                s->now_ms, what, process, server, number);
}

/* ----------------------------------------------------------------- clocks */

uint64_t sim_local_ms(const struct sim *s, unsigned p)
{
    const struct sim_process *process = &s->process[p];

    return CLOCK_MS + process->offset_ms +
           s->now_ms * (uint64_t)(1000 + process->drift_pm) / 1000;
}

/* No two commands are executed in the same microsecond. */
void sim_tick(struct sim *s, unsigned i)
{
    struct sim_server *server = &s->server[i];
    uint64_t now_us =
        (uint64_t)((int64_t)(SERVER_MS + s->now_ms) + server->jump_ms) * 1000;
    uint64_t last_us = server->model.now_us;

    if (last_us >= now_us && last_us < now_us + 1000)
        server->model.now_us = last_us + 1;
    else
        server->model.now_us = now_us;
}

/* ----------------------------------------------------------------- events */

static void on_down(struct sim *s, const struct sim_event *e)
{
    sim_on_epoch(s, e->process, e->server);
}

static void on_look(struct sim *s, const struct sim_event *e)
{
    (void)e;
    sim_check_holds(s);
}

static const struct {
    void (*happen)(struct sim *sim, const struct sim_event *event);
    bool is_process_s;
} types[] = {[SIM_CALL] = {sim_on_call, true},
             [SIM_RELEASE] = {sim_on_release, true},
             [SIM_EXTEND] = {sim_on_extend, true},
             [SIM_CANCEL] = {sim_on_cancel, true},
             [SIM_POST] = {sim_on_post, true},
             [SIM_TIMER] = {sim_on_timer, true},
             [SIM_EXECUTE] = {sim_on_execute, false},
             [SIM_REPLY] = {sim_on_reply, true},
             [SIM_BREAK] = {sim_on_break, false},
             [SIM_PUSH] = {sim_on_push, true},
             [SIM_UP] = {sim_on_up, true},
             [SIM_DOWN] = {on_down, true},
             [SIM_EXPIRE_KEYS] = {sim_on_expire, false},
             [SIM_FAULT] = {sim_on_fault, false},
             [SIM_START] = {sim_on_start, false},
             [SIM_CLOSE] = {sim_on_close, true},
             [SIM_LOOK] = {on_look, false}};

/* Events of a stopped process or a frozen server wait. */
static bool is_put_off(struct sim *s, const struct sim_event *e)
{
    uint64_t until_ms = 0;

    if (types[e->type].is_process_s)
        until_ms = s->process[e->process].stalled_until_ms;
    if (e->type == SIM_EXECUTE || e->type == SIM_UP)
        if (s->server[e->server].frozen_until_ms > until_ms)
            until_ms = s->server[e->server].frozen_until_ms;
    if (until_ms <= s->now_ms)
        return false;
    sim_plan(s, until_ms - s->now_ms, *e);
    if (e->type == SIM_EXECUTE)
        s->event[s->event_count - 1].order = sim_draw(s, s->event_order);
    return true;
}

/* --------------------------------------------------------------- schedule */

static void plan_faults(struct sim *s, enum sim_fault fault, unsigned most)
{
    uint64_t count = sim_between(s, 0, most);

    while (count-- > 0)
        sim_plan(s, sim_between(s, 1, FAULTS_MS),
                 (struct sim_event){
                     .type = SIM_FAULT,
                     .fault = fault,
                     .process = (unsigned)sim_draw(s, s->process_count),
                     .server = (unsigned)sim_draw(s, s->server_count)});
}

static void plan_calls(struct sim *s)
{
    for (unsigned i = 0; i < s->mode->calls; i++) {
        unsigned handle = (unsigned)sim_draw(s, s->handle_count);
        sim_plan(s, sim_between(s, 1, s->mode->is_crowd ? 20 : CALLS_MS),
                 (struct sim_event){.type = SIM_CALL,
                                    .process = s->handle[handle].process,
                                    .index = handle});
    }
    for (uint64_t i = sim_between(s, 0, s->mode->closes); i > 0; i--) {
        unsigned handle = (unsigned)sim_draw(s, s->handle_count);
        sim_plan(s, sim_between(s, 50, FAULTS_MS),
                 (struct sim_event){.type = SIM_CLOSE,
                                    .process = s->handle[handle].process,
                                    .index = handle});
    }
    for (uint64_t ms = LOOK_MS;
         s->mode->lease_ms > 0 && ms < FAULTS_MS + SETTLE_MS; ms += LOOK_MS)
        sim_plan(s, ms, (struct sim_event){.type = SIM_LOOK});
    sim_plan(s, s->faults_end_ms - s->now_ms + 3 * s->options.lease_ms,
             (struct sim_event){.type = SIM_LOOK});
}

static void plan_all_faults(struct sim *s)
{
    const struct sim_mode *m = s->mode;

    if (m->outage_ms > 0)
        sim_plan(s, 5,
                 (struct sim_event){.type = SIM_FAULT, .fault = SIM_OUTAGE});
    plan_faults(s, SIM_CUT, m->cuts);
    plan_faults(s, SIM_KILL, m->kills);
    plan_faults(s, SIM_STALL, m->stalls);
    plan_faults(s, SIM_RESTART, m->restarts);
    plan_faults(s, SIM_WIPE, m->wipes);
    plan_faults(s, SIM_FREEZE, m->freezes);
    plan_faults(s, SIM_FLUSH, m->flushes);
    plan_faults(s, SIM_JUMP, m->jumps);
}

static void choose_algorithm(struct sim *s)
{
    static const enum shed_lock_algorithm algorithms[] = {
        SHED_LOCK_SETNX, SHED_LOCK_EXPIRE, SHED_LOCK_TIMESTAMP,
        SHED_LOCK_LEASE, SHED_LOCK_LEASE,  SHED_LOCK_LEASE};
    struct shed_lock_options o = SHED_LOCK_OPTIONS_INIT;

    do
        s->kind = (enum sim_algorithm)sim_draw(s, SIM_ALGORITHMS);
    while ((s->mode->algorithms >> s->kind & 1) == 0);
    o.algorithm = algorithms[s->kind];
    o.fair = s->kind == SIM_FAIR;
    o.lease_ms =
        s->mode->lease_ms > 0 ? s->mode->lease_ms : sim_between(s, 100, 300);
    if (!s->mode->is_calm && !s->mode->is_prompt) {
        if (!sim_chance(s, 80))
            o.watchdog_ms = 0;
        else if (sim_chance(s, 20))
            o.watchdog_ms = sim_between(s, 50, 300);
    }
    /* A process whose session is down at two looks counts as dead, and here
     * commands time out before a suspicion ends. */
    o.death_grace_ms =
        s->mode->freezes > 0 ||
                (s->mode->stalls > 0 &&
                 s->mode->cuts + s->mode->restarts + s->mode->lost_pct > 0)
            ? 0
            : sim_between(s, 120, 200);
    s->is_watched = sim_chance(s, 60);
    s->options = o;
    s->algorithm = shed_algorithm_of(&s->options);
    s->server_count =
        s->kind == SIM_QUORUM ? (sim_chance(s, 60) ? SIM_SERVERS : 3) : 1;
}

/* If servers lose their data, their clocks keep the numbers growing, provided
 * that they differ by less than a lease. */
static void start_servers(struct sim *s)
{
    uint64_t apart_ms =
        s->mode->wipes > 0 ? s->options.lease_ms / 2 : SERVERS_APART_MS;

    for (unsigned i = 0; i < s->server_count; i++) {
        s->server[i].runs = i + 1;
        memset(s->server[i].model.run, 'a' + (int)i, SHED_RUN_BYTES);
        s->server[i].jump_ms = (int64_t)sim_draw(s, apart_ms);
        sim_tick(s, i);
    }
}

static void start_processes(struct sim *s)
{
    unsigned count = (unsigned)sim_between(s, s->mode->is_crowd ? 2 : 1, 4);

    if (s->mode->processes > 0)
        count = s->mode->processes;
    for (s->process_count = 0; s->process_count < count; s->process_count++) {
        unsigned p = s->process_count;
        struct sim_process *process = &s->process[p];
        process->is_alive = true;
        process->has_pushes = !sim_chance(s, s->mode->no_push_pct);
        process->is_settled = !process->has_pushes;
        process->offset_ms = sim_draw(s, 1000000);
        process->drift_pm =
            (int)(s->mode->drift_pm * sim_draw(s, 3)) - (int)s->mode->drift_pm;
        process->skew_ms = sim_draw(s, s->mode->skew_ms + 1);
        for (unsigned i = 0; i < s->server_count; i++)
            sim_plan(
                s, s->mode->is_calm ? 0 : sim_between(s, 0, 3),
                (struct sim_event){.type = SIM_UP, .process = p, .server = i});
        sim_open_handle(s, p);
        if (sim_chance(s, 50) && s->handle_count + count - p < SIM_HANDLES)
            sim_open_handle(s, p);
    }
}

static void set_up(struct sim *s, const struct sim_mode *mode, uint64_t seed)
{
    memset(s, 0, offsetof(struct sim, handle));
    for (size_t i = 0; i < SIM_HANDLES; i++)
        s->handle[i].life = SIM_UNUSED;
    for (size_t i = 0; i < SIM_REQUESTS; i++)
        s->request[i].is_used = false;
    s->mode = mode;
    s->seed = s->random = seed;
    (void)sim_draw(s, 0);
    s->now_ms = 10000; /* every server is older than a lease */
    s->faults_end_ms = s->now_ms + FAULTS_MS + SETTLE_MS;
    s->calls_end_ms = s->now_ms + CALLS_MS;
    s->is_tracing = getenv("SHED_SIM_TRACE") != NULL;
    choose_algorithm(s);
    start_servers(s);
    start_processes(s);
    sim_trace(s, "algorithm", s->process_count, s->server_count, s->kind);
    s->has_twins = s->server_count > 1 && sim_chance(s, mode->twins_pct);
    s->twins_ms = s->now_ms + sim_draw(s, 100);
    s->refusal = (struct shed_error){.code = SHED_EINVAL,
                                     .reason = "two servers are one"};
}

void sim_run(struct sim *s, const struct sim_mode *mode, uint64_t seed)
{
    unsigned steps = 0;

    set_up(s, mode, seed);
    plan_calls(s);
    plan_all_faults(s);
    while (s->event_count > 0) {
        struct sim_event e = sim_take_next(s);

        s->now_ms = e.at_ms;
        if (++steps > STEPS_MAX)
            sim_fail(s, "it does not come to rest");
        if (is_put_off(s, &e))
            continue;
        types[e.type].happen(s, &e);
        sim_check_world(s);
    }
    sim_check_end(s);
}
