/* All that was measured, for the script that shows it. */
#include "outcome.h"

#include <jansson.h>
#include <math.h>

/* Memory that is out is noticed at the end, because jansson passes NULL on. No
 * decimals: an integer. */
static json_t *number(double value, int decimals)
{
    double unit = pow(10, decimals);

    return decimals == 0 ? json_integer((json_int_t)llround(value))
                         : json_real(round(value * unit) / unit);
}

static void add_moments(json_t *object, const struct outcome *o)
{
    json_t *queries = json_array(), *p50s = json_array(), *p99s = json_array();

    for (size_t i = 0; i < o->moments; i++) {
        const struct moment *m = &o->moment[i];
        json_array_append_new(queries, json_integer((json_int_t)m->queries));
        json_array_append_new(p50s, m->has_calls ? number(m->p50_ms, 3)
                                                 : json_null());
        json_array_append_new(p99s, m->has_calls ? number(m->p99_ms, 3)
                                                 : json_null());
    }
    json_object_set_new(object, "queries_per_100_ms", queries);
    json_object_set_new(object, "latency_p50_ms_per_100_ms", p50s);
    json_object_set_new(object, "latency_p99_ms_per_100_ms", p99s);
}

static void add_marks(json_t *object, const struct outcome *o)
{
    json_t *marks = json_array();

    for (size_t i = 0; i < o->marks; i++)
        json_array_append_new(marks, number(o->mark_s[i], 3));
    json_object_set_new(object, "mark_s", marks);
    json_object_set_new(object, "mark_text",
                        json_string(o->mark_text != NULL ? o->mark_text : ""));
}

bool outcome_write(FILE *out, const struct outcome *o)
{
#define COUNT(field)                                                           \
    {                                                                          \
#field, (double)o->field, 0                                            \
    }
#define TIME(field)                                                            \
    {                                                                          \
#field, o->field, 6                                                    \
    }
    const struct {
        const char *name;
        double value;
        int decimals;
    } figures[] = {
        TIME(seconds),        COUNT(queries),        COUNT(queried_keys),
        COUNT(events),        COUNT(keys),           COUNT(calls),
        COUNT(errors),        COUNT(redis_commands), COUNT(most_under_way),
        COUNT(slow_calls),    COUNT(slow_ms),        COUNT(waited),
        COUNT(late_calls),    COUNT(timeout_ms),     COUNT(stale),
        COUNT(told_late),     COUNT(bound),          COUNT(stale_ms),
        TIME(slack_ms),       TIME(p50_ms),          TIME(p99_ms),
        TIME(max_ms),         TIME(busy_ms),         TIME(calm_ms),
        TIME(extra_p50_ms),   TIME(extra_p99_ms),    TIME(recovery_p50_ms),
        TIME(recovery_max_ms)};
#undef COUNT
#undef TIME
    json_t *object =
        json_pack("{s:s, s:s, s:s}", "scenario", o->scenario, "strategy",
                  o->strategy, "first_error", o->first_error);
    bool is_written;

    for (size_t i = 0; i < sizeof(figures) / sizeof(figures[0]); i++)
        json_object_set_new(object, figures[i].name,
                            number(figures[i].value, figures[i].decimals));
    add_marks(object, o);
    add_moments(object, o);
    is_written = object != NULL && json_dumpf(object, out, JSON_COMPACT) == 0 &&
                 fputc('\n', out) != EOF && fflush(out) == 0;
    json_decref(object);
    return is_written;
}
