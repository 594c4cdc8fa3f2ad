/*
 * The scenarios of one seat. Which buyer is first, and where it is stopped, is
 * decided by steps at which buyers wait for the runner, never by a sleep;
 * the only times are those of the hold.
 */
#include "scenarios.h"

#include <signal.h>
#include <stdio.h>

/* The first buyer, and the next one, who wants the same seat. */
#define FIRST 0
#define NEXT 1

/* The least length of a hold that must not end during a scenario. A seat that
 * is free again within half of it has not waited for its end. */
#define LONG_HOLD_MS 600000

/* A server's expiry is in whole milliseconds of its clock. */
#define CLOCK_GRAIN_US 1000

static uint64_t long_hold_ms(const struct trial *s)
{
    return s->options->hold_ms > LONG_HOLD_MS ? s->options->hold_ms
                                              : LONG_HOLD_MS;
}

/* The time between two events in ms; 0 if one of them has not happened. */
static double ms_since(uint64_t start_us, uint64_t end_us)
{
    return start_us > 0 && end_us > start_us
               ? (double)(end_us - start_us) / 1000
               : 0;
}

#define TELL(trial, ...)                                                       \
    (void)snprintf((trial)->out->happened, sizeof((trial)->out->happened),     \
                   __VA_ARGS__)

/* The usual end: the next buyer has the seat. */
static bool next_has_it(const struct trial *s)
{
    return trial_answer(s, NEXT) == ANSWER_BOUGHT && s->out->proof.sold == 1 &&
           s->out->proof.charges == 1;
}

/* Start the first buyer, let it hold the seat, and start the next one, who
 * waits for it. */
static bool have_one_wait(struct trial *s)
{
    trial_bring(s, FIRST);
    if (!trial_await(s, FIRST, STEP_SEAT))
        return false;
    trial_bring(s, NEXT);
    return trial_await(s, NEXT, STEP_DOOR);
}

/* ----------------------------------------------------------------- contest */

#define CONTENDERS 8 /* TRIAL_FLEETS_MAX */
#define TRY_ONCE 4   /* these buyers try once, */
#define IMPATIENT                                                              \
    6 /* those up to here wait for a while, the others to the end */

static bool await_all(struct trial *s, uint64_t count, enum step step)
{
    for (uint64_t i = 0; i < count; i++)
        if (!trial_await(s, i, step))
            return false;
    return true;
}

/* The card service does not answer before all buyers who do not wait have been
 * told. */
static bool run_contest(struct trial *s)
{
    for (uint64_t i = 0; i < CONTENDERS; i++) {
        struct plan *plan = trial_plan(s, i);
        plan->stops = AT(STEP_DOOR) | AT(STEP_CARD);
        if (i < IMPATIENT)
            plan->wait_ms = i < TRY_ONCE ? 0 : s->options->hold_ms / 4;
        trial_bring(s, i);
    }
    if (!await_all(s, CONTENDERS, STEP_DOOR))
        return false;
    for (uint64_t i = 0; i < CONTENDERS; i++)
        trial_let_pass(s, i, AT(STEP_DOOR));
    if (!await_all(s, IMPATIENT, STEP_CARD))
        return false;
    for (uint64_t i = 0; i < CONTENDERS; i++)
        trial_let_pass(s, i, AT(STEP_CARD));
    return await_all(s, CONTENDERS, STEP_EXIT);
}

static bool check_contest(struct trial *s)
{
    const uint64_t *told = s->out->told;
    bool was_impatient = false;

    for (uint64_t i = 0; i < IMPATIENT; i++)
        was_impatient |= trial_answer(s, i) == ANSWER_BOUGHT;
    TELL(s, "%llu bought it, %llu were told held, %llu told sold",
         (unsigned long long)told[ANSWER_BOUGHT],
         (unsigned long long)told[ANSWER_TAKEN],
         (unsigned long long)told[ANSWER_SOLD]);
    return told[ANSWER_BOUGHT] == 1 && s->out->proof.charges == 1 &&
           told[ANSWER_TAKEN] == (uint64_t)(IMPATIENT - was_impatient) &&
           told[ANSWER_SOLD] ==
               (uint64_t)(CONTENDERS - IMPATIENT - !was_impatient);
}

static const struct scenario contest = {.name = "contest",
                                        .title = "8 buyers, one seat",
                                        .expected = "one has it, all are told",
                                        .is_protected = true,
                                        .buyers = CONTENDERS,
                                        .run = run_contest,
                                        .check = check_contest};

/* ------------------------------------------------------ the buyer goes away */

static void plan_departure(struct trial *s, enum then then, uint64_t hold_ms)
{
    struct plan *plan = trial_plan(s, FIRST);

    plan->stops = AT(STEP_SEAT);
    plan->then = then;
    plan->hold_ms = hold_ms;
    plan = trial_plan(s, NEXT);
    plan->stops = AT(STEP_DOOR);
    plan->hold_ms = hold_ms;
}

static bool run_given_back(struct trial *s)
{
    plan_departure(s, THEN_GIVE_BACK, long_hold_ms(s));
    if (!have_one_wait(s))
        return false;
    trial_let_pass(s, NEXT, AT(STEP_DOOR));
    trial_let_pass(s, FIRST, AT(STEP_SEAT));
    return await_all(s, 2, STEP_EXIT);
}

static bool check_given_back(struct trial *s)
{
    TELL(s, "%s; the next %s it",
         trial_answer(s, FIRST) == ANSWER_LEFT ? "given back" : "lost",
         next_has_it(s) ? "bought" : "did not buy");
    return trial_answer(s, FIRST) == ANSWER_LEFT && next_has_it(s);
}

static const struct scenario given_back = {.name = "given back",
                                           .title = "the hold is given back",
                                           .expected = "the next has it",
                                           .is_protected = true,
                                           .buyers = 2,
                                           .run = run_given_back,
                                           .check = check_given_back};

static bool run_gone(struct trial *s, bool is_killed)
{
    plan_departure(s, THEN_END_PROCESS, long_hold_ms(s));
    if (!have_one_wait(s))
        return false;
    trial_let_pass(s, NEXT, AT(STEP_DOOR));
    s->since_us = demo_now_us();
    if (is_killed)
        (void)kill(trial_pid(s, FIRST), SIGKILL);
    else
        trial_let_pass(s, FIRST, AT(STEP_SEAT));
    return trial_await(s, NEXT, STEP_EXIT);
}

static bool run_ended(struct trial *s)
{
    return run_gone(s, false);
}

static bool run_killed(struct trial *s)
{
    return run_gone(s, true);
}

static bool check_gone(struct trial *s)
{
    uint64_t held_us = trial_held_us(s, NEXT);

    if (next_has_it(s))
        TELL(s, "back after %.0f ms of %llu; the next bought it",
             ms_since(s->since_us, held_us),
             (unsigned long long)long_hold_ms(s));
    else
        TELL(s, "the next buyer did not buy it");
    return next_has_it(s) &&
           ms_since(s->since_us, held_us) < (double)long_hold_ms(s) / 2;
}

static const struct scenario ended = {.name = "ended",
                                      .title = "the holder's process ends",
                                      .expected = "back long before its end",
                                      .is_protected = true,
                                      .buyers = 2,
                                      .run = run_ended,
                                      .check = check_gone};

static const struct scenario killed = {.name = "killed",
                                       .title = "the holder is killed",
                                       .expected = "back long before its end",
                                       .is_protected = true,
                                       .buyers = 2,
                                       .run = run_killed,
                                       .check = check_gone};

/* The buyer stays and does nothing until the next one has bought the seat. */
static bool run_run_out(struct trial *s)
{
    plan_departure(s, THEN_GIVE_BACK, s->options->hold_ms);
    s->since_us = demo_now_us();
    if (!have_one_wait(s))
        return false;
    trial_let_pass(s, NEXT, AT(STEP_DOOR));
    if (!trial_await(s, NEXT, STEP_EXIT))
        return false;
    trial_let_pass(s, FIRST, AT(STEP_SEAT));
    return trial_await(s, FIRST, STEP_EXIT);
}

static bool check_run_out(struct trial *s)
{
    uint64_t held_us = trial_held_us(s, NEXT), least_us = s->since_us;

    least_us += s->options->hold_ms * 1000 - CLOCK_GRAIN_US;
    TELL(s, "%s after %.0f ms of %llu; the next %s it",
         held_us > 0 ? "back" : "not back", ms_since(s->since_us, held_us),
         (unsigned long long)s->options->hold_ms,
         next_has_it(s) ? "bought" : "did not buy");
    return trial_answer(s, FIRST) == ANSWER_LOST && next_has_it(s) &&
           held_us >= least_us;
}

static const struct scenario run_out = {.name = "run out",
                                        .title = "the hold runs out",
                                        .expected =
                                            "back at its end, not before",
                                        .is_protected = true,
                                        .buyers = 2,
                                        .run = run_run_out,
                                        .check = check_run_out};

/* ----------------------------------------------------------- a long payment */

/* The payment takes twice the hold, and does not end before the other buyer,
 * who waits for longer than the hold, has given up. */
static bool run_long_payment(struct trial *s)
{
    uint64_t hold_ms = s->options->hold_ms;
    struct plan *plan = trial_plan(s, FIRST);

    plan->card_ms = 2 * hold_ms;
    plan->stops = AT(STEP_CARD);
    trial_plan(s, NEXT)->wait_ms = hold_ms + hold_ms / 4;
    trial_bring(s, FIRST);
    if (!trial_await(s, FIRST, STEP_CARD))
        return false;
    trial_bring(s, NEXT);
    if (!trial_await(s, NEXT, STEP_EXIT))
        return false;
    trial_let_pass(s, FIRST, AT(STEP_CARD));
    return trial_await(s, FIRST, STEP_EXIT);
}

static bool check_long_payment(struct trial *s)
{
    double paid_ms = ms_since(trial_held_us(s, FIRST),
                              atomic_load(&s->showing->visit[FIRST].told_us));
    bool has_it = trial_answer(s, FIRST) == ANSWER_BOUGHT;

    TELL(s, "%s %.0f ms into a hold of %llu; the other: %s",
         has_it ? "paid" : "not paid", paid_ms,
         (unsigned long long)s->options->hold_ms,
         trial_answer(s, NEXT) == ANSWER_TAKEN ? "held" : "not told held");
    return has_it && trial_answer(s, NEXT) == ANSWER_TAKEN &&
           s->out->proof.charges == 1 && s->out->lost == 0 &&
           paid_ms > (double)s->options->hold_ms;
}

static const struct scenario long_payment = {
    .name = "long payment",
    .title = "payment outlasts the hold",
    .expected = "the payer has it alone",
    .is_protected = true,
    .buyers = 2,
    .run = run_long_payment,
    .check = check_long_payment};

/* -------------------------------------------------------------- a long stop */

/* Stop the first buyer at a step until the next one holds the seat; then let
 * it continue and get its answer; then let the next one pay. */
static bool run_stopped(struct trial *s, enum step step)
{
    struct plan *plan = trial_plan(s, FIRST);

    plan->stops = AT(step);
    plan->limit_ms = plan->hold_ms;
    /* the renewed hold must expire, however long it takes to get there */
    if (step == STEP_CARD)
        plan->hold_ms = long_hold_ms(s);
    plan = trial_plan(s, NEXT);
    plan->stops = AT(STEP_SEAT);
    plan->hold_ms = long_hold_ms(s);
    trial_bring(s, FIRST);
    if (!trial_await(s, FIRST, step))
        return false;
    (void)kill(trial_pid(s, FIRST), SIGSTOP);
    trial_bring(s, NEXT);
    if (!trial_await(s, NEXT, STEP_SEAT))
        return false;
    trial_let_pass(s, FIRST, AT(step));
    (void)kill(trial_pid(s, FIRST), SIGCONT);
    if (!trial_await(s, FIRST, STEP_EXIT))
        return false;
    trial_let_pass(s, NEXT, AT(STEP_SEAT));
    return trial_await(s, NEXT, STEP_EXIT);
}

static bool run_stopped_choosing(struct trial *s)
{
    return run_stopped(s, STEP_SEAT);
}

static bool run_stopped_paying(struct trial *s)
{
    return run_stopped(s, STEP_CARD);
}

static bool check_stopped(struct trial *s, const char *by, uint64_t refused)
{
    bool is_refused =
        trial_answer(s, FIRST) == ANSWER_LOST && s->out->refused == refused;

    TELL(s, "%s %s; the next %s it",
         is_refused ? "refused by" : "not refused by", by,
         next_has_it(s) ? "bought" : "did not buy");
    return is_refused && next_has_it(s);
}

static bool check_stopped_choosing(struct trial *s)
{
    return check_stopped(s, "the renewal", 0);
}

static bool check_stopped_paying(struct trial *s)
{
    return check_stopped(s, "the guard", 1);
}

static const struct scenario stopped_choosing = {
    .name = "stopped choosing",
    .title = "stopped, then pays",
    .expected = "refused, not charged",
    .is_protected = true,
    .buyers = 2,
    .run = run_stopped_choosing,
    .check = check_stopped_choosing};

static const struct scenario stopped_paying = {.name = "stopped paying",
                                               .title = "stopped while paying",
                                               .expected =
                                                   "refused, not charged",
                                               .is_protected = true,
                                               .buyers = 2,
                                               .run = run_stopped_paying,
                                               .check = check_stopped_paying};

const struct scenario *const seats_scenarios[SCENARIOS] = {
    &contest,          &given_back,     &ended,
    &killed,           &run_out,        &long_payment,
    &stopped_choosing, &stopped_paying, &rush_without,
    &rush_with};
