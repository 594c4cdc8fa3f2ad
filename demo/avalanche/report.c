/* The table and the JSON: one list of figures serves both. A figure is shown
 * only in scenarios where it means the same for all strategies: no totals if
 * the numbers of kills differ, no median if it would compare different mixes of
 * hits and misses. */
#include "report.h"

#include <math.h>
#include <string.h>

#include "common/json.h"

#define CELL_BYTES 32
#define TITLE_WIDTH 32
#define COLUMN_WIDTH 12
#define SUMMARY_WIDTH 40
#define SUMMARY_COLUMN 10

/* Scenarios, as a set. */
enum {
    IN_BREAKDOWN = 1 << BREAKDOWN,
    IN_AVALANCHE = 1 << AVALANCHE,
    IN_PENETRATION = 1 << PENETRATION,
    IN_COLD = 1 << COLD,
    IN_CRASH = 1 << CRASH,
    IN_REDIS_TROUBLE = 1 << REDIS_DOWN | 1 << RESTART,
    IN_TROUBLE = IN_REDIS_TROUBLE | 1 << DB_DOWN | 1 << SLOW_DB,
    IN_ALL = (1 << SCENARIOS) - 1
};

/* A figure of an outcome; value is NAN if a strategy has none. note explains it
 * under the table; NULL: it needs no explanation. */
struct figure {
    const char *title, *json;
    double (*value)(const struct outcome *o);
    unsigned scenarios;
    int decimals;
    const char *note;
};

static bool is(const struct outcome *o, const char *scenario)
{
    return strcmp(o->scenario, scenario) == 0;
}

static bool is_shown(const struct figure *f, const struct outcome *o)
{
    for (size_t i = 0; i < SCENARIOS; i++)
        if (is(o, scenario_names[i]))
            return (f->scenarios >> i & 1) != 0;
    return false;
}

static double per_event(const struct outcome *o, uint64_t count)
{
    return o->events > 0 ? (double)count / (double)o->events : NAN;
}

static double queries(const struct outcome *o)
{
    return (double)o->queries;
}

static double events(const struct outcome *o)
{
    return (double)o->events;
}

static double expiries(const struct outcome *o)
{
    return outcome_is_refreshed(o) ? NAN : events(o);
}

static double refreshes(const struct outcome *o)
{
    return outcome_is_refreshed(o) ? events(o) : NAN;
}

static double queries_per_event(const struct outcome *o)
{
    return per_event(o, o->queries);
}

static double queries_per_expiry(const struct outcome *o)
{
    return outcome_is_refreshed(o) ? NAN : queries_per_event(o);
}

static double keys(const struct outcome *o)
{
    return (double)o->keys;
}

static double per_key(const struct outcome *o)
{
    return o->keys > 0 ? (double)o->queried_keys / (double)o->keys : NAN;
}

static double at_once(const struct outcome *o)
{
    return (double)o->most_under_way;
}

static double seconds(const struct outcome *o)
{
    return o->seconds;
}

static double throughput(const struct outcome *o)
{
    return o->seconds > 0 ? (double)(o->calls - o->errors) / o->seconds : NAN;
}

static double slow_pct(const struct outcome *o)
{
    return o->calls > 0 ? 100.0 * (double)o->slow_calls / (double)o->calls
                        : NAN;
}

static double slow_per_event(const struct outcome *o)
{
    return per_event(o, o->slow_calls);
}

static double slow_ms(const struct outcome *o)
{
    return (double)o->slow_ms;
}

static double p50(const struct outcome *o)
{
    return o->p50_ms;
}

static double p99(const struct outcome *o)
{
    return o->p99_ms;
}

static double worst(const struct outcome *o)
{
    return o->max_ms;
}

/* Whether somebody waits for another's load: without a lock nobody does, and
 * with refresh nobody has to. */
static bool has_waited(const struct outcome *o)
{
    return strcmp(o->strategy, strategy_none.name) != 0 && o->waited > 0;
}

static double extra_p50(const struct outcome *o)
{
    return has_waited(o) ? o->extra_p50_ms : NAN;
}

static double extra_p99(const struct outcome *o)
{
    return has_waited(o) ? o->extra_p99_ms : NAN;
}

static double waited(const struct outcome *o)
{
    return (double)o->waited;
}

/* By hand there is no bound, and no deadline. */
static double bound(const struct outcome *o)
{
    return o->bound > 0 ? (double)o->bound : NAN;
}

static double late(const struct outcome *o)
{
    return o->timeout_ms > 0 ? (double)o->late_calls : NAN;
}

static double slack(const struct outcome *o)
{
    return o->timeout_ms > 0 ? o->slack_ms : NAN;
}

static double stale(const struct outcome *o)
{
    return (double)o->stale;
}

static double told_late(const struct outcome *o)
{
    return o->timeout_ms > 0 ? (double)o->told_late : NAN;
}

static double busy(const struct outcome *o)
{
    return o->busy_ms;
}

static double calm(const struct outcome *o)
{
    return o->calm_ms;
}

static double recovery_p50(const struct outcome *o)
{
    return o->recovery_p50_ms >= 0 ? o->recovery_p50_ms : NAN;
}

static double recovery_max(const struct outcome *o)
{
    return o->recovery_max_ms >= 0 ? o->recovery_max_ms : NAN;
}

static double commands_per_call(const struct outcome *o)
{
    return o->calls > 0 ? (double)o->redis_commands / (double)o->calls : NAN;
}

static double errors(const struct outcome *o)
{
    return (double)o->errors;
}

static const struct figure figures[] = {
    {"database queries", "queries", queries, IN_ALL - IN_CRASH, 0, NULL},
    {"expiries", "expiries", expiries, IN_BREAKDOWN, 0, NULL},
    {"queries per expiry", "queries_per_expiry", queries_per_expiry,
     IN_BREAKDOWN, 2, NULL},
    {"refreshes", "refreshes", refreshes, IN_BREAKDOWN, 0,
     "loads of the row before it expires, so that it never does"},
    {"kills", "kills", events, IN_CRASH, 0, NULL},
    {"queries per kill", "queries_per_kill", queries_per_event, IN_CRASH, 1,
     NULL},
    {"different keys asked for", "keys", keys, IN_AVALANCHE | IN_PENETRATION, 0,
     NULL},
    {"loads per key", "loads_per_key", per_key, IN_AVALANCHE | IN_PENETRATION,
     2, "keys in queries, divided by the different keys asked for"},
    {"most queries at once", "most_queries_at_once", at_once, IN_ALL, 0,
     "those that work in the database or wait in it"},
    {"  the bound on them", "bound", bound, IN_TROUBLE, 0, NULL},
    {"seconds until all are read", "seconds", seconds, IN_AVALANCHE, 2, NULL},
    {"kill to next load, p50 ms", "recovery_p50_ms", recovery_p50, IN_CRASH, 0,
     "not measured for none, where all callers load at once"},
    {"kill to next load, max ms", "recovery_max_ms", recovery_max, IN_CRASH, 0,
     NULL},
    {"calls per second", "calls_per_second", throughput,
     IN_BREAKDOWN | IN_PENETRATION | IN_COLD | IN_TROUBLE, 0,
     "those that were answered"},
    {"calls that waited", "waited", waited, IN_BREAKDOWN, 0,
     "for a load to end"},
    {"slow calls, %", "slow_calls_pct", slow_pct,
     IN_BREAKDOWN | IN_PENETRATION | IN_COLD | IN_TROUBLE, 1,
     "those that took longer than two queries take"},
    {"slow calls per kill", "slow_calls_per_kill", slow_per_event, IN_CRASH, 0,
     "those that took longer than two queries take"},
    {"latency p50 ms", "latency_p50_ms", p50, IN_AVALANCHE, 2, NULL},
    {"latency p99 ms", "latency_p99_ms", p99, IN_ALL - IN_CRASH, 2, NULL},
    {"latency max ms", "latency_max_ms", worst, IN_ALL, 2, NULL},
    {"p99.9 during a query, ms", "busy_p999_ms", busy, IN_BREAKDOWN, 2,
     "of the calls while a query was under way"},
    {"p99.9 of the other calls, ms", "calm_p999_ms", calm, IN_BREAKDOWN, 2,
     NULL},
    {"calls after their deadline", "late_calls", late, IN_TROUBLE, 0,
     "those that ended later than its slack after it"},
    {"slack of a deadline, ms", "slack_ms", slack, IN_TROUBLE, 0,
     "50, and twice what the worst sleep was late by"},
    {"out-of-date answers", "stale_after_invalidation", stale, IN_REDIS_TROUBLE,
     0, "older than what was invalidated before the call"},
    {"changes told to Redis late", "told_late", told_late, IN_REDIS_TROUBLE, 0,
     "their invalidation failed, and was made up for"},
    {"wait after the load, p50 ms", "extra_wait_p50_ms", extra_p50,
     IN_BREAKDOWN | IN_CRASH, 2,
     "from the end of another's query to the answer"},
    {"wait after the load, p99 ms", "extra_wait_p99_ms", extra_p99,
     IN_BREAKDOWN | IN_CRASH, 2, NULL},
    {"Redis commands per call", "redis_commands_per_call", commands_per_call,
     IN_ALL - IN_CRASH - IN_TROUBLE, 1, "those inside scripts included"},
    {"errors", "errors", errors, IN_ALL, 0, NULL},
};

#define FIGURES (sizeof(figures) / sizeof(*figures))

#define TROUBLE_STORY                                                          \
    "rows expire after a second; calls of snowshed have a deadline of a "      \
    "second"

/* What happens in a scenario, and a second line for its table, or NULL. */
static const char *const stories[SCENARIOS][2] = {
    {"one hot key expires again and again", NULL},
    {"all items expire at once", "a call reads a page of items"},
    {"items that do not exist are asked for", NULL},
    {"Redis is emptied after a second", NULL},
    {"the loading process is killed while it loads",
     "a query takes six times as long as in the other scenarios"},
    {"Redis is stopped for a while", TROUBLE_STORY},
    {"the database is stopped for a while", TROUBLE_STORY},
    {"queries take ten times as long for a while", TROUBLE_STORY},
    {"Redis is killed, and started again, empty", TROUBLE_STORY}};

const char *report_story(const char *scenario)
{
    for (size_t i = 0; i < SCENARIOS; i++)
        if (strcmp(scenario_names[i], scenario) == 0)
            return stories[i][0];
    return "";
}

/* ------------------------------------------------------------------- table */

/* A long name is broken at its hyphen. */
static void print_head(FILE *out, const char *title, int width, int column,
                       const struct outcome *o, size_t strategies)
{
    bool is_broken = false;

    (void)fprintf(out, "\n%-*s", width, title);
    for (size_t i = 0; i < strategies; i++) {
        size_t first = strcspn(o[i].strategy, "-");
        is_broken = is_broken || o[i].strategy[first] != '\0';
        (void)fprintf(out, "%*.*s", column, (int)first, o[i].strategy);
    }
    (void)fprintf(out, "\n");
    if (!is_broken)
        return;
    (void)fprintf(out, "%-*s", width, "");
    for (size_t i = 0; i < strategies; i++)
        (void)fprintf(out, "%*s", column,
                      o[i].strategy + strcspn(o[i].strategy, "-"));
    (void)fprintf(out, "\n");
}

static void print_row(FILE *out, const struct figure *f, const char *title,
                      int width, int column, const struct outcome *o,
                      size_t strategies)
{
    (void)fprintf(out, "%-*s", width, title);
    for (size_t i = 0; i < strategies; i++) {
        double value = f->value(&o[i]);
        if (isnan(value))
            (void)fprintf(out, "%*s", column, "-");
        else
            (void)fprintf(out, "%*.*f", column, f->decimals, value);
    }
    (void)fprintf(out, "\n");
}

static void print_notes(FILE *out, const struct outcome *o)
{
    for (size_t i = 0; i < SCENARIOS; i++)
        for (size_t k = 0; is(o, scenario_names[i]) && k < 2; k++)
            if (stories[i][k] != NULL)
                (void)fprintf(out, "  %s\n", stories[i][k]);
    for (size_t f = 0; f < FIGURES; f++)
        if (figures[f].note != NULL && is_shown(&figures[f], o))
            (void)fprintf(out, "  %.*s: %s\n",
                          (int)strcspn(figures[f].title, ","), figures[f].title,
                          figures[f].note);
}

/* Its words, in lines of the width of a terminal. */
static void print_error(FILE *out, const struct outcome *o)
{
    const int width = 80, indent = 4;
    int column = fprintf(out, "  first error of %s:", o->strategy);

    for (const char *at = o->first_error; *at != '\0';) {
        int size = (int)strcspn(at, " ");
        if (column + 1 + size > width && column > indent)
            column = fprintf(out, "\n%*s", indent - 1, "") - 1;
        column += fprintf(out, " %.*s", size, at);
        at += (size_t)size + strspn(at + size, " ");
    }
    (void)fprintf(out, "\n");
}

void report_scenario(FILE *out, const struct outcome *o, size_t strategies)
{
    char title[TITLE_WIDTH];

    print_head(out, o->scenario, TITLE_WIDTH, COLUMN_WIDTH, o, strategies);
    for (size_t f = 0; f < FIGURES; f++) {
        (void)snprintf(title, sizeof(title), "  %s", figures[f].title);
        if (is_shown(&figures[f], o))
            print_row(out, &figures[f], title, TITLE_WIDTH, COLUMN_WIDTH, o,
                      strategies);
    }
    print_notes(out, o);
    for (size_t i = 0; i < strategies; i++)
        if (o[i].errors > 0)
            print_error(out, &o[i]);
    (void)fflush(out);
}

void report_setting(FILE *out, const struct options *o)
{
    (void)fprintf(out,
                  "%llu processes of %llu threads; %llu items; a query "
                  "works for %llu ms,\n",
                  (unsigned long long)o->processes,
                  (unsigned long long)o->threads, (unsigned long long)o->keys,
                  (unsigned long long)o->load_ms);
    if (o->db_capacity > 0)
        (void)fprintf(
            out,
            "and the database runs %llu at a time; the others wait in it\n",
            (unsigned long long)o->db_capacity);
    else
        (void)fprintf(out, "and the database runs any number at a time\n");
    (void)fflush(out); /* before the progress, on standard error */
}

/* The essential figure of each scenario, for a reader in a hurry. */
static const struct {
    const char *scenario;
    struct figure figure;
} summary[] = {
    {"breakdown",
     {"a hot key: queries per expiry or refresh", NULL, queries_per_event, 0, 2,
      NULL}},
    {"avalanche", {"all items expire: queries", NULL, queries, 0, 0, NULL}},
    {"avalanche", {"  seconds until all are read", NULL, seconds, 0, 1, NULL}},
    {"penetration",
     {"no such items: calls per second", NULL, throughput, 0, 0, NULL}},
    {"cold",
     {"Redis is emptied: calls per second", NULL, throughput, 0, 0, NULL}},
    {"crash",
     {"a loader is killed: ms to the next load", NULL, recovery_p50, 0, 0,
      NULL}},
    {"crash", {"  calls that it makes slow", NULL, slow_per_event, 0, 0, NULL}},
    {"redis-down",
     {"Redis stops: most queries at once", NULL, at_once, 0, 0, NULL}},
    {"db-down", {"the database stops: errors", NULL, errors, 0, 0, NULL}},
    {"db-down", {"  latency p99 ms", NULL, p99, 0, 1, NULL}},
    {"slow-db",
     {"the database is slow: latency p99 ms", NULL, p99, 0, 1, NULL}},
    {"restart",
     {"Redis comes back empty: most queries", NULL, at_once, 0, 0, NULL}}};

/* How many outcomes from o on belong to the same scenario. */
static size_t strategies_of(const struct outcome *o, size_t count)
{
    size_t n = 1;

    while (n < count && is(&o[n], o->scenario))
        n++;
    return n;
}

void report_summary(FILE *out, const struct outcome *outcomes, size_t count)
{
    const struct outcome *widest = outcomes;
    size_t most = 0;

    for (size_t i = 0, n; i < count; i += n) {
        n = strategies_of(&outcomes[i], count - i);
        if (n > most) {
            widest = &outcomes[i];
            most = n;
        }
    }
    if (most == count)
        return;
    print_head(out, "in short", SUMMARY_WIDTH, SUMMARY_COLUMN, widest, most);
    for (size_t r = 0; r < sizeof(summary) / sizeof(*summary); r++)
        for (size_t i = 0, n; i < count; i += n) {
            n = strategies_of(&outcomes[i], count - i);
            if (is(&outcomes[i], summary[r].scenario))
                print_row(out, &summary[r].figure, summary[r].figure.title,
                          SUMMARY_WIDTH, SUMMARY_COLUMN, &outcomes[i], n);
        }
}

/* -------------------------------------------------------------------- JSON */

static void add_moments(json_t *object, const struct outcome *o)
{
    json_t *queries_of = json_array(), *p50s = json_array(),
           *p99s = json_array();

    for (size_t i = 0; i < o->moments; i++) {
        const struct moment *m = &o->moment[i];
        json_array_append_new(queries_of, json_integer((json_int_t)m->queries));
        json_array_append_new(p50s,
                              json_number(m->has_calls ? m->p50_ms : NAN, 3));
        json_array_append_new(p99s,
                              json_number(m->has_calls ? m->p99_ms : NAN, 3));
    }
    json_object_set_new(object, "queries_per_100_ms", queries_of);
    json_object_set_new(object, "latency_p50_ms_per_100_ms", p50s);
    json_object_set_new(object, "latency_p99_ms_per_100_ms", p99s);
}

static json_t *outcome_json(const struct outcome *o)
{
    json_t *object = json_pack("{s:s, s:s}", "scenario", o->scenario,
                               "strategy", o->strategy);

    json_object_set_new(object, "seconds", json_number(o->seconds, 3));
    json_object_set_new(object, "slow_ms", json_number(slow_ms(o), 0));
    for (size_t f = 0; f < FIGURES; f++)
        if (is_shown(&figures[f], o) && !isnan(figures[f].value(o)))
            json_object_set_new(
                object, figures[f].json,
                json_number(figures[f].value(o), figures[f].decimals));
    if (o->errors > 0)
        json_object_set_new(object, "first_error", json_string(o->first_error));
    add_moments(object, o);
    return object;
}

bool report_json(FILE *out, const struct options *options,
                 const struct outcome *outcomes, size_t count)
{
    json_t *list = json_array();
    json_t *root = json_pack("{s:I, s:I, s:I, s:I, s:I, s:o}", "processes",
                             (json_int_t)options->processes, "threads",
                             (json_int_t)options->threads, "load_ms",
                             (json_int_t)options->load_ms, "db_capacity",
                             (json_int_t)options->db_capacity, "items",
                             (json_int_t)options->keys, "outcomes", list);

    for (size_t i = 0; i < count; i++)
        json_array_append_new(list, outcome_json(&outcomes[i]));
    return json_write(out, root);
}
