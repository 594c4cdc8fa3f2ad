/* All that was measured, for the script that shows it. */
#include <jansson.h>
#include <math.h>
#include <string.h>

#include "runner.h"

/* What is not lateness of a call: 200 threads whose deadlines end together need
 * a moment of two cores; and two threads are woken for the end of a call, the
 * reactor and the caller, each as late as this machine ends a sleep. */
#define SLACK_US 50000
#define SLACK_SLEEPS 2

/* Memory that is out is noticed at the end, because jansson passes NULL on. No
 * decimals: an integer. */
static json_t *number(double value, int decimals)
{
    double unit = pow(10, decimals);

    return decimals == 0 ? json_integer((json_int_t)llround(value))
                         : json_real(round(value * unit) / unit);
}

/* A percentile of a slot; null if no call returned in it. */
static json_t *moment(const struct slot *slot, double part)
{
    return slot->latency.max_us > 0
               ? number(histogram_ms(&slot->latency, part), 3)
               : json_null();
}

static void add_moments(json_t *object, const struct runner *c)
{
    json_t *queries = json_array(), *p50s = json_array(), *p99s = json_array();
    uint64_t us = c->end_us - c->record->start_us;

    for (size_t i = 0; i <= us / (SLOT_MS * 1000) && i < SLOTS; i++) {
        const struct slot *slot = &c->record->slot[i];
        json_array_append_new(queries, number((double)slot->queries, 0));
        json_array_append_new(p50s, moment(slot, 0.5));
        json_array_append_new(p99s, moment(slot, 0.99));
    }
    json_object_set_new(object, "queries_per_100_ms", queries);
    json_object_set_new(object, "latency_p50_ms_per_100_ms", p50s);
    json_object_set_new(object, "latency_p99_ms_per_100_ms", p99s);
}

static void add_marks(json_t *object, const struct runner *c)
{
    json_t *marks = json_array();

    for (size_t i = 0; i < c->marks; i++)
        json_array_append_new(marks, number(c->mark_s[i], 3));
    json_object_set_new(object, "mark_s", marks);
    json_object_set_new(object, "mark_text",
                        json_string(c->mark_text != NULL ? c->mark_text : ""));
}

static void add_figures(json_t *object, const struct runner *c)
{
    const struct record *r = c->record;
    bool is_ours = strncmp(c->strategy->name, "snowshed", 8) == 0;
    bool is_refreshed = c->strategy == &strategy_refresh;
    uint64_t slow_ms = 2 * c->load_ms;
    uint64_t slack_us = SLACK_US + SLACK_SLEEPS * r->sleep_late_us;
    const struct settings *s = &c->fleet.settings;
    const struct {
        const char *name;
        double value;
        int decimals;
    } figures[] = {
        {"seconds", (double)(c->end_us - r->start_us) / 1e6, 6},
        {"queries", (double)c->queries, 0}, /* by the server's own counter */
        {"queried_keys", (double)r->queried_keys, 0},
        {"events", (double)c->events, 0},
        {"keys", (double)c->keys, 0},
        {"calls", (double)r->calls, 0},
        {"errors", (double)r->errors, 0},
        {"redis_commands", (double)c->commands, 0},
        {"most_under_way", (double)r->most_under_way, 0},
        {"slow_calls", (double)histogram_above(&r->latency, slow_ms * 1000), 0},
        {"slow_ms", (double)slow_ms, 0},
        {"waited", (double)r->waited, 0},
        /* calls that ended later than slack_ms after timeout_ms; 0 where calls
         * have no deadline */
        {"late_calls",
         is_ours ? (double)histogram_above(&r->over, slack_us) : 0, 0},
        {"timeout_ms", is_ours ? (double)s->timeout_ms : 0, 0},
        {"slack_ms", is_ours ? (double)slack_us / 1000 : 0, 6},
        {"stale", (double)r->stale, 0},
        {"told_late", (double)r->told_late, 0},
        /* queries at once that there may be; 0: any number */
        {"bound",
         is_ours ? (double)(c->options->max_loads * c->options->processes) : 0,
         0},
        /* that a row is given out after its ttl */
        {"stale_ms", is_refreshed ? (double)s->stale_ms : 0, 0},
        {"p50_ms", histogram_ms(&r->latency, 0.5), 6},
        {"p99_ms", histogram_ms(&r->latency, 0.99), 6},
        {"max_ms", histogram_ms(&r->latency, 1), 6},
        {"busy_ms", histogram_ms(&r->busy, 0.999), 6},
        {"calm_ms", histogram_ms(&r->calm, 0.999), 6},
        {"extra_p50_ms", histogram_ms(&r->extra, 0.5), 6},
        {"extra_p99_ms", histogram_ms(&r->extra, 0.99), 6},
        {"recovery_p50_ms", c->recovery_p50_ms, 6},
        {"recovery_max_ms", c->recovery_max_ms, 6}};

    for (size_t i = 0; i < sizeof(figures) / sizeof(figures[0]); i++)
        json_object_set_new(object, figures[i].name,
                            number(figures[i].value, figures[i].decimals));
}

bool outcome_write(FILE *out, const struct runner *c)
{
    json_t *object = json_pack(
        "{s:s, s:s, s:s}", "scenario", scenario_names[c->scenario], "strategy",
        c->strategy->name, "first_error", c->record->first_error);
    bool is_written;

    add_figures(object, c);
    add_marks(object, c);
    add_moments(object, c);
    is_written = object != NULL && json_dumpf(object, out, JSON_COMPACT) == 0 &&
                 fputc('\n', out) != EOF && fflush(out) == 0;
    json_decref(object);
    return is_written;
}
