/*
 * The picture for a README or a talk: the database queries of one scenario per
 * 100 ms over time, a line for each strategy, labelled where it ends, under a
 * headline with the figures. It is light or dark as the reader prefers. The
 * colours are of Okabe and Ito, which colour-blind people can tell apart.
 */
#include <math.h>
#include <string.h>

#include "report.h"

#define WIDTH 1200
#define HEIGHT 675
#define LEFT 96.0
#define RIGHT 1160.0
#define TOP 150.0
#define BOTTOM 590.0
#define FREE_PART 0.24 /* of the width, for the label of the last line */
#define LABEL_W 230.0
#define LABEL_H 50.0
#define NUMBER_BYTES 32
#define LINES_MAX 8

struct label {
    double x, y;
};

struct picture {
    const struct options *options;
    const struct outcome *lines; /* of one scenario */
    size_t count;
    double seconds, high; /* ends of the scales */
    struct label labels[LINES_MAX];
};

struct looks {
    const char *strategy, *title;
};

static const struct looks looks[] = {{"none", "no protection"},
                                     {"setnx", "SETNX lock"},
                                     {"snowshed", "snowshed"}};

static bool is_avalanche(const struct outcome *o)
{
    return strcmp(o->scenario, "avalanche") == 0;
}

static const char *title_of(const char *strategy)
{
    for (size_t i = 0; i < sizeof(looks) / sizeof(*looks); i++)
        if (strcmp(looks[i].strategy, strategy) == 0)
            return looks[i].title;
    return strategy;
}

/* 11984 as 11,984. */
static const char *grouped(char text[NUMBER_BYTES], uint64_t number)
{
    char digits[NUMBER_BYTES];
    int length =
        snprintf(digits, sizeof(digits), "%llu", (unsigned long long)number);
    size_t at = 0;

    for (int i = 0; i < length && at + 2 < NUMBER_BYTES; i++) {
        if (i > 0 && (length - i) % 3 == 0)
            text[at++] = ',';
        text[at++] = digits[i];
    }
    text[at] = '\0';
    return text;
}

/* 1, 2 or 5 times a power of ten, so that at most steps of them make the range.
 */
static double round_step(double range, double steps)
{
    static const double factors[] = {1, 2, 5, 10};
    double power = pow(10, floor(log10(range / steps)));

    for (size_t i = 0; i < sizeof(factors) / sizeof(*factors); i++)
        if (range / (power * factors[i]) <= steps)
            return power * factors[i];
    return power * 10;
}

static double x_of(const struct picture *p, double seconds)
{
    return LEFT + (RIGHT - LEFT) * seconds / p->seconds;
}

static double y_of(const struct picture *p, double queries)
{
    return BOTTOM - (BOTTOM - TOP) * queries / p->high;
}

/* ----------------------------------------------------------------- layout */

static void set_scales(struct picture *p)
{
    uint64_t most = 1;
    double longest = SLOT_MS / 1000.0, step;

    for (size_t l = 0; l < p->count; l++) {
        if (p->lines[l].seconds > longest)
            longest = p->lines[l].seconds;
        for (size_t i = 0; i < p->lines[l].slots; i++)
            if (p->lines[l].slot_queries[i] > most)
                most = p->lines[l].slot_queries[i];
    }
    p->seconds = longest / (1 - FREE_PART);
    step = round_step((double)most, 5);
    p->high = ceil((double)most / step) * step;
}

static bool overlap(const struct label *a, const struct label *b)
{
    return fabs(a->x - b->x) < LABEL_W && fabs(a->y - b->y) < LABEL_H;
}

/* At the end of its line, behind those that end a little later, and as far
 * above it as other labels are in the way. */
static void place_label(struct picture *p, size_t l)
{
    struct label *label = &p->labels[l];
    double mine = x_of(p, p->lines[l].seconds), end = mine;

    for (size_t i = 0; i < p->count; i++) {
        double other = x_of(p, p->lines[i].seconds);
        if (other > end && other < mine + LABEL_W)
            end = other;
    }
    label->x = end + 10;
    label->y = BOTTOM - 36;
    for (size_t i = 0; i < l;)
        if (overlap(&p->labels[i], label)) {
            label->y -= LABEL_H;
            i = 0;
        } else
            i++;
}

/* ---------------------------------------------------------------- drawing */

static void draw_style(FILE *out)
{
    (void)fprintf(
        out,
        "<svg xmlns='http://www.w3.org/2000/svg' width='%d' height='%d' "
        "viewBox='0 0 %d %d' role='img'>\n<style>\n"
        "text{font:20px system-ui,sans-serif;fill:#59636e}\n"
        ".ground{fill:#fff}.head{font-size:28px;font-weight:700;fill:#1f2328}\n"
        ".label{font-weight:700;font-size:22px}"
        ".x{text-anchor:middle}.y{text-anchor:end}\n"
        "text{paint-order:stroke;stroke:#fff;stroke-width:5px;"
        "stroke-linejoin:round}\n"
        ".grid{stroke:#d1d9e0}.line{fill:none;stroke-width:4;"
        "stroke-linejoin:round;stroke-linecap:round}.area{opacity:.12}\n"
        ".none{--c:#d55e00}.setnx{--c:#9a6700}.snowshed{--c:#0072b2}\n"
        ".line{stroke:var(--c)}.area,.label,.more{fill:var(--c)}\n"
        "@media (prefers-color-scheme:dark){\n"
        "text{fill:#9198a1;stroke:#0d1117}.ground{fill:#0d1117}"
        ".head{fill:#f0f6fc}.grid{stroke:#3d444d}\n"
        ".none{--c:#ff8a3d}.setnx{--c:#e8b339}.snowshed{--c:#56b4e9}"
        ".area{opacity:.2}}\n"
        "</style>\n",
        WIDTH, HEIGHT, WIDTH, HEIGHT);
}

/* What happened, with the figures of the first line and of the last one. */
static void write_headline(const struct picture *p, char *text, size_t size)
{
    const struct outcome *first = &p->lines[0], *last = first + p->count - 1;
    char keys[NUMBER_BYTES], a[NUMBER_BYTES], b[NUMBER_BYTES];
    int length =
        is_avalanche(first)
            ? snprintf(text, size,
                       "%s items expire at once: ", grouped(keys, first->keys))
            : snprintf(text, size, "%s: ", first->scenario);

    (void)snprintf(text + length, size - (size_t)length,
                   p->count > 1 ? "%s queries, or %s with %s" : "%s queries",
                   grouped(a, first->queries), grouped(b, last->queries),
                   title_of(last->strategy));
}

static void draw_head(FILE *out, const struct picture *p)
{
    const struct options *o = p->options;
    char headline[200];

    write_headline(p, headline, sizeof(headline));
    (void)fprintf(out,
                  "<title>%s</title>\n"
                  "<rect class='ground' width='100%%' height='100%%'/>\n"
                  "<text class='head' x='40' y='58'>%s</text>\n"
                  "<text x='40' y='94'>Database queries per %d ms, as %llu "
                  "processes of %llu threads read the items; a query takes "
                  "%llu ms</text>\n",
                  headline, headline, SLOT_MS, (unsigned long long)o->processes,
                  (unsigned long long)o->threads,
                  (unsigned long long)o->load_ms);
}

static void draw_axes(FILE *out, const struct picture *p)
{
    double step = round_step(p->high, 5);

    for (double v = 0; v <= p->high; v += step)
        (void)fprintf(out,
                      "<line class='grid' x1='%.0f' x2='%.0f' y1='%.1f' "
                      "y2='%.1f'/><text class='y' x='%.0f' y='%.1f'>%g</text>"
                      "\n",
                      LEFT, RIGHT, y_of(p, v), y_of(p, v), LEFT - 12,
                      y_of(p, v) + 7, v);
    step = round_step(p->seconds, 8);
    for (double s = 0; s <= p->seconds; s += step)
        (void)fprintf(out, "<text class='x' x='%.1f' y='%.0f'>%g</text>\n",
                      x_of(p, s), BOTTOM + 30, s);
    (void)fprintf(out, "<text class='x' x='%.0f' y='%.0f'>seconds%s</text>\n",
                  (LEFT + RIGHT) / 2, BOTTOM + 62,
                  is_avalanche(p->lines) ? " after the items have expired"
                                         : "");
}

/* The points of a line, from the axis to the axis. */
static void draw_points(FILE *out, const struct picture *p,
                        const struct outcome *o)
{
    const double slot_s = SLOT_MS / 1000.0;

    (void)fprintf(out, "%.1f,%.1f ", LEFT, BOTTOM);
    for (size_t i = 0; i < o->slots && (double)i * slot_s < o->seconds; i++)
        (void)fprintf(out, "%.1f,%.1f ",
                      x_of(p, fmin(((double)i + 0.5) * slot_s, o->seconds)),
                      y_of(p, (double)o->slot_queries[i]));
    (void)fprintf(out, "%.1f,%.1f", x_of(p, o->seconds), BOTTOM);
}

static void draw_line(FILE *out, const struct picture *p, size_t l)
{
    const struct outcome *o = &p->lines[l];

    (void)fprintf(out, "<g class='%s'><polygon class='area' points='",
                  o->strategy);
    draw_points(out, p, o);
    (void)fprintf(out, "'/><polyline class='line' points='");
    draw_points(out, p, o);
    (void)fprintf(out, "'/></g>\n");
}

static void draw_label(FILE *out, const struct picture *p, size_t l)
{
    const struct outcome *o = &p->lines[l];
    const struct label *label = &p->labels[l];
    char number[NUMBER_BYTES];

    (void)fprintf(out,
                  "<g class='%s'><text class='label' x='%.1f' y='%.1f'>%s"
                  "</text><text class='more' x='%.1f' y='%.1f'>%s queries in "
                  "%.1f s</text></g>\n",
                  o->strategy, label->x, label->y, title_of(o->strategy),
                  label->x, label->y + 23, grouped(number, o->queries),
                  o->seconds);
}

/* The avalanche, or, where it was not run, the first scenario. */
static void choose_lines(struct picture *p, const struct outcome *outcomes,
                         size_t count)
{
    size_t first = 0;

    while (first < count && !is_avalanche(&outcomes[first]))
        first++;
    if (first == count)
        first = 0;
    p->lines = &outcomes[first];
    while (first + p->count < count && p->count < LINES_MAX &&
           strcmp(p->lines[p->count].scenario, p->lines[0].scenario) == 0)
        p->count++;
}

void report_picture(FILE *out, const struct options *options,
                    const struct outcome *outcomes, size_t count)
{
    struct picture p = {.options = options};

    choose_lines(&p, outcomes, count);
    set_scales(&p);
    for (size_t l = p.count; l-- > 0;)
        p.labels[l] = (struct label){0, -LABEL_H};
    for (size_t l = 0; l < p.count; l++)
        place_label(&p, l);
    draw_style(out);
    draw_head(out, &p);
    draw_axes(out, &p);
    for (size_t l = 0; l < p.count; l++)
        draw_line(out, &p, l);
    for (size_t l = 0; l < p.count; l++)
        draw_label(out, &p, l);
    (void)fprintf(out, "</svg>\n");
}
