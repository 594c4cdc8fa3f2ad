/*
 * The sheet: a row for each scenario; left the worst latency, right the
 * database queries, per 100 ms over time, a line for each strategy. Both scales
 * are logarithmic, because the strategies differ by orders of magnitude.
 * Colours by Okabe and Ito, which colour-blind people tell apart; each line
 * also has a dash pattern of its own.
 */
#include <math.h>
#include <string.h>

#include "report.h"

#define PANEL_W 460
#define PANEL_H 170
#define LEFT 70
#define GAP 90
#define TOP 80
#define ROW_H (PANEL_H + 80)
#define WIDTH (LEFT + PANEL_W + GAP + PANEL_W + 30)

struct panel {
    double x, y;
    double seconds;
    double low, high; /* powers of ten */
};

struct style {
    const char *strategy, *colour, *dash;
};

static const struct style styles[] = {{"none", "#d55e00", "7 3"},
                                      {"setnx", "#e69f00", "2 3"},
                                      {"snowshed", "#0072b2", "none"}};

static const struct style *style_of(const char *strategy)
{
    for (size_t i = 0; i < sizeof(styles) / sizeof(*styles); i++)
        if (strcmp(styles[i].strategy, strategy) == 0)
            return &styles[i];
    return &styles[0];
}

static double value_at(const struct outcome *o, bool is_latency, size_t i)
{
    return is_latency ? (double)o->slot_worst_us[i] / 1000
                      : (double)o->slot_queries[i];
}

static double x_of(const struct panel *p, double seconds)
{
    return p->x + PANEL_W * (p->seconds > 0 ? seconds / p->seconds : 0);
}

static double y_of(const struct panel *p, double value)
{
    double at = log10(value > 0 ? value : p->low);

    if (at < log10(p->low))
        at = log10(p->low);
    return p->y + PANEL_H * (1 - (at - log10(p->low)) /
                                     (log10(p->high) - log10(p->low)));
}

static struct panel make_panel(const struct outcome *o, size_t strategies,
                               bool is_latency, double x, double y)
{
    struct panel p = {
        .x = x, .y = y, .low = is_latency ? 0.1 : 0.5, .high = 10};

    for (size_t w = 0; w < strategies; w++) {
        if (o[w].seconds > p.seconds)
            p.seconds = o[w].seconds;
        for (size_t i = 0; i < o[w].slots; i++)
            while (value_at(&o[w], is_latency, i) > p.high)
                p.high *= 10;
    }
    return p;
}

/* A round number of seconds between marks, eight marks at most. */
static double tick_seconds(double seconds)
{
    double tick = 0.5;

    while (seconds / tick > 8)
        tick *= 2;
    return tick;
}

static void draw_axes(FILE *out, const struct panel *p, const char *title)
{
    double tick = tick_seconds(p->seconds);

    (void)fprintf(out,
                  "<text class='title' x='%.0f' y='%.0f'>%s</text>\n"
                  "<rect class='panel' x='%.0f' y='%.0f' width='%d' "
                  "height='%d'/>\n",
                  p->x, p->y - 8, title, p->x, p->y, PANEL_W, PANEL_H);
    for (double v = p->low < 0.3 ? p->low : 1; v <= p->high; v *= 10)
        (void)fprintf(
            out,
            "<line class='grid' x1='%.0f' x2='%.0f' y1='%.1f' "
            "y2='%.1f'/><text class='y' x='%.0f' y='%.1f'>%g</text>\n",
            p->x, p->x + PANEL_W, y_of(p, v), y_of(p, v), p->x - 6,
            y_of(p, v) + 4, v);
    for (double s = 0; s <= p->seconds; s += tick)
        (void)fprintf(out, "<text class='x' x='%.1f' y='%.0f'>%g</text>\n",
                      x_of(p, s), p->y + PANEL_H + 16, s);
    (void)fprintf(out, "<text class='x' x='%.0f' y='%.0f'>seconds</text>\n",
                  p->x + PANEL_W / 2, p->y + PANEL_H + 32);
}

/* A slot in which no call returned has no latency: there the line breaks. */
static void draw_line(FILE *out, const struct panel *p, const struct outcome *o,
                      bool is_latency)
{
    const struct style *style = style_of(o->strategy);
    const double slot_s = SLOT_MS / 1000.0;

    const char *head = "<polyline stroke='%s' stroke-dasharray='%s' points='";

    (void)fprintf(out, head, style->colour, style->dash);
    for (size_t i = 0; i < o->slots; i++)
        if (is_latency && o->slot_worst_us[i] == 0) {
            (void)fprintf(out, "'/>\n");
            (void)fprintf(out, head, style->colour, style->dash);
        } else
            (void)fprintf(out, "%.1f,%.1f ", x_of(p, (double)i * slot_s),
                          y_of(p, value_at(o, is_latency, i)));
    (void)fprintf(out, "'/>\n");
}

static void draw_panel(FILE *out, const struct outcome *o, size_t strategies,
                       bool is_latency, double x, double y)
{
    struct panel p = make_panel(o, strategies, is_latency, x, y);
    char title[120];

    (void)snprintf(title, sizeof(title), "%s: %s", o->scenario,
                   is_latency ? "worst latency of each 100 ms, in ms"
                              : "database queries begun in each 100 ms");
    draw_axes(out, &p, title);
    for (size_t w = 0; w < strategies; w++)
        draw_line(out, &p, &o[w], is_latency);
}

static void draw_head(FILE *out, size_t rows, const struct outcome *o,
                      size_t strategies)
{
    double height = TOP + (double)rows * ROW_H;

    (void)fprintf(
        out,
        "<svg xmlns='http://www.w3.org/2000/svg' width='%d' height='%.0f' "
        "viewBox='0 0 %d %.0f'>\n<style>\n"
        "text{font:12px sans-serif;fill:#333}.title{font-weight:bold}"
        ".head{font-size:18px}.x{text-anchor:middle}.y{text-anchor:end}"
        ".panel{fill:#fff;stroke:#999}.grid{stroke:#e4e4e4}"
        "polyline{fill:none;stroke-width:1.8;stroke-linejoin:round}\n"
        "</style>\n<rect width='100%%' height='100%%' fill='#fafafa'/>\n"
        "<text class='head' x='%d' y='30'>Latency and database "
        "queries</text>\n",
        WIDTH, height, WIDTH, height, LEFT);
    for (size_t w = 0; w < strategies; w++) {
        const struct style *style = style_of(o[w].strategy);
        double x = WIDTH - 330.0 + 105.0 * (double)w;
        (void)fprintf(out,
                      "<line x1='%.0f' x2='%.0f' y1='26' y2='26' stroke='%s' "
                      "stroke-width='3' stroke-dasharray='%s'/>"
                      "<text x='%.0f' y='30'>%s</text>\n",
                      x, x + 26, style->colour, style->dash, x + 32,
                      o[w].strategy);
    }
}

void report_sheet(FILE *out, const struct outcome *outcomes, size_t count)
{
    size_t rows = 0, strategies = 0, row = 0;

    for (size_t i = 0; i < count; i++) {
        rows += i == 0 ||
                strcmp(outcomes[i].scenario, outcomes[i - 1].scenario) != 0;
        strategies += strcmp(outcomes[i].scenario, outcomes[0].scenario) == 0;
    }
    draw_head(out, rows, outcomes, strategies);
    for (size_t i = 0; i < count; i += strategies, row++) {
        double y = TOP + (double)row * ROW_H;
        draw_panel(out, &outcomes[i], strategies, true, LEFT, y);
        draw_panel(out, &outcomes[i], strategies, false, LEFT + PANEL_W + GAP,
                   y);
    }
    (void)fprintf(out, "</svg>\n");
}
