/* One strategy in one scenario of the avalanche load test. */
#include <assert.h>
#include <mysql.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/cli.h"
#include "database.h"
#include "runner.h"

static const char help[] =
    "usage: avalanche OPTION..., by the script demo/avalanche/avalanche, which "
    "has "
    "the\nhelp. It prints a line of JSON for one strategy in one scenario.\n";

struct choice {
    struct options options;
    const char *protect, *scenario;
};

#define CLI_OPTIONS struct choice
static const struct cli_option table[] = {
#include "avalanche.def"
};

static const struct cli cli = {.program = "avalanche",
                               .help = help,
                               .options = table,
                               .count = sizeof(table) / sizeof(*table)};

static const struct strategy *strategy_of(const struct choice *c)
{
    static const struct strategy *const all[] = {
        &strategy_none, &strategy_setnx, &strategy_snowshed, &strategy_refresh};

    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        if (c->protect != NULL && strcmp(c->protect, all[i]->name) == 0)
            return all[i];
    cli_refuse(&cli, "protect", "is missing");
}

static enum scenario scenario_of(const struct choice *c)
{
    for (enum scenario i = 0; i < SCENARIOS; i++)
        if (c->scenario != NULL && strcmp(c->scenario, scenario_names[i]) == 0)
            return i;
    cli_refuse(&cli, "scenario", "is missing");
}

/* The connections that a strategy needs: without snowshed each thread has its
 * own. A killed process can leave its connections open for a while. */
static uint64_t count_connections(const struct options *o,
                                  const struct strategy *strategy)
{
    bool is_by_hand = strategy == &strategy_none || strategy == &strategy_setnx;

    return (o->processes + 1) * (is_by_hand ? o->threads : o->max_loads);
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

/* Refuse a run for which the server does not have enough connections. */
static void check_connections(const struct options *options,
                              const struct strategy *strategy)
{
    char why[200];
    struct database *db = database_open(why, sizeof(why));
    uint64_t need = count_connections(options, strategy);

    if (db != NULL && !has_room(db, need)) {
        (void)snprintf(why, sizeof(why),
                       "'%s' can need %llu connections to the database, which "
                       "has no room for them: raise its max_connections, or "
                       "use fewer threads",
                       strategy->name, (unsigned long long)need);
        cli_refuse(&cli, "threads", why);
    }
    database_close(db);
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
    bool is_written;
    const struct strategy *strategy;
    struct shed_error err;

    if (mysql_library_init(0, NULL, NULL) != 0)
        return EXIT_FAILURE;
    cli_parse(&cli, &c, argc, argv);
    assert(c.options.page <= PAGE_MAX);
    strategy = strategy_of(&c);
    if (database_use(c.options.mysql_uri, &err) == SHED_EINVAL)
        cli_refuse(&cli, "mysql", err.reason);
    check_connections(&c.options, strategy);
    (void)signal(SIGPIPE, SIG_IGN);
    (void)fprintf(stderr, isatty(STDERR_FILENO) ? "\r\033[K%s, %s" : "%s, %s\n",
                  c.scenario, c.protect);
    is_written = scenario_run(&c.options, scenario_of(&c), strategy, stdout);
    if (isatty(STDERR_FILENO))
        (void)fprintf(stderr, "\r\033[K");
    return is_written ? EXIT_SUCCESS : EXIT_FAILURE;
}
