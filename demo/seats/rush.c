/*
 * The scenarios of a whole hall: many buyers at once in several processes, some
 * of which are killed. Once without holds and once with holds, under the same
 * load.
 */
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "scenarios.h"

#define CHOOSE_MS 30   /* maximum */
#define CARD_MIN_MS 10 /* of the card service */
#define CARD_MAX_MS 40
#define WAIT_MS 1000         /* for a seat, if others hold all that are left */
#define KILL_SPREAD_US 30000 /* a kill hits any part of a purchase */
#define LOOK_MS 1
#define PROGRESS_US 100000

struct rush {
    struct trial *trial;
    struct fleet *fleet;
    uint64_t kills; /* that have been due so far */
    uint64_t shown_us;
};

static void plan_buyers(struct trial *s)
{
    for (uint64_t i = 0; i < s->showing->buyers; i++) {
        struct plan *plan = trial_plan(s, i);
        plan->seat = 0;
        plan->wait_ms = WAIT_MS;
        plan->choose_ms = fleet_random(&s->random) % (CHOOSE_MS + 1);
        plan->card_ms = CARD_MIN_MS + fleet_random(&s->random) %
                                          (CARD_MAX_MS - CARD_MIN_MS + 1);
    }
}

/* Kills are spread over the sale of the seats, whatever the speed of the
 * host. */
static bool is_kill_due(const struct rush *r)
{
    const struct options *o = r->trial->options;

    return r->kills < o->kills &&
           showing_count(r->trial->showing, ANSWER_BOUGHT) * o->kills >=
               r->kills * o->seats;
}

/* Kill a process. One that has ended by itself does not count. */
static void kill_one(struct rush *r)
{
    struct trial *s = r->trial;
    pid_t pid = r->fleet->pids[fleet_random(&s->random) % r->fleet->processes];
    int status = 0;

    (void)usleep((useconds_t)(fleet_random(&s->random) % KILL_SPREAD_US));
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, &status, 0);
    s->out->kills += WIFSIGNALED(status);
    r->kills++;
    fleet_replace(r->fleet, pid);
}

static void show(struct rush *r, uint64_t outside)
{
    uint64_t now_us = demo_now_us();

    if (!isatty(STDERR_FILENO) || now_us - r->shown_us < PROGRESS_US)
        return;
    r->shown_us = now_us;
    (void)fprintf(
        stderr, "\r\033[K%s: %llu of %llu buyers have come, %llu have a seat",
        r->trial->out->title,
        (unsigned long long)(r->trial->showing->buyers - outside),
        (unsigned long long)r->trial->showing->buyers,
        (unsigned long long)showing_count(r->trial->showing, ANSWER_BOUGHT));
}

/* Run until all buyers have come. Returns false if none comes for too long. */
static bool run(struct rush *r)
{
    struct trial *s = r->trial;
    uint64_t moved_us = demo_now_us(), outside = s->showing->buyers, now;

    while (outside > 0 && atomic_load(&s->showing->record.errors) == 0) {
        if (is_kill_due(r))
            kill_one(r);
        showing_sleep_ms(LOOK_MS);
        now = showing_count_at(s->showing, STEP_OUTSIDE);
        if (now != outside)
            moved_us = demo_now_us();
        else if (demo_now_us() - moved_us > trial_patience_ms(s) * 1000)
            return false;
        outside = now;
        show(r, outside);
    }
    return true;
}

static bool run_rush(struct trial *s, const struct strategy *strategy)
{
    struct rush r = {.trial = s};

    plan_buyers(s);
    r.fleet = trial_start(s, 0, s->showing->buyers, strategy,
                          s->options->processes, s->options->threads);
    return run(&r);
}

static bool run_without(struct trial *s)
{
    return run_rush(s, &seats_plain);
}

static bool run_with(struct trial *s)
{
    return run_rush(s, &seats_held);
}

static void tell(struct trial *s)
{
    const struct proof *p = &s->out->proof;

    (void)snprintf(s->out->happened, sizeof(s->out->happened),
                   "%llu of %llu sold, %llu charges, %llu in vain; %llu kills",
                   (unsigned long long)p->sold, (unsigned long long)p->seats,
                   (unsigned long long)p->charges,
                   (unsigned long long)p->in_vain,
                   (unsigned long long)s->out->kills);
}

static bool check_without(struct trial *s)
{
    tell(s);
    return s->out->proof.in_vain > 0;
}

/* Every buyer, except those whose process was killed, has a seat, or was told
 * that all are sold, which is then true. */
static bool check_with(struct trial *s)
{
    const uint64_t *told = s->out->told;
    const struct proof *p = &s->out->proof;

    tell(s);
    return told[ANSWER_TAKEN] == 0 && told[ANSWER_LOST] == 0 &&
           (told[ANSWER_SOLD] == 0 || p->sold == p->seats) &&
           (told[ANSWER_NONE] == 0 || s->out->kills > 0);
}

const struct scenario rush_without = {.name = "hall without",
                                      .title = "a hall without holds",
                                      .expected = "charges in vain",
                                      .is_whole_hall = true,
                                      .run = run_without,
                                      .check = check_without};

const struct scenario rush_with = {.name = "hall with",
                                   .title = "a hall with holds",
                                   .expected = "a charge for each sold seat",
                                   .is_whole_hall = true,
                                   .is_protected = true,
                                   .run = run_with,
                                   .check = check_with};
