/* The cinema: its options, and the order of the scenarios. */
#include <mysql.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/cli.h"
#include "common/place.h"
#include "report.h"
#include "scenarios.h"

/* Each literal is a line of the text. */
/* clang-format off */
static const char help[] =
    "usage: seats --redis URI --mysql URI [OPTION...]\n"
    "\n"
    "Sells the seats of a cinema. A seat is held for a time, under a lock in Redis,\n"
    "until the buyer pays for it, gives it back, or is too late. Seats and charges\n"
    "are in MySQL, where the fencing guard refuses a buyer that has lost its hold.\n"
    "Buyers are processes; some are killed, stopped, or too slow. At the end the\n"
    "database is asked who has which seat and who was charged.\n"
    "\n"
    "The first scenarios are about one seat. In the last two, many buyers want the\n"
    "seats of a hall, and processes that serve them are killed at random moments:\n"
    "first without holds, then with them.\n"
    "\n"
    "  --redis URI      unix:/path[?db=n] or\n"
    "                   redis://[user:password@]host[:port][/db]\n"
    "                   keys that begin with lock:{seat: are written there\n"
    "  --mysql URI      mysql://user[:password]@host[:port]/database or\n"
    "                   mysql://user@/database?socket=/path,\n"
    "                   with the tables of sql/seats.sql, WHICH ARE EMPTIED, and\n"
    "                   of sql/fence.sql\n"
    "  --hold MS        how long a seat is held (default 600000, ten minutes; at\n"
    "                   least 100). All scenarios together take about six times as\n"
    "                   long, and a few seconds\n"
    "  --seats N        seats in the hall (default 40)\n"
    "  --buyers N       buyers that want them (default 400)\n"
    "  --processes N    processes that serve them (default 8)\n"
    "  --threads N      threads in each process (default 4)\n"
    "  --kills N        processes killed with SIGKILL while the hall is sold\n"
    "                   (default 10); each is replaced, its buyers are gone\n"
    "  --seed N         of all random choices (default 1)\n"
    "  --json FILE      write the figures\n"
    "  --help           this text\n"
    "\n"
    "Exit status: 0 if every scenario went as expected and nobody was charged for a\n"
    "seat of another (the hall without holds is there to show that, and does not\n"
    "count); 1 if not, or if a server failed; 2 for a wrong option.\n";
/* clang-format on */

#define CLI_OPTIONS struct options
static const struct cli_option table[] = {
#include "seats.def"
};

static const struct cli cli = {.program = "seats",
                               .help = help,
                               .options = table,
                               .count = sizeof(table) / sizeof(*table)};

/* Returns whether all went as expected. */
static bool play_all(const struct options *options, struct outcome *outcomes)
{
    struct runner *runner = runner_create(options);
    bool is_good = true;

    for (size_t i = 0; i < SCENARIOS; i++) {
        runner_run(runner, seats_scenarios[i], &outcomes[i]);
        is_good &= outcomes[i].is_good;
    }
    if (isatty(STDERR_FILENO))
        (void)fprintf(stderr, "\r\033[K");
    runner_destroy(runner);
    return is_good;
}

/* Repeat the failed scenarios below the table. */
static void name_failures(const struct outcome *outcomes)
{
    for (size_t i = 0; i < SCENARIOS; i++)
        if (!outcomes[i].is_good)
            (void)fprintf(stderr, "seats: FAILED: %s: %s\n", outcomes[i].title,
                          outcomes[i].happened);
}

int main(int argc, char **argv)
{
    struct options options = {.hold_ms = 600000,
                              .seats = 40,
                              .buyers = 400,
                              .processes = 8,
                              .threads = 4,
                              .kills = 10,
                              .seed = 1};
    static struct outcome outcomes[SCENARIOS];
    struct shed_error err;
    bool is_good;
    FILE *json;

    cli_parse(&cli, &options, argc, argv);
    if (place_use(options.mysql_uri, &err) == SHED_EINVAL)
        cli_refuse(&cli, "mysql", err.reason);
    json = cli_open_output(&cli, "json", options.json);
    if (mysql_library_init(0, NULL, NULL) != 0)
        return EXIT_FAILURE;
    (void)signal(SIGPIPE, SIG_IGN);
    is_good = play_all(&options, outcomes);
    seats_table(stdout, &options, outcomes, SCENARIOS);
    name_failures(outcomes);
    if (json != NULL)
        is_good &= seats_json(json, &options, outcomes, SCENARIOS);
    is_good &= cli_close_output(&cli, "json", json);
    mysql_library_end();
    return is_good ? EXIT_SUCCESS : EXIT_FAILURE;
}
