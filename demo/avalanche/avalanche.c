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
#include "report.h"
#include "verdict.h"

#define STRATEGIES 4

static const struct strategy *const all_strategies[STRATEGIES] = {
    &strategy_none, &strategy_setnx, &strategy_snowshed, &strategy_refresh};

/* Each literal is a line of the text. */
/* clang-format off */
static const char help[] =
    "usage: avalanche --redis URI --mysql URI [OPTION...]\n"
    "\n"
    "Forks backend processes that read items through a cache in Redis, makes the\n"
    "cache or the database fail in known ways, and shows what reaches the\n"
    "database.\n"
    "\n"
    "  --redis URI      unix:/path[?db=n] or\n"
    "                   redis://[user:password@]host[:port][/db]\n"
    "                   THAT DATABASE IS EMPTIED\n"
    "  --mysql URI      mysql://user[:password]@host[:port]/database or\n"
    "                   mysql://user@/database?socket=/path,\n"
    "                   with the tables of sql/schema.sql and sql/capacity.sql\n"
    "  --protect LIST   strategies (default: all)\n"
    "                   none, setnx, snowshed\n"
    "                   snowshed-refresh  rows are loaded again before they\n"
    "                                expire, and given out a minute longer if that\n"
    "                                fails; in breakdown and from redis-down on\n"
    "  --scenario LIST  (default: all)\n"
    "                   breakdown    one hot key expires by its ttl, again and again\n"
    "                   avalanche    all items expire at the same instant\n"
    "                   penetration  items that do not exist are asked for\n"
    "                   cold         Redis is emptied under load\n"
    "                   crash        the loading process is killed while it loads\n"
    "                   redis-down   Redis stops for a while\n"
    "                   db-down      the database stops for a while\n"
    "                   slow-db      queries take ten times as long for a while\n"
    "                   restart      Redis is killed, and started again, empty\n"
    "  --processes N    backend processes (default 4)\n"
    "  --threads N      threads in each process (default 50)\n"
    "  --load-ms N      how long a query takes, in ms (default 20)\n"
    "  --db-capacity N  queries that the database works on at a time; the others\n"
    "                   wait inside it (default 16; 0: no limit)\n"
    "  --expiries N     how often the hot key expires in breakdown (default 100);\n"
    "                   with snowshed-refresh, how often it is refreshed\n"
    "  --keys N         number of items (default 10000, at most 100000)\n"
    "  --page N         items per call in avalanche (default 20)\n"
    "  --seconds N      length of penetration and of cold (default 3)\n"
    "  --crashes N      kills in crash, with snowshed (default 5); the other\n"
    "                   strategies get one, because there a lock has to expire,\n"
    "                   which takes ten seconds\n"
    "  --down-seconds N how long a server is stopped or slow (default 2)\n"
    "  --redis-pid N    the process of Redis, on this machine, for redis-down and\n"
    "                   restart, which are left out without it; demo/run sets it\n"
    "                   for the server that it starts\n"
    "  --db-pid N       the same for the database, for db-down\n"
    "  --max-loads N    loads at a time in a process with snowshed (default 4)\n"
    "  --zipf S         how unequally popular items are (default 0.99)\n"
    "  --seed N         of all random choices (default 1)\n"
    "  --json FILE      write all figures, and their course over time\n"
    "  --svg FILE       draw a picture of avalanche, or of the first scenario run\n"
    "  --help           this text\n"
    "\n"
    "Exit status: 0; 1 if a server failed by itself, or if snowshed broke a promise,\n"
    "which is then named after the tables: more queries than expiries of the hot\n"
    "key, more queries at once than its bound, a call that ended after its deadline,\n"
    "an out-of-date answer, a caller of snowshed-refresh that waited when the hot\n"
    "key was due, or an error; 2 for a wrong option. Errors that nothing can prevent\n"
    "are only shown: any in redis-down and restart, and in db-down and slow-db those\n"
    "without a stale row. What none and setnx do is only shown, too.\n";
/* clang-format on */

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

/* Run what was chosen; each scenario's table is printed when it ends. */
static size_t run_all(const struct choice *c, struct outcome *outcomes)
{
    size_t count = 0;

    report_setting(stdout, &c->options);
    for (size_t s = 0; s < SCENARIOS; s++) {
        size_t first = count;

        for (size_t w = 0; c->is_scenario[s] && w < STRATEGIES; w++) {
            if (!c->is_strategy[w] || !is_suited(s, all_strategies[w]))
                continue;
            show_progress(scenario_names[s], all_strategies[w]->name);
            scenario_run(&c->options, s, all_strategies[w], &outcomes[count++]);
        }
        if (isatty(STDERR_FILENO))
            (void)fprintf(stderr, "\r\033[K");
        if (count > first)
            report_scenario(stdout, &outcomes[first], count - first);
    }
    report_summary(stdout, outcomes, count);
    return count;
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
    struct outcome *outcomes =
        calloc(STRATEGIES * SCENARIOS, sizeof(*outcomes));
    FILE *json, *svg;
    size_t count;
    bool is_written, is_kept;

    if (outcomes == NULL || mysql_library_init(0, NULL, NULL) != 0)
        return EXIT_FAILURE;
    parse_options(&c, argc, argv);
    check_connections(&c);
    json = cli_open_output(&cli, "json", c.options.json);
    svg = cli_open_output(&cli, "svg", c.options.svg);
    (void)signal(SIGPIPE, SIG_IGN);
    count = run_all(&c, outcomes);
    is_written = json == NULL || report_json(json, &c.options, outcomes, count);
    if (svg != NULL)
        report_picture(svg, &c.options, outcomes, count);
    is_written &= cli_close_output(&cli, "json", json);
    is_written &= cli_close_output(&cli, "svg", svg);
    is_kept = verdict_print(stdout, &c.options, outcomes, count);
    free(outcomes);
    return is_written && is_kept ? EXIT_SUCCESS : EXIT_FAILURE;
}
