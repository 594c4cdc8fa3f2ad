/* What every scenario needs: a showing with its seats and buyers, processes
 * that serve them, and the proof at the end. */
#ifndef DEMO_SEATS_RUNNER_H
#define DEMO_SEATS_RUNNER_H

#include "common/fleet.h"
#include "ledger.h"
#include "strategies.h"

struct options {
    const char *redis_uri, *mysql_uri, *json;
    uint64_t hold_ms, seats, buyers, processes, threads, kills, seed;
};

/* The result of a scenario. */
struct outcome {
    const char *name, *title, *expected, *verdict;
    char happened[200]; /* longer than first_error */
    bool is_good;       /* true also for a scenario without protection */
    uint64_t showing;
    struct proof proof;
    uint64_t told[ANSWERS];
    uint64_t kills, killed_holding, refused, lost, errors;
    double seconds;
    char first_error[160];
};

/* At most this many groups of processes are started separately. */
#define TRIAL_FLEETS_MAX 8

/* The buyers that a fleet serves. */
struct group {
    struct showing *showing;
    uint64_t first, count;
};

struct trial {
    const struct options *options;
    struct showing *showing;
    struct outcome *out;
    struct fleet fleet[TRIAL_FLEETS_MAX];
    struct group group[TRIAL_FLEETS_MAX];
    size_t fleets;
    uint64_t random;
    uint64_t since_us; /* for a scenario: the beginning of its measurement */
};

/* How a scenario runs. The first buyer is number 0 here. */
struct scenario {
    const char *name, *title, *expected;
    bool is_whole_hall; /* all seats and buyers of the options; false: one seat
                         */
    bool is_protected;
    uint64_t buyers; /* if it is not a whole hall */
    /* Run it. Returns false if something did not happen in time. */
    bool (*run)(struct trial *trial);
    /* Describe what happened. Returns whether it is as expected. What must be
     * true in every scenario is checked elsewhere. */
    bool (*check)(struct trial *trial);
};

struct runner;

/* Connect, and empty the tables. Exits on failure. */
struct runner *runner_create(const struct options *options);
void runner_destroy(struct runner *runner);

/* Run a scenario. Exits, with all children ended, when the database fails. */
void runner_run(struct runner *runner, const struct scenario *scenario,
                struct outcome *out);

/* -------------------------------------------------------- for a scenario */

/* A buyer's plan, with the usual values. */
struct plan *trial_plan(struct trial *trial, uint64_t buyer);

/* Start processes that serve count buyers from the first one on. */
struct fleet *trial_start(struct trial *trial, uint64_t first, uint64_t count,
                          const struct strategy *strategy, uint64_t processes,
                          uint64_t threads);

/* Start one process for one buyer, which is served with a hold. */
void trial_bring(struct trial *trial, uint64_t buyer);

/* The process that scene_bring has started for a buyer. */
pid_t trial_pid(const struct trial *trial, uint64_t buyer);

void trial_let_pass(struct trial *trial, uint64_t buyer, unsigned steps);
bool trial_await(struct trial *trial, uint64_t buyer, enum step step);
enum answer trial_answer(const struct trial *trial, uint64_t buyer);

/* Since when a buyer has held a seat; 0: it has not. */
uint64_t trial_held_us(const struct trial *trial, uint64_t buyer);

/* The time after which something that should take milliseconds or a few holds
 * has failed. */
uint64_t trial_patience_ms(const struct trial *trial);

#endif
