/* The table has two lines per scenario; below it, the two halls, side by side.
 * In JSON every scenario has all figures. */
#include "report.h"

#include <stddef.h>
#include <string.h>

#include "common/json.h"
#include "scenarios.h"

#define LINE_WIDTH 80

struct figure {
    const char *json, *title;
    size_t offset;
};

#define FIGURE(json, title, field)                                             \
    {                                                                          \
        json, title, offsetof(struct outcome, field)                           \
    }

static const struct figure figures[] = {
#define PROOF_ROW(field, title) FIGURE(#field, title, proof.field),
    PROOF_FIGURES(PROOF_ROW)
#undef PROOF_ROW
        FIGURE("told_bought", "told that they have one", told[ANSWER_BOUGHT]),
    FIGURE("told_held", "told that others hold it", told[ANSWER_TAKEN]),
    FIGURE("told_sold", "told that all are sold", told[ANSWER_SOLD]),
    FIGURE("told_lost", "told that the hold has ended", told[ANSWER_LOST]),
    FIGURE("told_nothing", "buyers whose process was killed",
           told[ANSWER_NONE]),
    FIGURE("killed_holding", "... while they had chosen a seat",
           killed_holding),
    FIGURE("kills", "processes killed", kills),
    FIGURE("refused", "payments refused by the guard", refused),
    FIGURE("lost", "holds that ended before the release", lost),
    FIGURE("errors", "errors", errors),
};

#define FIGURES (sizeof(figures) / sizeof(*figures))

static unsigned long long value(const struct figure *f, const struct outcome *o)
{
    return *(const uint64_t *)(const void *)((const char *)o + f->offset);
}

/* What happened gets its own line, because it can be long. */
static void print_scenario(FILE *out, const struct outcome *o)
{
    (void)fprintf(out, "%-28s%-40s%12s\n  %.*s\n", o->title, o->expected,
                  o->verdict, LINE_WIDTH - 2, o->happened);
}

static const struct outcome *find(const struct scenario *scenario,
                                  const struct outcome *outcomes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(outcomes[i].name, scenario->name) == 0)
            return &outcomes[i];
    return NULL;
}

static const char words[] =
    "  without, with: holds; the lock on a seat while its buyer chooses and "
    "pays\n"
    "  charged for a seat of another: charged, but somebody else has the seat\n"
    "  told: what the buyers were told, beside what the database says\n"
    "  guard: the fencing check in the transaction that sells\n";

static void print_halls(FILE *out, const struct outcome *without,
                        const struct outcome *with)
{
    (void)fprintf(out, "\n%-40s%10s%10s\n", "the hall", "without", "with");
    for (size_t f = 0; f < FIGURES; f++)
        (void)fprintf(out, "  %-38s%10llu%10llu\n", figures[f].title,
                      value(&figures[f], without), value(&figures[f], with));
    (void)fprintf(out, "  %-38s%10.2f%10.2f\n%s", "seconds", without->seconds,
                  with->seconds, words);
}

void seats_table(FILE *out, const struct options *o,
                 const struct outcome *outcomes, size_t count)
{
    const struct outcome *without = find(&rush_without, outcomes, count);
    const struct outcome *with = find(&rush_with, outcomes, count);

    (void)fprintf(out,
                  "a seat is held for %llu ms; a hall of %llu seats, %llu "
                  "buyers,\n%llu processes of %llu threads, %llu "
                  "kills\n\n%-28s%-40s%12s\n",
                  (unsigned long long)o->hold_ms, (unsigned long long)o->seats,
                  (unsigned long long)o->buyers,
                  (unsigned long long)o->processes,
                  (unsigned long long)o->threads, (unsigned long long)o->kills,
                  "scenario", "expected", "result");
    for (size_t i = 0; i < count; i++)
        print_scenario(out, &outcomes[i]);
    if (without != NULL && with != NULL)
        print_halls(out, without, with);
}

static json_t *outcome_json(const struct outcome *o)
{
    json_t *object =
        json_pack("{s:s, s:s, s:s, s:s, s:I}", "scenario", o->name, "happened",
                  o->happened, "expected", o->expected, "result", o->verdict,
                  "showing", (json_int_t)o->showing);

    for (size_t f = 0; f < FIGURES; f++)
        json_object_set_new(object, figures[f].json,
                            json_integer((json_int_t)value(&figures[f], o)));
    json_object_set_new(object, "seconds", json_number(o->seconds, 3));
    return object;
}

bool seats_json(FILE *out, const struct options *o,
                const struct outcome *outcomes, size_t count)
{
    json_t *scenarios = json_array();
    bool is_good = true;

    for (size_t i = 0; i < count; i++) {
        is_good &= outcomes[i].is_good;
        json_array_append_new(scenarios, outcome_json(&outcomes[i]));
    }
    return json_write(
        out,
        json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:o}", "hold_ms",
                  (json_int_t)o->hold_ms, "seats", (json_int_t)o->seats,
                  "buyers", (json_int_t)o->buyers, "processes",
                  (json_int_t)o->processes, "threads", (json_int_t)o->threads,
                  "kills", (json_int_t)o->kills, "seed", (json_int_t)o->seed,
                  "held", (int)is_good, "scenarios", scenarios));
}
