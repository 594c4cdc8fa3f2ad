/*
 * The sheet: a row for each scenario, with the latency on the left and the
 * database queries on the right, per 100 ms over time, for each strategy. The
 * thick line of a latency is p99, the thin one p50, and the area between them
 * is shaded. Both scales are logarithmic, because the strategies differ by
 * orders of magnitude.
 */
#include <math.h>
#include <string.h>

#include "report.h"
#include "svg.h"

#define FONT_PX 13
#define PANEL_W 470.0
#define PANEL_H 180.0
#define LEFT 60.0
#define LABELS_W 110.0 /* beside each panel */
#define GAP 55.0
#define TOP 130.0
#define ROW_H (PANEL_H + 105.0)
#define WIDTH ((int)(LEFT + 2 * PANEL_W + 2 * LABELS_W + GAP))
#define LABEL_PX 16.0
#define TICK_PX 6.0
#define QUERIES_LOW 0.5 /* where zero is drawn */
#define LINES_MAX 8

enum series { P50, P99, QUERIES };

struct panel {
    double x, y;
    double seconds;
    double low, high; /* powers of ten, except QUERIES_LOW */
};

/* The value of a series in a moment; NAN: no call has returned. */
static double value_at(const struct outcome *o, enum series series, size_t i)
{
    const struct moment *m = &o->moment[i];

    if (series == QUERIES)
        return (double)m->queries;
    if (!m->has_calls)
        return NAN;
    return series == P50 ? m->p50_ms : m->p99_ms;
}

static double x_of(const struct panel *p, double seconds)
{
    return p->x + PANEL_W * (p->seconds > 0 ? seconds / p->seconds : 0);
}

static double y_of(const struct panel *p, double value)
{
    double at = log10(fmax(value, p->low));

    return p->y + PANEL_H * (1 - (at - log10(p->low)) /
                                     (log10(p->high) - log10(p->low)));
}

static struct panel make_panel(const struct outcome *o, size_t strategies,
                               enum series series, double x, double y)
{
    struct panel p = {.x = x, .y = y, .high = 10};
    double least = 1000;

    for (size_t w = 0; w < strategies; w++) {
        p.seconds = fmax(p.seconds, o[w].seconds);
        for (size_t i = 0; i < o[w].moments; i++) {
            while (value_at(&o[w], series, i) > p.high)
                p.high *= 10;
            if (series == P99)
                least = fmin(least, value_at(&o[w], P50, i));
        }
    }
    p.low = series == QUERIES ? QUERIES_LOW
                              : fmax(0.1, pow(10, floor(log10(least))));
    return p;
}

static void draw_axes(FILE *out, const struct panel *p, const char *title)
{
    double step = svg_round_step(p->seconds, 8);

    (void)fprintf(out, "<text x='%.0f' y='%.0f'>%s</text>\n", p->x, p->y - 10,
                  title);
    for (double v = p->low == QUERIES_LOW ? 1 : p->low; v <= p->high; v *= 10)
        (void)fprintf(
            out,
            "<line class='grid' x1='%.0f' x2='%.0f' y1='%.1f' "
            "y2='%.1f'/><text class='y' x='%.0f' y='%.1f'>%g</text>\n",
            p->x, p->x + PANEL_W, y_of(p, v), y_of(p, v), p->x - 6,
            y_of(p, v) + 4, v);
    for (double s = 0; s <= p->seconds; s += step)
        (void)fprintf(out, "<text class='x' x='%.1f' y='%.0f'>%g</text>\n",
                      x_of(p, s), p->y + PANEL_H + 22, s);
    (void)fprintf(out, "<text class='x' x='%.0f' y='%.0f'>seconds</text>\n",
                  p->x + PANEL_W / 2, p->y + PANEL_H + 40);
}

/* The number of consecutive moments with a value, from first on. */
static size_t run_of(const struct outcome *o, enum series series, size_t first)
{
    size_t i = first;

    while (i < o->moments && !isnan(value_at(o, series, i)))
        i++;
    return i - first;
}

static void draw_points(FILE *out, const struct panel *p,
                        const struct outcome *o, enum series series, size_t i)
{
    double at_s = ((double)i + 0.5) * SLOT_MS / 1000.0;

    (void)fprintf(out, "%.1f,%.1f ", x_of(p, fmin(at_s, o->seconds)),
                  y_of(p, value_at(o, series, i)));
}

static void draw_line(FILE *out, const struct panel *p, const struct outcome *o,
                      enum series series)
{
    for (size_t i = 0, n; i < o->moments; i += n + 1) {
        n = run_of(o, series, i);
        if (n == 0)
            continue;
        (void)fprintf(out, "<polyline class='line%s' points='",
                      series == P50 ? " thin" : "");
        for (size_t k = i; k < i + n; k++)
            draw_points(out, p, o, series, k);
        (void)fprintf(out, "'/>\n");
    }
}

/* Draw the area between p50 and p99. */
static void draw_band(FILE *out, const struct panel *p, const struct outcome *o)
{
    for (size_t i = 0, n; i < o->moments; i += n + 1) {
        n = run_of(o, P99, i);
        if (n == 0)
            continue;
        (void)fprintf(out, "<polygon class='area' points='");
        for (size_t k = i; k < i + n; k++)
            draw_points(out, p, o, P99, k);
        for (size_t k = i + n; k-- > i;)
            draw_points(out, p, o, P50, k);
        (void)fprintf(out, "'/>\n");
    }
}

/* The height at which a line ends, where its label should be. */
static double end_of(const struct panel *p, const struct outcome *o,
                     enum series series)
{
    for (size_t i = o->moments; i-- > 0;)
        if (value_at(o, series, i) > 0)
            return y_of(p, value_at(o, series, i));
    return p->y + PANEL_H;
}

/* Keep the labels apart by moving the upper ones up. */
static void spread(double *y, size_t count)
{
    size_t order[LINES_MAX];

    for (size_t i = 0; i < count; i++) {
        size_t k = i;
        for (; k > 0 && y[order[k - 1]] < y[i]; k--)
            order[k] = order[k - 1];
        order[k] = i;
    }
    for (size_t i = 1; i < count; i++)
        y[order[i]] = fmin(y[order[i]], y[order[i - 1]] - LABEL_PX);
}

static void draw_labels(FILE *out, const struct panel *p,
                        const struct outcome *o, size_t strategies,
                        enum series series)
{
    double y[LINES_MAX];

    for (size_t w = 0; w < strategies; w++)
        y[w] = end_of(p, &o[w], series);
    spread(y, strategies);
    for (size_t w = 0; w < strategies; w++)
        (void)fprintf(out,
                      "<g class='%s'><text class='label' x='%.0f' y='%.1f'>%s"
                      "</text></g>\n",
                      o[w].strategy, p->x + PANEL_W + 8, y[w] + 4,
                      svg_title_of(o[w].strategy));
}

/* Mark on the axis what was done to the cache. */
static void draw_marks(FILE *out, const struct panel *p,
                       const struct outcome *o)
{
    for (size_t i = 0; i < o->marks; i++)
        (void)fprintf(
            out,
            "<line class='line' x1='%.1f' x2='%.1f' y1='%.1f' y2='%.1f'/>\n",
            x_of(p, o->mark_s[i]), x_of(p, o->mark_s[i]), p->y + PANEL_H,
            p->y + PANEL_H + TICK_PX);
}

static void draw_panel(FILE *out, const struct outcome *o, size_t strategies,
                       enum series series, double x, double y)
{
    struct panel p = make_panel(o, strategies, series, x, y);

    draw_axes(out, &p,
              series == QUERIES ? "database queries begun in each 100 ms"
                                : "latency of the calls that ended in each "
                                  "100 ms, in ms: p50 and, thick, p99");
    for (size_t w = 0; w < strategies; w++) {
        (void)fprintf(out, "<g class='%s'>\n", o[w].strategy);
        if (series == P99) {
            draw_band(out, &p, &o[w]);
            draw_line(out, &p, &o[w], P50);
        }
        draw_line(out, &p, &o[w], series);
        draw_marks(out, &p, &o[w]);
        (void)fprintf(out, "</g>\n");
    }
    draw_labels(out, &p, o, strategies, series);
}

static void draw_setting(FILE *out, const struct options *o)
{
    (void)fprintf(out,
                  "<text class='head' x='%.0f' y='30'>Latency and database "
                  "queries over time</text>\n<text x='%.0f' y='54'>%llu "
                  "processes of %llu threads; %llu items; a query takes %llu "
                  "ms",
                  LEFT, LEFT, (unsigned long long)o->processes,
                  (unsigned long long)o->threads, (unsigned long long)o->keys,
                  (unsigned long long)o->load_ms);
    if (o->db_capacity > 0)
        (void)fprintf(out, ", %llu work at once",
                      (unsigned long long)o->db_capacity);
    (void)fprintf(out, ". Ticks: what was done to the cache.</text>\n");
}

static size_t strategies_of(const struct outcome *o, size_t count)
{
    size_t n = 1;

    while (n < count && n < LINES_MAX &&
           strcmp(o[n].scenario, o->scenario) == 0)
        n++;
    return n;
}

void report_sheet(FILE *out, const struct options *options,
                  const struct outcome *outcomes, size_t count)
{
    size_t rows = 0, row = 0;

    for (size_t i = 0; i < count; i += strategies_of(&outcomes[i], count - i))
        rows++;
    svg_begin(out, WIDTH, (int)(TOP + (double)rows * ROW_H), FONT_PX,
              "Latency and database queries over time");
    draw_setting(out, options);
    for (size_t i = 0, n; i < count; i += n, row++) {
        const struct outcome *o = &outcomes[i];
        double y = TOP + (double)row * ROW_H;
        n = strategies_of(o, count - i);
        (void)fprintf(out,
                      "<text class='title' x='%.0f' y='%.0f'>%s: %s</text>\n",
                      LEFT, y - 30, o->scenario, report_story(o->scenario));
        draw_panel(out, o, n, P99, LEFT, y);
        draw_panel(out, o, n, QUERIES, LEFT + PANEL_W + LABELS_W + GAP, y);
    }
    (void)fprintf(out, "</svg>\n");
}
