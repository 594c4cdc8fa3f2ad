/* The table and the JSON: one list of figures serves both. */
#include "report.h"

#include <string.h>

#define CELL_BYTES 32
#define TITLE_WIDTH 30
#define SUMMARY_WIDTH 40

/* A figure of an outcome; has is NULL where every outcome has it. */
struct figure {
    const char *title, *json;
    double (*value)(const struct outcome *o);
    bool (*has)(const struct outcome *o);
    int decimals;
};

static bool is(const struct outcome *o, const char *scenario)
{
    return strcmp(o->scenario, scenario) == 0;
}

static bool expires(const struct outcome *o)
{
    return is(o, "breakdown");
}

static bool has_keys(const struct outcome *o)
{
    return o->keys > 0;
}

static bool waits(const struct outcome *o)
{
    return o->waited > 0;
}

static bool crashes(const struct outcome *o)
{
    return is(o, "crash");
}

static bool recovers(const struct outcome *o)
{
    return crashes(o) && o->recovery_max_ms >= 0;
}

/* Where strategies are killed differently often, totals say nothing. */
static bool has_totals(const struct outcome *o)
{
    return !crashes(o);
}

/* Most calls are hits, and how many they are depends on how long loads take: so
 * a median would compare different kinds of calls. */
static bool has_median(const struct outcome *o)
{
    return !expires(o) && !crashes(o);
}

static double queries(const struct outcome *o)
{
    return (double)o->queries;
}

static double expiries(const struct outcome *o)
{
    return (double)o->events;
}

static double per_expiry(const struct outcome *o)
{
    return o->events > 0 ? (double)o->queries / (double)o->events : 0;
}

static double keys(const struct outcome *o)
{
    return (double)o->keys;
}

static double per_key(const struct outcome *o)
{
    return o->keys > 0 ? (double)o->queried_keys / (double)o->keys : 0;
}

static double at_once(const struct outcome *o)
{
    return (double)o->most_under_way;
}

static double throughput(const struct outcome *o)
{
    return o->seconds > 0 ? (double)o->calls / o->seconds : 0;
}

static double p50(const struct outcome *o)
{
    return o->p50_ms;
}

static double p99(const struct outcome *o)
{
    return o->p99_ms;
}

static double p999(const struct outcome *o)
{
    return o->p999_ms;
}

static double worst(const struct outcome *o)
{
    return o->max_ms;
}

static double waited(const struct outcome *o)
{
    return (double)o->waited;
}

static double extra_p50(const struct outcome *o)
{
    return o->extra_p50_ms;
}

static double extra_p99(const struct outcome *o)
{
    return o->extra_p99_ms;
}

static double recovery_p50(const struct outcome *o)
{
    return o->recovery_p50_ms;
}

static double recovery_max(const struct outcome *o)
{
    return o->recovery_max_ms;
}

static double redis_commands(const struct outcome *o)
{
    return (double)o->redis_commands;
}

static double errors(const struct outcome *o)
{
    return (double)o->errors;
}

static const struct figure figures[] = {
    {"database queries", "queries", queries, has_totals, 0},
    {"expiries", "expiries", expiries, expires, 0},
    {"queries per expiry", "queries_per_expiry", per_expiry, expires, 2},
    {"kills", "kills", expiries, crashes, 0},
    {"queries per kill", "queries_per_kill", per_expiry, crashes, 1},
    {"different keys asked for", "keys", keys, has_keys, 0},
    {"loads per key", "loads_per_key", per_key, has_keys, 2},
    {"most queries at once", "most_queries_at_once", at_once, NULL, 0},
    {"kill to next load, p50 ms", "recovery_p50_ms", recovery_p50, recovers, 0},
    {"kill to next load, max ms", "recovery_max_ms", recovery_max, recovers, 0},
    {"calls per second", "calls_per_second", throughput, has_totals, 0},
    {"latency p50 ms", "latency_p50_ms", p50, has_median, 2},
    {"latency p99 ms", "latency_p99_ms", p99, NULL, 2},
    {"latency p99.9 ms", "latency_p999_ms", p999, NULL, 2},
    {"latency max ms", "latency_max_ms", worst, NULL, 2},
    {"calls that waited for a load", "waited", waited, expires, 0},
    {"wait after the load, p50 ms", "extra_wait_p50_ms", extra_p50, waits, 2},
    {"wait after the load, p99 ms", "extra_wait_p99_ms", extra_p99, waits, 2},
    {"Redis commands", "redis_commands", redis_commands, has_totals, 0},
    {"errors", "errors", errors, NULL, 0},
};

#define FIGURES (sizeof(figures) / sizeof(*figures))

static void write_cell(char cell[CELL_BYTES], const struct figure *f,
                       const struct outcome *o)
{
    if (f->has != NULL && !f->has(o))
        (void)snprintf(cell, CELL_BYTES, "-");
    else
        (void)snprintf(cell, CELL_BYTES, "%.*f", f->decimals, f->value(o));
}

static bool anybody_has(const struct figure *f, const struct outcome *o,
                        size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (f->has == NULL || f->has(&o[i]))
            return true;
    return false;
}

/* How many outcomes from o on are of its scenario. */
static size_t strategies_of(const struct outcome *o, size_t count)
{
    size_t n = 1;

    while (n < count && strcmp(o[n].scenario, o->scenario) == 0)
        n++;
    return n;
}

static void print_head(FILE *out, const char *title, int width,
                       const struct outcome *o, size_t strategies)
{
    (void)fprintf(out, "\n%-*s", width, title);
    for (size_t i = 0; i < strategies; i++)
        (void)fprintf(out, "%12s", o[i].strategy);
    (void)fprintf(out, "\n");
}

static void print_row(FILE *out, const struct figure *f, int width,
                      const struct outcome *o, size_t strategies)
{
    char cell[CELL_BYTES];

    (void)fprintf(out, "  %-*s", width - 2, f->title);
    for (size_t i = 0; i < strategies; i++) {
        write_cell(cell, f, &o[i]);
        (void)fprintf(out, "%12s", cell);
    }
    (void)fprintf(out, "\n");
}

void report_scenario(FILE *out, const struct outcome *o, size_t strategies)
{
    print_head(out, o->scenario, TITLE_WIDTH, o, strategies);
    for (size_t f = 0; f < FIGURES; f++)
        if (anybody_has(&figures[f], o, strategies))
            print_row(out, &figures[f], TITLE_WIDTH, o, strategies);
    for (size_t i = 0; i < strategies; i++)
        if (o[i].errors > 0)
            (void)fprintf(out, "  %s, first error: %s\n", o[i].strategy,
                          o[i].first_error);
    (void)fflush(out);
}

void report_setting(FILE *out, const struct options *options)
{
    (void)fprintf(out,
                  "%llu processes of %llu threads; a query costs %llu ms; "
                  "%llu items\n",
                  (unsigned long long)options->processes,
                  (unsigned long long)options->threads,
                  (unsigned long long)options->load_ms,
                  (unsigned long long)options->keys);
}

/* What each scenario is about. */
static const struct {
    const char *scenario;
    struct figure figure;
} summary[] = {
    {"breakdown",
     {"queries each time a hot key expires", NULL, per_expiry, NULL, 2}},
    {"avalanche", {"queries when all items expire", NULL, queries, NULL, 0}},
    {"avalanche", {"p99 of the calls then, ms", NULL, p99, NULL, 0}},
    {"crash",
     {"from a loader's death to the next, ms", NULL, recovery_p50, recovers,
      0}}};

static const char words[] =
    "\nexpiries              with the first load of all\n"
    "loads per key         keys in queries, by the different keys asked for\n"
    "wait after the load   from the end of the query to the caller's answer\n"
    "Redis commands        with those inside scripts\n"
    "A query costs this database nothing but time, however many run at once.\n";

void report_summary(FILE *out, const struct outcome *outcomes, size_t count)
{
    size_t strategies = strategies_of(outcomes, count);

    (void)fputs(words, out);
    if (strategies == count)
        return;
    print_head(out, "in short", SUMMARY_WIDTH, outcomes, strategies);
    for (size_t r = 0; r < sizeof(summary) / sizeof(*summary); r++)
        for (size_t i = 0; i < count; i += strategies)
            if (is(&outcomes[i], summary[r].scenario))
                print_row(out, &summary[r].figure, SUMMARY_WIDTH, &outcomes[i],
                          strategies);
}

static void print_series(FILE *out, const char *name, const uint64_t *values,
                         size_t count, double unit)
{
    (void)fprintf(out, ",\n      \"%s\": [", name);
    for (size_t i = 0; i < count; i++)
        (void)fprintf(out, "%s%g", i > 0 ? "," : "", (double)values[i] / unit);
    (void)fprintf(out, "]");
}

static void print_outcome(FILE *out, const struct outcome *o)
{
    char cell[CELL_BYTES];

    (void)fprintf(
        out,
        "    {\n      \"scenario\": \"%s\",\n      \"strategy\": \"%s\","
        "\n      \"seconds\": %.3f",
        o->scenario, o->strategy, o->seconds);
    for (size_t f = 0; f < FIGURES; f++) {
        if (figures[f].has != NULL && !figures[f].has(o))
            continue;
        write_cell(cell, &figures[f], o);
        (void)fprintf(out, ",\n      \"%s\": %s", figures[f].json, cell);
    }
    print_series(out, "queries_per_100_ms", o->slot_queries, o->slots, 1);
    print_series(out, "worst_latency_ms_per_100_ms", o->slot_worst_us, o->slots,
                 1000);
    (void)fprintf(out, "\n    }");
}

void report_json(FILE *out, const struct options *options,
                 const struct outcome *outcomes, size_t count)
{
    (void)fprintf(out,
                  "{\n  \"processes\": %llu,\n  \"threads\": %llu,\n"
                  "  \"load_ms\": %llu,\n  \"items\": %llu,\n"
                  "  \"outcomes\": [\n",
                  (unsigned long long)options->processes,
                  (unsigned long long)options->threads,
                  (unsigned long long)options->load_ms,
                  (unsigned long long)options->keys);
    for (size_t i = 0; i < count; i++) {
        print_outcome(out, &outcomes[i]);
        (void)fprintf(out, "%s\n", i + 1 < count ? "," : "");
    }
    (void)fprintf(out, "  ]\n}\n");
}
