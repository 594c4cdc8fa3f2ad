/* The table and the JSON: one list of figures serves both. A strategy with
 * several sales has two columns, the least and the most. */
#include "report.h"

#include <stddef.h>
#include <string.h>

#include "common/json.h"

#define CELL_BYTES 32

/* A figure without a title appears only in the JSON. */
struct figure {
    const char *json, *title;
    size_t offset;
    int decimals;
};

static const struct figure figures[] = {
#define SALE_ROW(field, title, decimals)                                       \
    {#field, title, offsetof(struct outcome, field), decimals},
    SALE_FIGURES(SALE_ROW)
#undef SALE_ROW
};

#define FIGURES (sizeof(figures) / sizeof(*figures))

static double value(const struct figure *f, const struct outcome *o)
{
    return *(const double *)(const void *)((const char *)o + f->offset);
}

static void write_cell(char cell[CELL_BYTES], const struct figure *f, double n)
{
    (void)snprintf(cell, CELL_BYTES, "%.*f", f->decimals, n);
}

/* How many outcomes from o on belong to the same strategy. */
static size_t sales_of(const struct outcome *o, size_t count)
{
    size_t n = 1;

    while (n < count && strcmp(o[n].strategy, o->strategy) == 0)
        n++;
    return n;
}

static void print_headings(FILE *out, const struct outcome *o, size_t count)
{
    bool has_ranges = false;

    (void)fprintf(out, "\n%-36s", "");
    for (size_t i = 0, n; i < count; i += n) {
        n = sales_of(&o[i], count - i);
        (void)fprintf(out, "%10s", o[i].strategy);
        if (n > 1)
            (void)fprintf(out, ", %zu sales", n);
        has_ranges |= n > 1;
    }
    (void)fprintf(out, "\n");
    if (!has_ranges)
        return;
    (void)fprintf(out, "%-36s", "");
    for (size_t i = 0, n; i < count; i += n) {
        n = sales_of(&o[i], count - i);
        if (n > 1)
            (void)fprintf(out, "%10s%10s", "least", "most");
        else
            (void)fprintf(out, "%10s", "");
    }
    (void)fprintf(out, "\n");
}

static void print_range(FILE *out, const struct figure *f,
                        const struct outcome *o, size_t count)
{
    double least = value(f, o), most = least;
    char cell[CELL_BYTES];

    for (size_t i = 1; i < count; i++) {
        double n = value(f, &o[i]);
        least = n < least ? n : least;
        most = n > most ? n : most;
    }
    write_cell(cell, f, least);
    (void)fprintf(out, "%10s", cell);
    if (count == 1)
        return;
    write_cell(cell, f, most);
    (void)fprintf(out, "%10s", cell);
}

/* Print how many of a strategy's sales were exact. */
static void print_verdict(FILE *out, const struct options *options,
                          const struct outcome *o, size_t count)
{
    uint64_t due =
        options->pieces < options->buyers ? options->pieces : options->buyers;
    size_t exact = 0;

    for (size_t i = 0; i < count; i++)
        exact += o[i].is_exact;
    (void)fprintf(out, "%s: %zu of %zu sales sold exactly %llu\n", o->strategy,
                  exact, count, (unsigned long long)due);
    for (size_t i = 0; i < count; i++)
        if (o[i].errors > 0)
            (void)fprintf(out, "sale %llu, first error: %s\n",
                          (unsigned long long)o[i].item, o[i].first_error);
}

static const char words[] =
    "  sold without being there: orders above the number of pieces\n"
    "  seconds: of 'none' for more orders than of the others\n"
    "  transactions at once: those between reading the stock and COMMIT\n"
    "  turned away by the cache alone: told 'sold out' without a query\n"
    "  guard: the fencing check in the transaction\n"
    "  older token: older than that of the order before them\n";

void flashsale_table(FILE *out, const struct options *options,
                     const struct outcome *o, size_t count)
{
    (void)fprintf(out,
                  "%llu pieces, %llu buyers, %llu %% of them ask twice;\n%llu "
                  "processes of %llu threads, %llu killed in each sale\n",
                  (unsigned long long)options->pieces,
                  (unsigned long long)options->buyers,
                  (unsigned long long)options->twice_pct,
                  (unsigned long long)options->processes,
                  (unsigned long long)options->threads,
                  (unsigned long long)options->kills);
    print_headings(out, o, count);
    for (size_t f = 0; f < FIGURES; f++) {
        if (figures[f].title == NULL)
            continue;
        (void)fprintf(out, "  %-34s", figures[f].title);
        for (size_t i = 0, n; i < count; i += n) {
            n = sales_of(&o[i], count - i);
            print_range(out, &figures[f], &o[i], n);
        }
        (void)fprintf(out, "\n");
    }
    (void)fprintf(out, "%s\n", words);
    for (size_t i = 0, n; i < count; i += n) {
        n = sales_of(&o[i], count - i);
        print_verdict(out, options, &o[i], n);
    }
}

static json_t *outcome_json(const struct outcome *o)
{
    json_t *object =
        json_pack("{s:s, s:I, s:b}", "strategy", o->strategy, "item",
                  (json_int_t)o->item, "exact", (int)o->is_exact);

    for (size_t f = 0; f < FIGURES; f++)
        json_object_set_new(
            object, figures[f].json,
            json_number(value(&figures[f], o), figures[f].decimals));
    return object;
}

bool flashsale_json(FILE *out, const struct options *o,
                    const struct outcome *outcomes, size_t count)
{
    json_t *sales = json_array();

    for (size_t i = 0; i < count; i++)
        json_array_append_new(sales, outcome_json(&outcomes[i]));
    return json_write(
        out, json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o}", "pieces",
                       (json_int_t)o->pieces, "buyers", (json_int_t)o->buyers,
                       "twice_pct", (json_int_t)o->twice_pct, "processes",
                       (json_int_t)o->processes, "threads",
                       (json_int_t)o->threads, "kills", (json_int_t)o->kills,
                       "seed", (json_int_t)o->seed, "sales", sales));
}
