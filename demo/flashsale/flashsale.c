/* The flash sale: its options, and which sales are held. */
#include <assert.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/cli.h"
#include "common/place.h"
#include "report.h"

#define STRATEGIES 3

static const struct strategy *const all_strategies[STRATEGIES] = {
    &flashsale_none, &flashsale_expire, &flashsale_snowshed};

/* Each literal is a line of the text. */
/* clang-format off */
static const char help[] =
    "usage: flashsale --redis URI --mysql URI [OPTION...]\n"
    "\n"
    "Sells a few pieces, one to a buyer, to many buyers that come all at once to\n"
    "several backend processes, and counts in the database how many were sold. The\n"
    "stock is in the database and in a cache in Redis. Processes are killed with\n"
    "SIGKILL at random moments and replaced; a buyer that was being served asks\n"
    "again.\n"
    "\n"
    "  --redis URI      unix:/path[?db=n] or\n"
    "                   redis://[user:password@]host[:port][/db]\n"
    "                   keys that begin with flashsale and lock:{flashsale are\n"
    "                   written and deleted there\n"
    "  --mysql URI      mysql://user[:password]@host[:port]/database or\n"
    "                   mysql://user@/database?socket=/path,\n"
    "                   with the tables of sql/flashsale.sql, WHICH ARE EMPTIED,\n"
    "                   and of sql/fence.sql\n"
    "  --protect LIST   strategies to compare (default: all)\n"
    "                   none      reads the stock, writes one less; no lock\n"
    "                   expire    the same under a lock of SETNX and EXPIRE (2 s)\n"
    "                   snowshed  under the lease lock, with the fencing guard\n"
    "  --pieces N       pieces on sale (default 200)\n"
    "  --buyers N       buyers that want one (default 5000)\n"
    "  --twice PERCENT  buyers that ask a second time (default 10)\n"
    "  --processes N    backend processes (default 4)\n"
    "  --threads N      threads in each process (default 8)\n"
    "  --kills N        processes killed in each sale (default 2)\n"
    "  --runs N         sales with snowshed (default 3); the others have one\n"
    "  --seed N         of all random choices (default 1)\n"
    "  --json FILE      write the figures\n"
    "  --help           this text\n"
    "\n"
    "Exit status: 0 if every sale with snowshed sold exactly the pieces there were,\n"
    "one to a buyer, and told every buyer the truth; 1 if not, or if a server\n"
    "failed; 2 for a wrong option.\n";
/* clang-format on */

#define CLI_OPTIONS struct options
static const struct cli_option table[] = {
#include "flashsale.def"
};

static const struct cli cli = {.program = "flashsale",
                               .help = help,
                               .options = table,
                               .count = sizeof(table) / sizeof(*table)};

struct choice {
    struct options options;
    bool strategy[STRATEGIES];
};

static void choose_strategies(struct choice *c)
{
    const char *names[STRATEGIES];

    for (size_t i = 0; i < STRATEGIES; i++)
        names[i] = all_strategies[i]->name;
    cli_choose(&cli, "protect", c->options.protect, names, STRATEGIES,
               c->strategy);
}

static uint64_t runs_of(const struct choice *c, size_t strategy)
{
    if (!c->strategy[strategy])
        return 0;
    return all_strategies[strategy] == &flashsale_snowshed ? c->options.runs
                                                           : 1;
}

static void tell(const struct outcome *o)
{
    (void)fprintf(stderr,
                  "%ssale %llu, %s: %.0f orders, %.0f left, %.2f s, "
                  "%.0f kills%s\n",
                  isatty(STDERR_FILENO) ? "\r\033[K" : "",
                  (unsigned long long)o->item, o->strategy, o->orders, o->stock,
                  o->seconds, o->kills, o->is_exact ? ": exact" : "");
}

/* Returns whether no server failed and every sale with snowshed was exact. */
static bool hold_sales(const struct choice *c, struct outcome *outcomes)
{
    struct runner *runner = runner_create(&c->options);
    bool is_good = true;
    size_t held = 0;

    for (size_t strategy = 0; strategy < STRATEGIES; strategy++)
        for (uint64_t run = 0; run < runs_of(c, strategy); run++) {
            struct outcome *o = &outcomes[held++];
            run_sale(runner, all_strategies[strategy], held, o);
            tell(o);
            is_good &= o->errors == 0 &&
                       (o->is_exact ||
                        all_strategies[strategy] != &flashsale_snowshed);
        }
    runner_destroy(runner);
    return is_good;
}

int main(int argc, char **argv)
{
    struct choice c = {.options = {.pieces = 200,
                                   .buyers = 5000,
                                   .twice_pct = 10,
                                   .processes = 4,
                                   .threads = 8,
                                   .kills = 2,
                                   .runs = 3,
                                   .seed = 1}};
    struct outcome *outcomes;
    size_t count = 0;
    struct shed_error err;
    bool is_good;
    FILE *json;

    cli_parse(&cli, &c.options, argc, argv);
    choose_strategies(&c);
    if (place_use(c.options.mysql_uri, &err) == SHED_EINVAL)
        cli_refuse(&cli, "mysql", err.reason);
    json = cli_open_output(&cli, "json", c.options.json);
    for (size_t strategy = 0; strategy < STRATEGIES; strategy++)
        count += runs_of(&c, strategy);
    assert(count > 0); /* choose_strategies has chosen one at least */
    if (mysql_library_init(0, NULL, NULL) != 0)
        return EXIT_FAILURE;
    outcomes = calloc(count, sizeof(*outcomes));
    if (outcomes == NULL)
        return EXIT_FAILURE;
    (void)signal(SIGPIPE, SIG_IGN);
    is_good = hold_sales(&c, outcomes);
    flashsale_table(stdout, &c.options, outcomes, count);
    if (json != NULL)
        is_good &= flashsale_json(json, &c.options, outcomes, count);
    is_good &= cli_close_output(&cli, "json", json);
    free(outcomes);
    mysql_library_end();
    return is_good ? EXIT_SUCCESS : EXIT_FAILURE;
}
