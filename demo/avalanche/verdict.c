/* The promises of snowshed, checked in its outcomes. What is written by hand
 * promises nothing. */
#include "verdict.h"

#include <string.h>

struct judge {
    FILE *out;
    const struct outcome *first; /* that broke a promise; NULL: none did */
};

static void expect(struct judge *j, const struct outcome *o, const char *what,
                   uint64_t value, uint64_t promised)
{
    if (value <= promised)
        return;
    if (j->first == NULL) {
        (void)fprintf(j->out, "\nBroken promises of snowshed:\n");
        j->first = o;
    }
    (void)fprintf(j->out, "  %s, %s: %s: %llu (promised: %llu)\n", o->scenario,
                  o->strategy, what, (unsigned long long)value,
                  (unsigned long long)promised);
}

static bool is_in(const struct outcome *o, enum scenario scenario)
{
    return strcmp(o->scenario, scenario_names[scenario]) == 0;
}

/* While a server fails, a call may have to fail, unless it can be given a row
 * that is within its stale window. */
static bool forbids_errors(const struct options *options,
                           const struct outcome *o)
{
    if (is_in(o, REDIS_DOWN) || is_in(o, RESTART))
        return false;
    if (is_in(o, DB_DOWN) || is_in(o, SLOW_DB))
        return options->down_seconds * 1000 < o->stale_ms;
    return true;
}

static void judge(struct judge *j, const struct options *options,
                  const struct outcome *o)
{
    /* a killed process does not report the ends of its queries */
    if (!is_in(o, CRASH))
        expect(j, o, "most queries at once", o->most_under_way, o->bound);
    expect(j, o, "calls after their deadline", o->late_calls, 0);
    expect(j, o, "out-of-date answers", o->stale, 0);
    if (is_in(o, BREAKDOWN) && outcome_is_refreshed(o))
        expect(j, o, "calls that waited", o->waited, 0);
    else if (is_in(o, BREAKDOWN))
        expect(j, o, "queries for the expiries", o->queries, o->events);
    if (forbids_errors(options, o))
        expect(j, o, "errors", o->errors, 0);
}

bool verdict_print(FILE *out, const struct options *options,
                   const struct outcome *outcomes, size_t count)
{
    struct judge j = {.out = out};

    for (size_t i = 0; i < count; i++)
        if (outcomes[i].bound > 0)
            judge(&j, options, &outcomes[i]);
    if (j.first != NULL)
        (void)fprintf(out,
                      "Run it again on an idle machine, with the same options "
                      "and\n--scenario %s --protect %s --json FILE.\nIf it "
                      "is broken again, that is a bug: report it with the "
                      "file.\n",
                      j.first->scenario, j.first->strategy);
    return j.first == NULL;
}
