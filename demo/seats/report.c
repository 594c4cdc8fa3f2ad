/* The table has a row per scene; below it, the two halls, side by side. In
 * JSON every scene has all figures. */
#include "report.h"

#include <stddef.h>
#include <string.h>

#include "scenarios.h"

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

static void print_row(FILE *out, const char *title, const char *happened,
                      const char *expected, const char *verdict)
{
    (void)fprintf(out, "%-27s%-52s%-29s%s\n", title, happened, expected,
                  verdict);
}

static const struct outcome *find(const struct scenario *scenario,
                                  const struct outcome *outcomes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(outcomes[i].name, scenario->name) == 0)
            return &outcomes[i];
    return NULL;
}

static void print_halls(FILE *out, const struct outcome *without,
                        const struct outcome *with)
{
    (void)fprintf(out, "\n%-40s%10s%10s\n", "the hall", "without", "with");
    for (size_t f = 0; f < FIGURES; f++)
        (void)fprintf(out, "  %-38s%10llu%10llu\n", figures[f].title,
                      value(&figures[f], without), value(&figures[f], with));
    (void)fprintf(out, "  %-38s%10.2f%10.2f\n", "seconds", without->seconds,
                  with->seconds);
}

void seats_table(FILE *out, const struct options *o,
                 const struct outcome *outcomes, size_t count)
{
    const struct outcome *without = find(&rush_without, outcomes, count);
    const struct outcome *with = find(&rush_with, outcomes, count);

    (void)fprintf(out,
                  "a seat is held for %llu ms; a hall of %llu seats, %llu "
                  "buyers, %llu processes of %llu threads, %llu kills\n\n",
                  (unsigned long long)o->hold_ms, (unsigned long long)o->seats,
                  (unsigned long long)o->buyers,
                  (unsigned long long)o->processes,
                  (unsigned long long)o->threads, (unsigned long long)o->kills);
    print_row(out, "scene", "what happened", "expected", "result");
    for (size_t i = 0; i < count; i++)
        print_row(out, outcomes[i].title, outcomes[i].happened,
                  outcomes[i].expected, outcomes[i].verdict);
    if (without != NULL && with != NULL)
        print_halls(out, without, with);
}

/* Texts here are ours, or a reason that has no quotes to be trusted with. */
static void print_text(FILE *out, const char *name, const char *text)
{
    (void)fprintf(out, "      \"%s\": \"", name);
    for (; *text != '\0'; text++)
        if (*text >= ' ' && *text != '"' && *text != '\\')
            (void)fputc(*text, out);
    (void)fprintf(out, "\",\n");
}

static void print_outcome(FILE *out, const struct outcome *o)
{
    (void)fprintf(out, "    {\n");
    print_text(out, "scene", o->name);
    print_text(out, "happened", o->happened);
    print_text(out, "expected", o->expected);
    print_text(out, "result", o->verdict);
    (void)fprintf(out, "      \"showing\": %llu",
                  (unsigned long long)o->showing);
    for (size_t f = 0; f < FIGURES; f++)
        (void)fprintf(out, ",\n      \"%s\": %llu", figures[f].json,
                      value(&figures[f], o));
    (void)fprintf(out, ",\n      \"seconds\": %.3f\n    }", o->seconds);
}

void seats_json(FILE *out, const struct options *o,
                const struct outcome *outcomes, size_t count)
{
    bool is_good = true;

    for (size_t i = 0; i < count; i++)
        is_good &= outcomes[i].is_good;
    (void)fprintf(out,
                  "{\n  \"hold_ms\": %llu,\n  \"seats\": %llu,\n"
                  "  \"buyers\": %llu,\n  \"processes\": %llu,\n"
                  "  \"threads\": %llu,\n  \"kills\": %llu,\n"
                  "  \"seed\": %llu,\n  \"held\": %s,\n  \"scenes\": [\n",
                  (unsigned long long)o->hold_ms, (unsigned long long)o->seats,
                  (unsigned long long)o->buyers,
                  (unsigned long long)o->processes,
                  (unsigned long long)o->threads, (unsigned long long)o->kills,
                  (unsigned long long)o->seed, is_good ? "true" : "false");
    for (size_t i = 0; i < count; i++) {
        print_outcome(out, &outcomes[i]);
        (void)fprintf(out, "%s\n", i + 1 < count ? "," : "");
    }
    (void)fprintf(out, "  ]\n}\n");
}
