/* The frame of a scenario. The database decides, whatever the buyers' processes
 * say. */
#include "runner.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CARD_MS 20 /* how long the card service usually takes */
#define LIMIT_HOLDS                                                            \
    10 /* what it may take, in holds: a host that stalls is not to be late */
#define PATIENCE_MS 60000
#define PATIENCE_HOLDS (2ULL * LIMIT_HOLDS)

struct runner {
    const struct options *options;
    struct statements *sql;
    uint64_t showing, next_seat;
};

static void die(const char *why)
{
    (void)fprintf(stderr, "seats: %s\n", why);
    exit(EXIT_FAILURE); /* the children die with us */
}

struct runner *runner_create(const struct options *options)
{
    struct runner *runner = calloc(1, sizeof(*runner));
    char why[160] = "";

    if (runner == NULL)
        die("out of memory");
    runner->options = options;
    runner->sql = ledger_open(why, sizeof(why));
    if (runner->sql == NULL)
        die(why);
    if (ledger_clear(runner->sql) == STATEMENT_FAILED)
        die(statements_why(runner->sql));
    runner->next_seat = 1;
    return runner;
}

void runner_destroy(struct runner *runner)
{
    statements_close(runner->sql);
    free(runner);
}

/* --------------------------------------------------------------- beginning */

static void open_hall(struct runner *runner, const struct scenario *scenario,
                      struct trial *trial)
{
    const struct options *o = runner->options;
    struct showing *h =
        showing_create(scenario->is_whole_hall ? o->buyers : scenario->buyers);

    trial->showing = h;
    h->number = ++runner->showing;
    h->seed = o->seed;
    h->first_seat = runner->next_seat;
    h->seats = scenario->is_whole_hall ? o->seats : 1;
    runner->next_seat += h->seats;
    for (uint64_t i = 0; i < h->seats; i++)
        if (ledger_add_seat(runner->sql, h->first_seat + i, h->number) !=
            STATEMENT_OK)
            die(statements_why(runner->sql));
}

static void announce(const struct scenario *scenario)
{
    (void)fprintf(stderr, isatty(STDERR_FILENO) ? "\r\033[K%s ..." : "%s\n",
                  scenario->title);
}

/* ------------------------------------------------------------------ the end */

static void end_processes(struct trial *s)
{
    atomic_store(&s->showing->record.is_over, true);
    for (size_t i = 0; i < s->fleets; i++) {
        for (uint64_t p = 0; p < s->fleet[i].processes; p++)
            (void)kill(s->fleet[i].pids[p], SIGCONT);
        if (fleet_wait(&s->fleet[i]) > 0)
            record_error(&s->showing->record, "a process had to be killed");
    }
}

static void take_down(struct runner *runner, struct trial *s)
{
    struct outcome *o = s->out;
    struct showing *h = s->showing;

    if (ledger_prove(runner->sql, h, &o->proof) != STATEMENT_OK)
        die(statements_why(runner->sql));
    o->showing = h->number;
    o->seconds = (double)(demo_now_us() - h->record.start_us) / 1e6;
    /* all living buyers are at the exit now */
    o->killed_holding =
        showing_count_at(h, STEP_SEAT) + showing_count_at(h, STEP_CARD);
    o->refused = atomic_load(&h->refused);
    o->lost = atomic_load(&h->lost);
    o->errors = atomic_load(&h->record.errors);
    memcpy(o->first_error, h->record.first_error, sizeof(o->first_error));
    for (int answer = 0; answer < ANSWERS; answer++)
        o->told[answer] = showing_count(h, (enum answer)answer);
}

/* What must be true in every scenario with holds: according to the database,
 * every buyer who was charged has the seat, each seat was charged once, and so
 * on. */
static bool nobody_is_wronged(const struct proof *p)
{
    return p->in_vain == 0 && p->twice == 0 && p->unpaid == 0 &&
           p->misled == 0 && p->charges == p->sold;
}

static void pass_verdict(const struct scenario *scenario, struct trial *s,
                         bool has_come)
{
    struct outcome *o = s->out;
    bool is_expected = scenario->check(s);

    if (!has_come || o->errors > 0)
        (void)snprintf(o->happened, sizeof(o->happened), "stopped: %s",
                       o->errors > 0 ? o->first_error
                                     : "a buyer did not come in time");
    o->is_good = has_come && o->errors == 0 &&
                 (!scenario->is_protected ||
                  (is_expected && nobody_is_wronged(&o->proof)));
    if (!o->is_good)
        o->verdict = "FAILED";
    else if (scenario->is_protected)
        o->verdict = "ok";
    else
        o->verdict = is_expected ? "shown" : "not shown";
}

void runner_run(struct runner *runner, const struct scenario *scenario,
                struct outcome *out)
{
    struct trial trial = {.options = runner->options,
                          .out = out,
                          .random = runner->options->seed};
    bool has_come;

    *out = (struct outcome){.name = scenario->name,
                            .title = scenario->title,
                            .expected = scenario->expected};
    announce(scenario);
    open_hall(runner, scenario, &trial);
    has_come = scenario->run(&trial);
    end_processes(&trial);
    take_down(runner, &trial);
    pass_verdict(scenario, &trial, has_come);
    showing_destroy(trial.showing);
}

/* -------------------------------------------------------- for a scenario */

struct plan *trial_plan(struct trial *s, uint64_t buyer)
{
    uint64_t hold_ms = s->options->hold_ms;
    struct plan *plan = &s->showing->visit[buyer].plan;

    *plan = (struct plan){.seat = s->showing->first_seat,
                          .hold_ms = hold_ms,
                          .wait_ms = trial_patience_ms(s),
                          .card_ms = CARD_MS,
                          .limit_ms = LIMIT_HOLDS * hold_ms};
    return plan;
}

static size_t pick(void *context, uint64_t *random, uint64_t *ids)
{
    struct group *group = context;

    (void)random;
    return showing_claim(group->showing, group->first, group->count, ids) ? 1
                                                                          : 0;
}

struct fleet *trial_start(struct trial *s, uint64_t first, uint64_t count,
                          const struct strategy *strategy, uint64_t processes,
                          uint64_t threads)
{
    struct group *group = &s->group[s->fleets];
    struct fleet *fleet = &s->fleet[s->fleets++];

    *group = (struct group){s->showing, first, count};
    *fleet = (struct fleet){.strategy = strategy,
                            .settings = {.redis_uri = s->options->redis_uri,
                                         .record = &s->showing->record},
                            .processes = processes,
                            .threads = threads,
                            .pick = pick,
                            .context = group};
    fleet_start(fleet);
    return fleet;
}

void trial_bring(struct trial *s, uint64_t buyer)
{
    (void)trial_start(s, buyer, 1, &seats_held, 1, 1);
}

pid_t trial_pid(const struct trial *s, uint64_t buyer)
{
    size_t i = 0;

    while (s->group[i].first != buyer)
        i++;
    return s->fleet[i].pids[0];
}

void trial_let_pass(struct trial *s, uint64_t buyer, unsigned steps)
{
    showing_let_pass(&s->showing->visit[buyer], steps);
}

bool trial_await(struct trial *s, uint64_t buyer, enum step step)
{
    return showing_await(s->showing, &s->showing->visit[buyer], step,
                         trial_patience_ms(s));
}

enum answer trial_answer(const struct trial *s, uint64_t buyer)
{
    return (enum answer)atomic_load(&s->showing->visit[buyer].answer);
}

uint64_t trial_held_us(const struct trial *s, uint64_t buyer)
{
    return atomic_load(&s->showing->visit[buyer].held_us);
}

uint64_t trial_patience_ms(const struct trial *s)
{
    return PATIENCE_MS + PATIENCE_HOLDS * s->options->hold_ms;
}
