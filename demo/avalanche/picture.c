/*
 * The picture for a README or a talk: the database queries of one scenario per
 * 100 ms over time, with a panel for each strategy, all on the same scales, and
 * a headline with the figures. Labels have their own column, so that none hides
 * a line or another label.
 */
#include <math.h>
#include <string.h>

#include "report.h"
#include "svg.h"

#define WIDTH 1200
#define HEIGHT 675
#define FONT_PX 20
#define MARGIN 40.0
#define LEFT 330.0
#define RIGHT 1160.0
#define TOP 150.0
#define BOTTOM 604.0
#define PANEL_GAP 26.0
#define LINE_PX 27.0
#define END_LABEL_W 250.0
#define END_LABEL_PX 14.0
#define END_LABEL_PART 0.65 /* of the height: above the database's limit */
#define PANELS_MAX 8

struct picture {
    const struct options *options;
    const struct outcome *lines; /* of one scenario */
    size_t count;
    double seconds, high; /* ends of the scales */
    double panel_h;
};

static bool is_avalanche(const struct outcome *o)
{
    return strcmp(o->scenario, "avalanche") == 0;
}

static double x_of(const struct picture *p, double seconds)
{
    return LEFT + (RIGHT - LEFT) * seconds / p->seconds;
}

/* The height of a panel's axis. */
static double bottom_of(const struct picture *p, size_t panel)
{
    return TOP + (double)(panel + 1) * p->panel_h + (double)panel * PANEL_GAP;
}

static double y_of(const struct picture *p, size_t panel, double queries)
{
    return bottom_of(p, panel) - p->panel_h * queries / p->high;
}

/* How many queries the database can execute per moment; 0: no limit. */
static double limit_of(const struct options *o)
{
    return o->load_ms > 0
               ? (double)(o->db_capacity * SLOT_MS) / (double)o->load_ms
               : 0;
}

static void set_scales(struct picture *p)
{
    uint64_t most = 1;
    double step;

    p->seconds = SLOT_MS / 1000.0;
    for (size_t l = 0; l < p->count; l++) {
        p->seconds = fmax(p->seconds, p->lines[l].seconds);
        for (size_t i = 0; i < p->lines[l].moments; i++)
            if (p->lines[l].moment[i].queries > most)
                most = p->lines[l].moment[i].queries;
    }
    step = svg_round_step((double)most, 2);
    p->high = ceil((double)most / step) * step;
    p->panel_h =
        (BOTTOM - TOP - (double)(p->count - 1) * PANEL_GAP) / (double)p->count;
}

/* Write what happened, with the figures of the first and the last strategy. */
static void write_headline(const struct picture *p, char *text, size_t size)
{
    const struct outcome *first = &p->lines[0], *last = first + p->count - 1;
    char keys[NUMBER_BYTES], a[NUMBER_BYTES], b[NUMBER_BYTES];
    int length = is_avalanche(first)
                     ? snprintf(text, size, "%s items expire at once: ",
                                svg_grouped(keys, first->keys))
                     : snprintf(text, size, "%s: ", first->scenario);

    (void)snprintf(text + length, size - (size_t)length,
                   p->count > 1 ? "%s queries, or %s with %s" : "%s queries",
                   svg_grouped(a, first->queries),
                   svg_grouped(b, last->queries), svg_title_of(last->strategy));
}

static void draw_head(FILE *out, const struct picture *p)
{
    const struct options *o = p->options;
    char headline[200], limit[80] = "";

    write_headline(p, headline, sizeof(headline));
    svg_begin(out, WIDTH, HEIGHT, FONT_PX, headline);
    if (o->db_capacity > 0)
        (void)snprintf(limit, sizeof(limit), ", %llu work at once",
                       (unsigned long long)o->db_capacity);
    (void)fprintf(
        out,
        "<text class='head' x='%.0f' y='58'>%s</text>\n"
        "<text x='%.0f' y='92'>Database queries per %d ms. %llu "
        "processes of %llu threads read; a query takes %llu ms%s"
        "</text>\n",
        MARGIN, headline, MARGIN, SLOT_MS, (unsigned long long)o->processes,
        (unsigned long long)o->threads, (unsigned long long)o->load_ms, limit);
}

static void draw_grid(FILE *out, const struct picture *p, size_t panel)
{
    double step = svg_round_step(p->high, 2);

    for (double v = 0; v <= p->high; v += step)
        (void)fprintf(out,
                      "<line class='grid' x1='%.0f' x2='%.0f' y1='%.1f' "
                      "y2='%.1f'/><text class='y' x='%.0f' y='%.1f'>%g</text>"
                      "\n",
                      LEFT, RIGHT, y_of(p, panel, v), y_of(p, panel, v),
                      LEFT - 12, y_of(p, panel, v) + 7, v);
}

static void draw_seconds(FILE *out, const struct picture *p)
{
    double step = svg_round_step(p->seconds, 8);

    for (double s = 0; s <= p->seconds; s += step)
        (void)fprintf(out, "<text class='x' x='%.1f' y='%.0f'>%g</text>\n",
                      x_of(p, s), BOTTOM + 28, s);
    (void)fprintf(out, "<text class='x' x='%.0f' y='%.0f'>seconds%s</text>\n",
                  (LEFT + RIGHT) / 2, BOTTOM + 56,
                  is_avalanche(p->lines) ? " after all items have expired"
                                         : "");
}

/* Mark across the panel what was done to the cache. */
static void draw_events(FILE *out, const struct picture *p, size_t panel)
{
    const struct outcome *o = &p->lines[panel];

    for (size_t i = 0; i < o->marks; i++)
        (void)fprintf(out,
                      "<line class='event' x1='%.1f' x2='%.1f' y1='%.1f' "
                      "y2='%.1f'/>\n",
                      x_of(p, o->mark_s[i]), x_of(p, o->mark_s[i]),
                      bottom_of(p, panel), bottom_of(p, panel) - p->panel_h);
    if (panel == 0 && o->marks > 0)
        (void)fprintf(out, "<text x='%.1f' y='%.1f'>&#9662; %s</text>\n",
                      x_of(p, o->mark_s[0]) - 6, TOP - 14, o->mark_text);
}

/* Draw the points of a line, with a step per moment; it begins and ends at the
 * axis. */
static void draw_points(FILE *out, const struct picture *p, size_t panel)
{
    const struct outcome *o = &p->lines[panel];
    const double slot_s = SLOT_MS / 1000.0;

    (void)fprintf(out, "%.1f,%.1f ", LEFT, bottom_of(p, panel));
    for (size_t i = 0; i < o->moments && (double)i * slot_s < o->seconds; i++) {
        double y = y_of(p, panel, (double)o->moment[i].queries);
        (void)fprintf(out, "%.1f,%.1f %.1f,%.1f ", x_of(p, (double)i * slot_s),
                      y, x_of(p, fmin((double)(i + 1) * slot_s, o->seconds)),
                      y);
    }
    (void)fprintf(out, "%.1f,%.1f", x_of(p, o->seconds), bottom_of(p, panel));
}

static void draw_line(FILE *out, const struct picture *p, size_t panel)
{
    (void)fprintf(out, "<polygon class='area' points='");
    draw_points(out, p, panel);
    (void)fprintf(out, "'/><polyline class='line' points='");
    draw_points(out, p, panel);
    (void)fprintf(out, "'/>\n");
}

/* Draw the capacity of the database as a line. */
static void draw_limit(FILE *out, const struct picture *p, size_t panel)
{
    double limit = limit_of(p->options), y = y_of(p, panel, limit);

    if (limit <= 0 || limit >= p->high)
        return;
    (void)fprintf(
        out, "<line class='limit' x1='%.0f' x2='%.0f' y1='%.1f' y2='%.1f'/>\n",
        LEFT, RIGHT, y, y);
    if (panel == 0)
        (void)fprintf(out,
                      "<text class='y' x='%.0f' y='%.1f'>&#9476;&#9476; all "
                      "that the database can do</text>\n",
                      RIGHT, TOP - 14);
}

/* Write the strategy and its figures beside the panel. */
static void draw_label(FILE *out, const struct picture *p, size_t panel)
{
    const struct outcome *o = &p->lines[panel];
    double y = bottom_of(p, panel) - p->panel_h / 2 - LINE_PX / 2;
    char number[NUMBER_BYTES];

    (void)fprintf(out,
                  "<text class='label' x='%.0f' y='%.1f'>%s</text>"
                  "<text x='%.0f' y='%.1f'>%s queries</text>"
                  "<text x='%.0f' y='%.1f'>slowest call %.1f s</text>\n",
                  MARGIN, y, svg_title_of(o->strategy), MARGIN, y + LINE_PX,
                  svg_grouped(number, o->queries), MARGIN, y + 2 * LINE_PX,
                  o->max_ms / 1000);
}

/* For an avalanche, write when it was over: behind the line's end, or in front
 * of it. */
static void draw_end(FILE *out, const struct picture *p, size_t panel)
{
    const struct outcome *o = &p->lines[panel];
    double x = x_of(p, o->seconds);
    bool has_room = x + END_LABEL_W < RIGHT;

    if (is_avalanche(o))
        (void)fprintf(out,
                      "<text class='label%s' x='%.1f' y='%.1f'>all read after "
                      "%.1f s</text>\n",
                      has_room ? "" : " y", has_room ? x + 12 : x - 12,
                      bottom_of(p, panel) - (has_room
                                                 ? END_LABEL_PX
                                                 : p->panel_h * END_LABEL_PART),
                      o->seconds);
}

/* Choose the avalanche, or the first scenario if that was not run. */
static void choose_lines(struct picture *p, const struct outcome *outcomes,
                         size_t count)
{
    size_t first = 0;

    while (first < count && !is_avalanche(&outcomes[first]))
        first++;
    if (first == count)
        first = 0;
    p->lines = &outcomes[first];
    while (first + p->count < count && p->count < PANELS_MAX &&
           strcmp(p->lines[p->count].scenario, p->lines[0].scenario) == 0)
        p->count++;
}

void report_picture(FILE *out, const struct options *options,
                    const struct outcome *outcomes, size_t count)
{
    struct picture p = {.options = options};

    choose_lines(&p, outcomes, count);
    set_scales(&p);
    draw_head(out, &p);
    for (size_t i = 0; i < p.count; i++) {
        (void)fprintf(out, "<g class='%s'>\n", p.lines[i].strategy);
        draw_grid(out, &p, i);
        draw_line(out, &p, i);
        draw_limit(out, &p, i);
        draw_events(out, &p, i);
        draw_label(out, &p, i);
        draw_end(out, &p, i);
        (void)fprintf(out, "</g>\n");
    }
    draw_seconds(out, &p);
    (void)fprintf(out, "</svg>\n");
}
