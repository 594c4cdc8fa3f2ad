/* The table and the JSON: one list of figures serves both. */
#include "report.h"

#include <string.h>

#define CELL_BYTES 32

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

static bool has_hot_key(const struct outcome *o)
{
    return expires(o) || crashes(o);
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
    {"database queries", "queries", queries, NULL, 0},
    {"expiries", "expiries", expiries, expires, 0},
    {"queries per expiry", "queries_per_expiry", per_expiry, expires, 2},
    {"different keys asked for", "keys", keys, has_keys, 0},
    {"loads per key", "loads_per_key", per_key, has_keys, 2},
    {"most queries at once", "most_queries_at_once", at_once, NULL, 0},
    {"kill to next load, p50 ms", "recovery_p50_ms", recovery_p50, recovers, 0},
    {"kill to next load, max ms", "recovery_max_ms", recovery_max, recovers, 0},
    {"calls per second", "calls_per_second", throughput, NULL, 0},
    {"latency p50 ms", "latency_p50_ms", p50, NULL, 2},
    {"latency p99 ms", "latency_p99_ms", p99, NULL, 2},
    {"latency p99.9 ms", "latency_p999_ms", p999, NULL, 2},
    {"latency max ms", "latency_max_ms", worst, NULL, 2},
    {"calls that waited for a load", "waited", waited, has_hot_key, 0},
    {"wait after the load, p50 ms", "extra_wait_p50_ms", extra_p50, waits, 2},
    {"wait after the load, p99 ms", "extra_wait_p99_ms", extra_p99, waits, 2},
    {"Redis commands", "redis_commands", redis_commands, NULL, 0},
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
static size_t ways_of(const struct outcome *o, size_t count)
{
    size_t n = 1;

    while (n < count && strcmp(o[n].scenario, o->scenario) == 0)
        n++;
    return n;
}

static void print_block(FILE *out, const struct outcome *o, size_t ways)
{
    char cell[CELL_BYTES];

    (void)fprintf(out, "\n%-30s", o->scenario);
    for (size_t i = 0; i < ways; i++)
        (void)fprintf(out, "%12s", o[i].way);
    (void)fprintf(out, "\n");
    for (size_t f = 0; f < FIGURES; f++) {
        if (!anybody_has(&figures[f], o, ways))
            continue;
        (void)fprintf(out, "  %-28s", figures[f].title);
        for (size_t i = 0; i < ways; i++) {
            write_cell(cell, &figures[f], &o[i]);
            (void)fprintf(out, "%12s", cell);
        }
        (void)fprintf(out, "\n");
    }
    for (size_t i = 0; i < ways; i++)
        if (o[i].errors > 0)
            (void)fprintf(out, "  %s, first error: %s\n", o[i].way,
                          o[i].first_error);
}

void report_table(FILE *out, const struct options *options,
                  const struct outcome *outcomes, size_t count)
{
    (void)fprintf(out,
                  "%llu processes of %llu threads; a query costs %llu ms; "
                  "%llu items\n",
                  (unsigned long long)options->processes,
                  (unsigned long long)options->threads,
                  (unsigned long long)options->load_ms,
                  (unsigned long long)options->keys);
    for (size_t i = 0, n; i < count; i += n) {
        n = ways_of(&outcomes[i], count - i);
        print_block(out, &outcomes[i], n);
    }
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

    (void)fprintf(out,
                  "    {\n      \"scenario\": \"%s\",\n      \"way\": \"%s\","
                  "\n      \"seconds\": %.3f",
                  o->scenario, o->way, o->seconds);
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
