/* The table and the JSON: one list of figures serves both. A figure is shown
 * only in scenarios where it means the same for all strategies: no totals if
 * the numbers of kills differ, no median if it would compare different mixes of
 * hits and misses. */
#include "report.h"

#include <math.h>
#include <string.h>

#include "common/json.h"

#define CELL_BYTES 32
#define TITLE_WIDTH 30
#define SUMMARY_WIDTH 44

/* Scenarios, as a set. */
enum {
    BREAKDOWN = 1,
    AVALANCHE = 2,
    PENETRATION = 4,
    COLD = 8,
    CRASH = 16,
    ALL = 31
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

static double queries_per_event(const struct outcome *o)
{
    return per_event(o, o->queries);
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
    return o->seconds > 0 ? (double)o->calls / o->seconds : NAN;
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

/* Whether the strategy has a lock; without one nobody waits for another's
 * load. */
static bool has_lock(const struct outcome *o)
{
    return strcmp(o->strategy, strategy_none.name) != 0;
}

static double extra_p50(const struct outcome *o)
{
    return has_lock(o) ? o->extra_p50_ms : NAN;
}

static double extra_p99(const struct outcome *o)
{
    return has_lock(o) ? o->extra_p99_ms : NAN;
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
    {"database queries", "queries", queries, ALL - CRASH, 0, NULL},
    {"expiries", "expiries", events, BREAKDOWN, 0, NULL},
    {"queries per expiry", "queries_per_expiry", queries_per_event, BREAKDOWN,
     2, NULL},
    {"kills", "kills", events, CRASH, 0, NULL},
    {"queries per kill", "queries_per_kill", queries_per_event, CRASH, 1, NULL},
    {"different keys asked for", "keys", keys, AVALANCHE | PENETRATION, 0,
     NULL},
    {"loads per key", "loads_per_key", per_key, AVALANCHE | PENETRATION, 2,
     "keys in queries, by the different keys asked for"},
    {"most queries at once", "most_queries_at_once", at_once, ALL, 0,
     "those that work in the database or wait in it"},
    {"seconds until all are read", "seconds", seconds, AVALANCHE, 2, NULL},
    {"kill to next load, p50 ms", "recovery_p50_ms", recovery_p50, CRASH, 0,
     "without protection all load, so there is none"},
    {"kill to next load, max ms", "recovery_max_ms", recovery_max, CRASH, 0,
     NULL},
    {"calls per second", "calls_per_second", throughput,
     BREAKDOWN | PENETRATION | COLD, 0, NULL},
    {"slow calls, %", "slow_calls_pct", slow_pct,
     BREAKDOWN | PENETRATION | COLD, 1,
     "those that took longer than two queries"},
    {"slow calls per kill", "slow_calls_per_kill", slow_per_event, CRASH, 0,
     "those that took longer than two queries"},
    {"latency p50 ms", "latency_p50_ms", p50, AVALANCHE, 2, NULL},
    {"latency p99 ms", "latency_p99_ms", p99, ALL - CRASH, 2, NULL},
    {"latency max ms", "latency_max_ms", worst, ALL, 2, NULL},
    {"wait after the load, p50 ms", "extra_wait_p50_ms", extra_p50,
     BREAKDOWN | CRASH, 2, "from the end of another's query to the answer"},
    {"wait after the load, p99 ms", "extra_wait_p99_ms", extra_p99,
     BREAKDOWN | CRASH, 2, NULL},
    {"Redis commands per call", "redis_commands_per_call", commands_per_call,
     ALL - CRASH, 1, "with those inside scripts"},
    {"errors", "errors", errors, ALL, 0, NULL},
};

#define FIGURES (sizeof(figures) / sizeof(*figures))

/* What happens in a scenario, and a second line for its table, or NULL. */
static const char *const stories[SCENARIOS][2] = {
    {"one hot key expires again and again", NULL},
    {"all items expire at once", "a call reads a page of items"},
    {"items that do not exist are asked for", NULL},
    {"Redis is emptied after a second", NULL},
    {"the loading process is killed while it loads",
     "a query takes six times as long as in the other scenarios"}};

const char *report_story(const char *scenario)
{
    for (size_t i = 0; i < SCENARIOS; i++)
        if (strcmp(scenario_names[i], scenario) == 0)
            return stories[i][0];
    return "";
}

/* ------------------------------------------------------------------- table */

static void print_head(FILE *out, const char *title, int width,
                       const struct outcome *o, size_t strategies)
{
    (void)fprintf(out, "\n%-*s", width, title);
    for (size_t i = 0; i < strategies; i++)
        (void)fprintf(out, "%12s", o[i].strategy);
    (void)fprintf(out, "\n");
}

static void print_row(FILE *out, const struct figure *f, const char *title,
                      int width, const struct outcome *o, size_t strategies)
{
    (void)fprintf(out, "%-*s", width, title);
    for (size_t i = 0; i < strategies; i++) {
        double value = f->value(&o[i]);
        if (isnan(value))
            (void)fprintf(out, "%12s", "-");
        else
            (void)fprintf(out, "%12.*f", f->decimals, value);
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

void report_scenario(FILE *out, const struct outcome *o, size_t strategies)
{
    char title[TITLE_WIDTH];

    print_head(out, o->scenario, TITLE_WIDTH, o, strategies);
    for (size_t f = 0; f < FIGURES; f++) {
        (void)snprintf(title, sizeof(title), "  %s", figures[f].title);
        if (is_shown(&figures[f], o))
            print_row(out, &figures[f], title, TITLE_WIDTH, o, strategies);
    }
    print_notes(out, o);
    for (size_t i = 0; i < strategies; i++)
        if (o[i].errors > 0)
            (void)fprintf(out, "  first error of %s: %.100s\n", o[i].strategy,
                          o[i].first_error);
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
        (void)fprintf(out,
                      "%llu at a time in the database, the others wait in it\n",
                      (unsigned long long)o->db_capacity);
    else
        (void)fprintf(out, "any number at a time\n");
}

/* The essential figure of each scenario, for a reader in a hurry. */
static const struct {
    const char *scenario;
    struct figure figure;
} summary[] = {
    {"breakdown",
     {"a hot key expires: queries each time", NULL, queries_per_event, 0, 2,
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
    {"crash",
     {"  calls that it makes slow", NULL, slow_per_event, 0, 0, NULL}}};

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
    size_t strategies = strategies_of(outcomes, count);

    if (strategies == count)
        return;
    print_head(out, "in short", SUMMARY_WIDTH, outcomes, strategies);
    for (size_t r = 0; r < sizeof(summary) / sizeof(*summary); r++)
        for (size_t i = 0; i < count; i += strategies)
            if (is(&outcomes[i], summary[r].scenario))
                print_row(out, &summary[r].figure, summary[r].figure.title,
                          SUMMARY_WIDTH, &outcomes[i], strategies);
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
