/* The frame of a scene. Whatever its buyers' processes say, the database has
 * the last word. */
#include "stage.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CARD_MS 20 /* what the card service takes, usually */
#define LIMIT_HOLDS                                                            \
    10 /* what it may take, in holds: a host that stalls is not to be late */
#define PATIENCE_MS 60000
#define PATIENCE_HOLDS (2ULL * LIMIT_HOLDS)

struct stage {
    const struct options *options;
    struct statements *sql;
    uint64_t showing, next_seat;
};

static void die(const char *why)
{
    (void)fprintf(stderr, "seats: %s\n", why);
    exit(EXIT_FAILURE); /* the children die with us */
}

struct stage *stage_create(const struct options *options)
{
    struct stage *stage = calloc(1, sizeof(*stage));
    char why[160] = "";

    if (stage == NULL)
        die("memory is out");
    stage->options = options;
    stage->sql = ledger_open(why, sizeof(why));
    if (stage->sql == NULL)
        die(why);
    if (ledger_clear(stage->sql) == STATEMENT_FAILED)
        die(statements_why(stage->sql));
    stage->next_seat = 1;
    return stage;
}

void stage_destroy(struct stage *stage)
{
    statements_close(stage->sql);
    free(stage);
}

/* --------------------------------------------------------------- beginning */

static void open_hall(struct stage *stage, const struct script *script,
                      struct scene *scene)
{
    const struct options *o = stage->options;
    struct hall *h = hall_create(script->is_hall ? o->buyers : script->buyers);

    scene->hall = h;
    h->showing = ++stage->showing;
    h->seed = o->seed;
    h->first_seat = stage->next_seat;
    h->seats = script->is_hall ? o->seats : 1;
    stage->next_seat += h->seats;
    for (uint64_t i = 0; i < h->seats; i++)
        if (ledger_add_seat(stage->sql, h->first_seat + i, h->showing) !=
            STATEMENT_OK)
            die(statements_why(stage->sql));
}

static void announce(const struct script *script)
{
    (void)fprintf(stderr, isatty(STDERR_FILENO) ? "\r\033[K%s ..." : "%s\n",
                  script->title);
}

/* ------------------------------------------------------------------ the end */

static void end_processes(struct scene *s)
{
    atomic_store(&s->hall->record.is_over, true);
    for (size_t i = 0; i < s->fleets; i++) {
        for (uint64_t p = 0; p < s->fleet[i].processes; p++)
            (void)kill(s->fleet[i].pids[p], SIGCONT);
        if (fleet_wait(&s->fleet[i]) > 0)
            record_error(&s->hall->record, "a process had to be killed");
    }
}

static void take_down(struct stage *stage, struct scene *s)
{
    struct outcome *o = s->out;
    struct hall *h = s->hall;

    if (ledger_prove(stage->sql, h, &o->proof) != STATEMENT_OK)
        die(statements_why(stage->sql));
    o->showing = h->showing;
    o->seconds = (double)(demo_now_us() - h->record.start_us) / 1e6;
    /* The living are at the exit by now. */
    o->killed_holding =
        hall_count_at(h, STATION_SEAT) + hall_count_at(h, STATION_CARD);
    o->refused = atomic_load(&h->refused);
    o->lost = atomic_load(&h->lost);
    o->errors = atomic_load(&h->record.errors);
    memcpy(o->first_error, h->record.first_error, sizeof(o->first_error));
    for (int answer = 0; answer < ANSWERS; answer++)
        o->told[answer] = hall_count(h, (enum answer)answer);
}

/* What holds wherever seats are held: the database says that whoever was
 * charged has that seat, that each seat was charged once, and so on. */
static bool nobody_is_wronged(const struct proof *p)
{
    return p->in_vain == 0 && p->twice == 0 && p->unpaid == 0 &&
           p->misled == 0 && p->charges == p->sold;
}

static void pass_verdict(const struct script *script, struct scene *s,
                         bool has_come)
{
    struct outcome *o = s->out;
    bool is_expected = script->judge(s);

    if (!has_come || o->errors > 0)
        (void)snprintf(o->happened, sizeof(o->happened), "stopped: %s",
                       o->errors > 0 ? o->first_error
                                     : "a buyer did not come in time");
    o->is_good = has_come && o->errors == 0 &&
                 (!script->is_protected ||
                  (is_expected && nobody_is_wronged(&o->proof)));
    if (!o->is_good)
        o->verdict = "FAILED";
    else if (script->is_protected)
        o->verdict = "ok";
    else
        o->verdict = is_expected ? "shown" : "not shown";
}

void stage_play(struct stage *stage, const struct script *script,
                struct outcome *out)
{
    struct scene scene = {
        .options = stage->options, .out = out, .random = stage->options->seed};
    bool has_come;

    *out = (struct outcome){.name = script->name,
                            .title = script->title,
                            .expected = script->expected};
    announce(script);
    open_hall(stage, script, &scene);
    has_come = script->act(&scene);
    end_processes(&scene);
    take_down(stage, &scene);
    pass_verdict(script, &scene, has_come);
    hall_destroy(scene.hall);
}

/* ------------------------------------------------------------ for a script */

struct plan *scene_plan(struct scene *s, uint64_t buyer)
{
    uint64_t hold_ms = s->options->hold_ms;
    struct plan *plan = &s->hall->visit[buyer].plan;

    *plan = (struct plan){.seat = s->hall->first_seat,
                          .hold_ms = hold_ms,
                          .wait_ms = scene_patience_ms(s),
                          .card_ms = CARD_MS,
                          .limit_ms = LIMIT_HOLDS * hold_ms};
    return plan;
}

static size_t pick(void *context, uint64_t *random, uint64_t *ids)
{
    struct party *party = context;

    (void)random;
    return hall_claim(party->hall, party->first, party->count, ids) ? 1 : 0;
}

struct fleet *scene_start(struct scene *s, uint64_t first, uint64_t count,
                          const struct strategy *strategy, uint64_t processes,
                          uint64_t threads)
{
    struct party *party = &s->party[s->fleets];
    struct fleet *fleet = &s->fleet[s->fleets++];

    *party = (struct party){s->hall, first, count};
    *fleet = (struct fleet){.strategy = strategy,
                            .settings = {.redis_uri = s->options->redis_uri,
                                         .record = &s->hall->record},
                            .processes = processes,
                            .threads = threads,
                            .pick = pick,
                            .context = party};
    fleet_start(fleet);
    return fleet;
}

void scene_bring(struct scene *s, uint64_t buyer)
{
    (void)scene_start(s, buyer, 1, &seats_held, 1, 1);
}

pid_t scene_pid(const struct scene *s, uint64_t buyer)
{
    size_t i = 0;

    while (s->party[i].first != buyer)
        i++;
    return s->fleet[i].pids[0];
}

void scene_let_pass(struct scene *s, uint64_t buyer, unsigned stations)
{
    hall_let_pass(&s->hall->visit[buyer], stations);
}

bool scene_await(struct scene *s, uint64_t buyer, enum station station)
{
    return hall_await(s->hall, &s->hall->visit[buyer], station,
                      scene_patience_ms(s));
}

enum answer scene_answer(const struct scene *s, uint64_t buyer)
{
    return (enum answer)atomic_load(&s->hall->visit[buyer].answer);
}

uint64_t scene_held_us(const struct scene *s, uint64_t buyer)
{
    return atomic_load(&s->hall->visit[buyer].held_us);
}

uint64_t scene_patience_ms(const struct scene *s)
{
    return PATIENCE_MS + PATIENCE_HOLDS * s->options->hold_ms;
}
