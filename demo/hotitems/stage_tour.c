/* A short run by itself, under traffic: the hottest item expires, its price
 * changes while it is loaded, the process that loads it is killed. All figures
 * are from the instances' samples. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stage_actions.h"

#define SAMPLES_MAX 8192 /* of a lane: ten minutes' */
#define READY_MS 20000   /* until all instances have clients and send samples */

enum phase { PHASE_QUIET, PHASE_EXPIRY, PHASE_PRICE, PHASE_KILL, PHASES };

/* Of each phase, its part of the tour in percent: of 15 s, the last one is
 * longer than the 5 s for which setnx waits for the lock of a process that
 * died. */
static const unsigned parts[PHASES] = {15, 20, 25, 40};

struct counts {
    uint64_t requests, queries, errors;
};

struct lane_tally {
    struct counts all, phase[PHASES];
    uint64_t most_waiting; /* in one process */
    uint64_t worst_p99_us[PHASES];
    uint64_t p50_us[SAMPLES_MAX];
    size_t samples;
};

struct tour {
    struct stage *stage;
    enum phase phase;
    struct lane_tally lane[STAGE_LANES];
    struct sample last[STAGE_LANES * STAGE_INSTANCES_MAX];
    struct price_state price[STAGE_LANES];
    uint64_t item;
};

/* ---------------------------------------------------------------- count */

/* Since the last sample; an instance that was started again counts from 0. */
static uint64_t grown(uint64_t now, uint64_t before)
{
    return now >= before ? now - before : now;
}

static void add(struct counts *to, const struct sample *now,
                const struct sample *before)
{
    bool is_new = now->requests < before->requests;

    to->requests += is_new ? now->requests : now->requests - before->requests;
    to->queries += is_new ? now->queries : grown(now->queries, before->queries);
    to->errors += is_new ? now->errors : grown(now->errors, before->errors);
}

static void take_sample(struct tour *t, struct lane_tally *lane,
                        const struct sample *now, struct sample *before)
{
    add(&lane->all, now, before);
    add(&lane->phase[t->phase], now, before);
    if (now->most_waiting > lane->most_waiting)
        lane->most_waiting = now->most_waiting;
    if (now->p99_us > lane->worst_p99_us[t->phase])
        lane->worst_p99_us[t->phase] = now->p99_us;
    if (lane->samples < SAMPLES_MAX && now->requests > 0)
        lane->p50_us[lane->samples++] = now->p50_us;
    *before = *now;
}

static void take_samples_locked(struct tour *t)
{
    for (size_t i = 0; i < t->stage->instances; i++) {
        const struct instance *it = &t->stage->instance[i];
        if (it->sample.serial != t->last[i].serial)
            take_sample(t, &t->lane[it->lane], &it->sample, &t->last[i]);
    }
}

/* Returns false when the stage ends. */
static bool watch(struct tour *t, uint64_t for_ms)
{
    uint64_t until_ms = http_now_ms() + for_ms;
    bool is_ending;

    stage_lock(t->stage);
    while (!t->stage->is_ending && stage_wait_locked(t->stage, until_ms))
        take_samples_locked(t);
    is_ending = t->stage->is_ending;
    stage_unlock(t->stage);
    return !is_ending;
}

static bool have_all_reported_locked(const struct stage *stage,
                                     uint64_t since_ms)
{
    for (size_t i = 0; i < stage->instances; i++) {
        const struct instance *it = &stage->instance[i];
        if (it->state == INSTANCE_UP && it->sample.time_ms < since_ms)
            return false;
    }
    return true;
}

/* What happened before this call is counted when it returns: the sample that
 * tells of it may still be to come. Returns false when the stage ends. */
static bool catch_up(struct tour *t)
{
    struct stage *stage = t->stage;
    uint64_t until_ms = http_now_ms() + READY_MS, since_ms = hub_time_ms();
    bool is_ending;

    stage_lock(stage);
    while (!have_all_reported_locked(stage, since_ms) && !stage->is_ending &&
           stage_wait_locked(stage, until_ms))
        take_samples_locked(t);
    is_ending = stage->is_ending;
    stage_unlock(stage);
    return !is_ending;
}

/* ----------------------------------------------------------------- tour */

static bool are_all_asked_locked(const struct stage *stage)
{
    for (size_t i = 0; i < stage->instances; i++)
        if (stage->instance[i].sample.hots == 0)
            return false;
    return true;
}

/* Counting begins when every instance has clients. */
static bool wait_until_ready(struct tour *t)
{
    uint64_t until_ms = http_now_ms() + READY_MS;
    bool is_ready;

    stage_lock(t->stage);
    while (!(is_ready = are_all_asked_locked(t->stage)) &&
           !t->stage->is_ending && stage_wait_locked(t->stage, until_ms))
        ;
    for (size_t i = 0; i < t->stage->instances; i++)
        t->last[i] = t->stage->instance[i].sample;
    stage_unlock(t->stage);
    return is_ready;
}

/* An action, and what follows from it. */
static bool show(struct tour *t, enum phase phase, const char *action)
{
    struct action_result result = {0};

    t->phase = phase;
    if (action != NULL) {
        actions_run(t->stage, action, &result);
        if (result.status != 200) {
            if (!stage_is_ending(t->stage))
                (void)fprintf(stderr, "hotitems-stage: %s: %s\n", action,
                              result.text);
            return false;
        }
    }
    return watch(t, t->stage->options.tour_s * parts[phase] * 10) &&
           catch_up(t);
}

static bool perform(struct tour *t)
{
    if (!wait_until_ready(t)) {
        if (!stage_is_ending(t->stage))
            (void)fprintf(stderr, "hotitems-stage: no samples from the "
                                  "instances: are there clients?\n");
        return false;
    }
    if (!show(t, PHASE_QUIET, NULL))
        return false;
    t->item = actions_hottest(t->stage);
    if (!show(t, PHASE_EXPIRY, "expire-hottest") ||
        !show(t, PHASE_PRICE, "change-price"))
        return false;
    stage_lock(t->stage);
    memcpy(t->price, t->stage->actions->price, sizeof(t->price));
    stage_unlock(t->stage);
    return show(t, PHASE_KILL, "kill-loader");
}

/* ---------------------------------------------------------------- table */

static int compare(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

/* A figure of a lane; the phase matters to some. */
typedef double figure(struct lane_tally *lane, enum phase phase);

static double median_ms(struct lane_tally *lane, enum phase phase)
{
    (void)phase;
    qsort(lane->p50_us, lane->samples, sizeof(lane->p50_us[0]), compare);
    return lane->samples > 0 ? (double)lane->p50_us[lane->samples / 2] / 1000
                             : 0;
}

static double worst_p99_ms(struct lane_tally *lane, enum phase phase)
{
    return (double)lane->worst_p99_us[phase] / 1000;
}

static double all_requests(struct lane_tally *lane, enum phase phase)
{
    (void)phase;
    return (double)lane->all.requests;
}

static double all_queries(struct lane_tally *lane, enum phase phase)
{
    (void)phase;
    return (double)lane->all.queries;
}

static double all_errors(struct lane_tally *lane, enum phase phase)
{
    (void)phase;
    return (double)lane->all.errors;
}

static double most_waiting(struct lane_tally *lane, enum phase phase)
{
    (void)phase;
    return (double)lane->most_waiting;
}

static double queries(struct lane_tally *lane, enum phase phase)
{
    return (double)lane->phase[phase].queries;
}

static double errors(struct lane_tally *lane, enum phase phase)
{
    return (double)lane->phase[phase].errors;
}

/* digits: after the point. */
static void print_row(struct tour *t, const char *name, figure *of,
                      enum phase phase, int digits)
{
    (void)printf("  %-30s", name);
    for (int i = 0; i < STAGE_LANES; i++)
        (void)printf(" %11.*f", digits, of(&t->lane[i], phase));
    (void)putchar('\n');
}

static void print_phase(struct tour *t, enum phase phase)
{
    print_row(t, "  database queries", queries, phase, 0);
    print_row(t, "  p99 ms", worst_p99_ms, phase, 2);
    print_row(t, "  errors", errors, phase, 0);
}

static void print_price(struct tour *t)
{
    char text[32];

    (void)printf("  %-30s", "  old price shown for ms");
    for (int i = 0; i < STAGE_LANES; i++) {
        (void)snprintf(text, sizeof(text), "%s%" PRIu64,
                       t->price[i].showing > 0 ? "> " : "", t->price[i].old_ms);
        (void)printf(" %11s", text);
    }
    (void)putchar('\n');
}

static void print_totals(struct tour *t)
{
    print_row(t, "requests", all_requests, PHASE_QUIET, 0);
    print_row(t, "database queries", all_queries, PHASE_QUIET, 0);
    print_row(t, "most requests at once", most_waiting, PHASE_QUIET, 0);
    print_row(t, "p50 ms", median_ms, PHASE_QUIET, 2);
    print_row(t, "p99 ms before the trouble", worst_p99_ms, PHASE_QUIET, 2);
    print_row(t, "errors", all_errors, PHASE_QUIET, 0);
}

/* Each literal is a line of the text. */
/* clang-format off */
static const char words[] =
    "\n"
    "none: on a miss, each caller asks the database. setnx: one takes a SETNX lock\n"
    "and asks, the others look again every 10 ms. snowshed: this library.\n"
    "database queries: SELECTs for items that the database has answered, one for a\n"
    "load of many items. p50, p99: half, and 99 %, of the answers took no longer; p50\n"
    "is the median second, p99 the worst second. errors: requests that failed with\n"
    "5xx, 504 above all, which have no latency. most requests at once: that one\n"
    "process had not answered. old price: from the answer to the change until the\n"
    "last answer with the old one; with '>' it was still shown when the next trouble\n"
    "began, and would be until the entry expires. The item is loaded while its price\n"
    "changes, so what was read before is stored after, unless that is refused.\n";
/* clang-format on */

static void print_table(struct tour *t)
{
    const struct stage_options *o = &t->stage->options;

    (void)printf("%" PRIu64 " clients for each lane of %" PRIu64
                 " processes; a query takes %" PRIu64 " ms, %" PRIu64
                 " at a time\n\n",
                 o->clients, o->instances, o->db_cost_ms, o->db_slots);
    (void)printf("%-32s %11s %11s %11s\n", "hotitems", "none", "setnx",
                 "snowshed");
    print_totals(t);
    (void)puts("  the hottest item expires");
    print_phase(t, PHASE_EXPIRY);
    (void)puts("  its price changes in a load");
    print_phase(t, PHASE_PRICE);
    print_price(t);
    (void)puts("  its loading process is killed");
    print_phase(t, PHASE_KILL);
    (void)fputs(words, stdout);
    (void)fflush(stdout);
}

/* --------------------------------------------------------------- thread */

static void *run_tour(void *user)
{
    struct stage *stage = user;
    struct tour *t = calloc(1, sizeof(*t));

    if (t != NULL) {
        t->stage = stage;
        stage->is_toured = perform(t);
        if (stage->is_toured)
            print_table(t);
    }
    free(t);
    stage_lock(stage);
    stage->is_ending = true;
    stage_unlock(stage);
    stage_wake(stage);
    return NULL;
}

bool tour_start(struct stage *stage)
{
    stage->has_guide =
        pthread_create(&stage->guide, NULL, run_tour, stage) == 0;
    return stage->has_guide;
}

bool tour_stop(struct stage *stage)
{
    if (!stage->has_guide)
        return true;
    (void)pthread_join(stage->guide, NULL);
    stage->has_guide = false;
    return stage->is_toured;
}
