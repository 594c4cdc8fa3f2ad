/* The avalanche load test: its options, and the runs. */
#include <assert.h>
#include <mysql.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/cli.h"
#include "common/place.h"
#include "database.h"
#include "scenarios.h"

#define STRATEGIES 4

static const struct strategy *const all_strategies[STRATEGIES] = {
    &strategy_none, &strategy_setnx, &strategy_snowshed, &strategy_refresh};

static const char help[] =
    "usage: avalanche OPTION..., by the script demo/avalanche/avalanche, which "
    "has "
    "the\nhelp. It prints a line of JSON for each strategy in each scenario.\n";

struct choice {
    struct options options;
    const char *protect, *scenario;
    bool is_strategy[STRATEGIES], is_scenario[SCENARIOS];
};

#define CLI_OPTIONS struct choice
static const struct cli_option table[] = {
#include "avalanche.def"
};

static const struct cli cli = {.program = "avalanche",
                               .help = help,
                               .options = table,
                               .count = sizeof(table) / sizeof(*table)};

/* Whether a scenario says something about a strategy: rows of which none ever
 * expires need no refresh. */
static bool is_suited(size_t scenario, const struct strategy *strategy)
{
    return strategy != &strategy_refresh || scenario == BREAKDOWN ||
           scenario >= REDIS_DOWN;
}

/* The option with the process that a scenario has to stop; NULL: none, or it is
 * there. */
static const char *lacking(size_t scenario, const struct options *options)
{
    bool is_of_redis = scenario == REDIS_DOWN || scenario == RESTART;

    if (is_of_redis && options->redis_pid == 0)
        return "redis-pid";
    return scenario == DB_DOWN && options->db_pid == 0 ? "db-pid" : NULL;
}

/* Of all scenarios those are left out that would stop a server which is not
 * ours. */
static void check_processes(struct choice *c)
{
    bool are_all = true;

    for (size_t i = 0; i < SCENARIOS; i++)
        are_all = are_all && c->is_scenario[i];
    for (size_t i = 0; i < SCENARIOS; i++) {
        const char *lacks = lacking(i, &c->options);
        if (!c->is_scenario[i] || lacks == NULL)
            continue;
        if (!are_all)
            cli_refuse(&cli, lacks,
                       "a chosen scenario stops that server: give its pid");
        c->is_scenario[i] = false;
    }
}

static void parse_options(struct choice *c, int argc, char **argv)
{
    const char *strategy_names[STRATEGIES];
    struct shed_error err;

    cli_parse(&cli, c, argc, argv);
    assert(c->options.page <= PAGE_MAX);
    for (size_t i = 0; i < STRATEGIES; i++)
        strategy_names[i] = all_strategies[i]->name;
    cli_choose(&cli, "protect", c->protect, strategy_names, STRATEGIES,
               c->is_strategy);
    cli_choose(&cli, "scenario", c->scenario, scenario_names, SCENARIOS,
               c->is_scenario);
    check_processes(c);
    if (place_use(c->options.mysql_uri, &err) == SHED_EINVAL)
        cli_refuse(&cli, "mysql", err.reason);
}

/* The connections that a strategy needs: without snowshed each thread has its
 * own. A killed process can leave its connections open for a while. */
static uint64_t count_connections(const struct choice *c, size_t strategy)
{
    const struct options *o = &c->options;
    bool is_by_hand = all_strategies[strategy] == &strategy_none ||
                      all_strategies[strategy] == &strategy_setnx;
    uint64_t each = is_by_hand ? o->threads : o->max_loads;

    return (o->processes + 1) * each;
}

/* Whether this many more connections are possible. Those of a run that has just
 * ended may still be open, so wait for a moment. */
static bool has_room(struct database *db, uint64_t need)
{
    enum { LOOKS = 50, LOOK_US = 100000 };
    uint64_t most = database_connections_max(db);

    if (most <= need)
        return false;
    for (int i = 0; i < LOOKS; i++) {
        if (database_connections(db) + need <= most)
            return true;
        (void)usleep(LOOK_US);
    }
    return false;
}

/* Refuse a run for which the server does not have enough connections, before
 * anything starts. */
static void check_connections(const struct choice *c)
{
    char why[200];
    struct database *db = database_open(why, sizeof(why));

    for (size_t i = 0; db != NULL && i < STRATEGIES; i++) {
        uint64_t need = count_connections(c, i);
        if (!c->is_strategy[i] || has_room(db, need))
            continue;
        (void)snprintf(why, sizeof(why),
                       "'%s' can need %llu connections to the database, which "
                       "has no room for them: raise its max_connections, or "
                       "use fewer threads",
                       all_strategies[i]->name, (unsigned long long)need);
        cli_refuse(&cli, "threads", why);
    }
    database_close(db);
}

static void show_progress(const char *scenario, const char *strategy)
{
    (void)fprintf(stderr, isatty(STDERR_FILENO) ? "\r\033[K%s, %s" : "%s, %s\n",
                  scenario, strategy);
}

/* Run what was chosen. */
static bool run_all(const struct choice *c, struct outcome *outcome)
{
    bool is_written = true;

    for (size_t s = 0; s < SCENARIOS; s++) {
        for (size_t w = 0; c->is_scenario[s] && w < STRATEGIES; w++) {
            if (!c->is_strategy[w] || !is_suited(s, all_strategies[w]))
                continue;
            show_progress(scenario_names[s], all_strategies[w]->name);
            scenario_run(&c->options, s, all_strategies[w], outcome);
            if (isatty(STDERR_FILENO))
                (void)fprintf(stderr, "\r\033[K");
            is_written = outcome_write(stdout, outcome) && is_written;
        }
        (void)puts(""); /* the scenario has ended */
        (void)fflush(stdout);
    }
    return is_written;
}

int main(int argc, char **argv)
{
    struct choice c = {.options = {.processes = 4,
                                   .threads = 50,
                                   .load_ms = 20,
                                   .expiries = 100,
                                   .keys = 10000,
                                   .page = 20,
                                   .seconds = 3,
                                   .seed = 1,
                                   .max_loads = 4,
                                   .db_capacity = 16,
                                   .crashes = 5,
                                   .down_seconds = 2,
                                   .zipf = 0.99}};
    struct outcome *outcome = calloc(1, sizeof(*outcome));
    bool is_written;

    if (outcome == NULL || mysql_library_init(0, NULL, NULL) != 0)
        return EXIT_FAILURE;
    parse_options(&c, argc, argv);
    check_connections(&c);
    (void)signal(SIGPIPE, SIG_IGN);
    is_written = run_all(&c, outcome);
    free(outcome);
    return is_written ? EXIT_SUCCESS : EXIT_FAILURE;
}
