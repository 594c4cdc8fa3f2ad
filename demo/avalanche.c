/* The avalanche load test: its options, and what is run. */
#include <errno.h>
#include <getopt.h>
#include <mysql.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "report.h"

#define WAYS 3
#define USAGE_STATUS 2

static const struct way *const all_ways[WAYS] = {&way_none, &way_setnx,
                                                 &way_snowshed};

/* A line here is a line of the text. */
/* clang-format off */
static const char help[] =
    "usage: avalanche --redis URI --mysql URI [OPTION...]\n"
    "\n"
    "Forks backend processes that read items through a cache in Redis, makes the\n"
    "cache fail in known ways, and shows what reaches the database.\n"
    "\n"
    "  --redis URI      unix:/path[?db=n] or\n"
    "                   redis://[user:password@]host[:port][/db]\n"
    "                   THAT DATABASE IS EMPTIED\n"
    "  --mysql URI      mysql://user[:password]@host[:port]/database or\n"
    "                   mysql://user@/database?socket=/path,\n"
    "                   with the table item of sql/\n"
    "  --protect LIST   ways to compare: none, setnx, snowshed (default: all)\n"
    "  --scenario LIST  (default: all)\n"
    "                   breakdown    one hot key expires again and again\n"
    "                   avalanche    all items expire in the same instant\n"
    "                   penetration  items that do not exist are asked for\n"
    "                   cold         Redis is emptied under load\n"
    "                   crash        the loading process is killed in its load\n"
    "  --processes N    backend processes (default 4)\n"
    "  --threads N      threads of each (default 50)\n"
    "  --load-ms N      what a query costs, in ms (default 50)\n"
    "  --expiries N     of the hot key in breakdown (default 100)\n"
    "  --keys N         different items (default 10000, at most 100000)\n"
    "  --page N         items that a call asks for in avalanche (default 20)\n"
    "  --seconds N      length of penetration and cold (default 3)\n"
    "  --crashes N      kills in crash, for snowshed (default 5); the others get\n"
    "                   one: a lock that must run out takes ten seconds\n"
    "  --max-loads N    loads at a time in a process of snowshed's (default 4)\n"
    "  --zipf S         exponent of the popularity of items (default 0.99)\n"
    "  --seed N         of what is random (default 1)\n"
    "  --json FILE      write the figures and their course over time\n"
    "  --svg FILE       draw latency and queries over time\n"
    "  --help           this text\n"
    "\n"
    "Exit status: 0; 1 if a server failed or a call ended with an error; 2 for a\n"
    "wrong option.\n";
/* clang-format on */

static void usage_error(const char *option, const char *why)
{
    (void)fprintf(stderr, "avalanche: --%s: %s (see --help)\n", option, why);
    exit(USAGE_STATUS);
}

static uint64_t parse_number(const char *option, const char *text, uint64_t low,
                             uint64_t high)
{
    char *end;
    unsigned long long n;
    char why[80];

    errno = 0;
    n = strtoull(text, &end, 10);
    if (errno == 0 && *text >= '0' && *text <= '9' && *end == '\0' &&
        n >= low && n <= high)
        return n;
    (void)snprintf(why, sizeof(why), "must be a number from %llu to %llu",
                   (unsigned long long)low, (unsigned long long)high);
    usage_error(option, why);
    return 0;
}

static double parse_exponent(const char *option, const char *text)
{
    char *end;
    double s = strtod(text, &end);

    if (end == text || *end != '\0' || !(s >= 0 && s <= 5))
        usage_error(option, "must be a number from 0 to 5");
    return s;
}

/* Set is_chosen of each name of a comma-separated list. */
static void parse_list(const char *option, const char *text,
                       const char *const *names, size_t count, bool *is_chosen)
{
    memset(is_chosen, 0, count * sizeof(*is_chosen));
    for (const char *at = text;; at++) {
        size_t size = strcspn(at, ","), i = 0;
        char why[80];
        while (i < count &&
               (strlen(names[i]) != size || strncmp(names[i], at, size) != 0))
            i++;
        if (i == count) {
            (void)snprintf(why, sizeof(why), "does not know '%.*s'", (int)size,
                           at);
            usage_error(option, why);
        }
        is_chosen[i] = true;
        at += size;
        if (*at == '\0')
            return;
    }
}

struct choice {
    struct options options;
    bool way[WAYS], scenario[SCENARIOS];
};

/* The options that are numbers: one row each. */
struct number {
    const char *name;
    size_t offset;
    uint64_t low, high;
};

#define NUMBER(name, field, low, high)                                         \
    {                                                                          \
        name, offsetof(struct options, field), low, high                       \
    }
static const struct number numbers[] = {
    NUMBER("processes", processes, 1, 64),
    NUMBER("threads", threads, 1, 1000),
    NUMBER("load-ms", load_ms, 0, 10000),
    NUMBER("expiries", expiries, 1, 100000),
    NUMBER("keys", keys, 1, 100000),
    NUMBER("page", page, 1, PAGE_MAX),
    NUMBER("seconds", seconds, 1, 3600),
    NUMBER("crashes", crashes, 1, 1000),
    NUMBER("max-loads", max_loads, 1, 1024),
    NUMBER("seed", seed, 0, UINT64_MAX),
};

#define NUMBERS (sizeof(numbers) / sizeof(*numbers))

enum {
    OPT_HELP = 1000,
    OPT_REDIS,
    OPT_MYSQL,
    OPT_PROTECT,
    OPT_SCENARIO,
    OPT_ZIPF,
    OPT_JSON,
    OPT_SVG
};

static void take_option(struct choice *c, int which, const char *text)
{
    const char *way_names[WAYS];

    for (size_t i = 0; i < WAYS; i++)
        way_names[i] = all_ways[i]->name;
    switch (which) {
    case OPT_HELP:
        (void)fputs(help, stdout);
        exit(EXIT_SUCCESS);
    case OPT_REDIS:
        c->options.redis_uri = text;
        break;
    case OPT_MYSQL:
        c->options.mysql_uri = text;
        break;
    case OPT_PROTECT:
        parse_list("protect", text, way_names, WAYS, c->way);
        break;
    case OPT_SCENARIO:
        parse_list("scenario", text, scenario_names, SCENARIOS, c->scenario);
        break;
    case OPT_ZIPF:
        c->options.zipf = parse_exponent("zipf", text);
        break;
    case OPT_JSON:
        c->options.json = text;
        break;
    case OPT_SVG:
        c->options.svg = text;
        break;
    default: {
        const struct number *n = &numbers[which];
        *(uint64_t *)(void *)((char *)&c->options + n->offset) =
            parse_number(n->name, text, n->low, n->high);
    }
    }
}

static void parse_options(struct choice *c, int argc, char **argv)
{
    struct option table[NUMBERS + 9] = {
        {"help", no_argument, NULL, OPT_HELP},
        {"redis", required_argument, NULL, OPT_REDIS},
        {"mysql", required_argument, NULL, OPT_MYSQL},
        {"protect", required_argument, NULL, OPT_PROTECT},
        {"scenario", required_argument, NULL, OPT_SCENARIO},
        {"zipf", required_argument, NULL, OPT_ZIPF},
        {"json", required_argument, NULL, OPT_JSON},
        {"svg", required_argument, NULL, OPT_SVG}};
    const char *wrong;
    int which;

    for (size_t i = 0; i < NUMBERS; i++)
        table[8 + i] =
            (struct option){numbers[i].name, required_argument, NULL, (int)i};
    while ((which = getopt_long(argc, argv, "", table, NULL)) != -1) {
        if (which == '?')
            exit(USAGE_STATUS); /* getopt_long has named it */
        take_option(c, which, optarg);
    }
    if (optind < argc)
        usage_error(argv[optind], "is not an option");
    if (c->options.redis_uri == NULL)
        usage_error("redis", "is missing");
    if (c->options.mysql_uri == NULL)
        usage_error("mysql", "is missing");
    wrong = database_configure(c->options.mysql_uri);
    if (wrong != NULL)
        usage_error("mysql", wrong);
}

/* Open what is to be written before an hour's work is thrown away. */
static FILE *open_output(const char *option, const char *path)
{
    FILE *out = path != NULL ? fopen(path, "w") : NULL;

    if (path != NULL && out == NULL)
        usage_error(option, strerror(errno));
    return out;
}

static void close_output(const char *option, FILE *out)
{
    if (out == NULL)
        return;
    if (fflush(out) != 0 || ferror(out) || fclose(out) != 0) {
        (void)fprintf(stderr, "avalanche: --%s: cannot write: %s\n", option,
                      strerror(errno));
        exit(EXIT_FAILURE);
    }
}

static size_t run_all(const struct choice *c, struct outcome *outcomes)
{
    size_t count = 0;

    for (size_t s = 0; s < SCENARIOS; s++)
        for (size_t w = 0; w < WAYS; w++) {
            if (!c->scenario[s] || !c->way[w])
                continue;
            (void)fprintf(stderr,
                          isatty(STDERR_FILENO) ? "\r\033[K%s, %s" : "%s, %s\n",
                          scenario_names[s], all_ways[w]->name);
            scenario_run(&c->options, s, all_ways[w], &outcomes[count++]);
        }
    if (isatty(STDERR_FILENO))
        (void)fprintf(stderr, "\r\033[K");
    return count;
}

int main(int argc, char **argv)
{
    struct choice c = {.options = {.processes = 4,
                                   .threads = 50,
                                   .load_ms = 50,
                                   .expiries = 100,
                                   .keys = 10000,
                                   .page = 20,
                                   .seconds = 3,
                                   .seed = 1,
                                   .max_loads = 4,
                                   .crashes = 5,
                                   .zipf = 0.99},
                       .way = {true, true, true},
                       .scenario = {true, true, true, true, true}};
    struct outcome *outcomes = calloc(WAYS * SCENARIOS, sizeof(*outcomes));
    FILE *json, *svg;
    size_t count;
    uint64_t errors = 0;

    parse_options(&c, argc, argv);
    json = open_output("json", c.options.json);
    svg = open_output("svg", c.options.svg);
    if (outcomes == NULL || mysql_library_init(0, NULL, NULL) != 0)
        return EXIT_FAILURE;
    (void)signal(SIGPIPE, SIG_IGN);
    count = run_all(&c, outcomes);
    report_table(stdout, &c.options, outcomes, count);
    if (json != NULL)
        report_json(json, &c.options, outcomes, count);
    if (svg != NULL)
        report_svg(svg, outcomes, count);
    close_output("json", json);
    close_output("svg", svg);
    for (size_t i = 0; i < count; i++)
        errors += outcomes[i].errors;
    free(outcomes);
    return errors == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
