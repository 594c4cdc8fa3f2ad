/* See svg.h. */
#include "svg.h"

#include <math.h>
#include <string.h>

struct looks {
    const char *strategy, *title;
};

static const struct looks looks[] = {{"none", "no protection"},
                                     {"setnx", "SETNX lock"},
                                     {"snowshed", "snowshed"},
                                     {"snowshed-refresh", "early refresh"}};

const char *svg_title_of(const char *strategy)
{
    for (size_t i = 0; i < sizeof(looks) / sizeof(*looks); i++)
        if (strcmp(looks[i].strategy, strategy) == 0)
            return looks[i].title;
    return strategy;
}

void svg_begin(FILE *out, int width, int height, int font_px, const char *title)
{
    (void)fprintf(
        out,
        "<svg xmlns='http://www.w3.org/2000/svg' width='%d' height='%d' "
        "viewBox='0 0 %d %d' role='img'>\n<title>%s</title>\n<style>\n"
        "text{font:%dpx system-ui,sans-serif;fill:#59636e}\n"
        ".ground{fill:#fff}.head{font-size:%dpx}.head{font-weight:700;"
        "fill:#1f2328}\n"
        ".label{font-weight:700}.x{text-anchor:middle}.y{text-anchor:end}\n"
        "text{paint-order:stroke;stroke:#fff;stroke-width:4px;"
        "stroke-linejoin:round}\n"
        ".grid{stroke:#d1d9e0}.event,.limit{stroke:#59636e;"
        "stroke-dasharray:3 4}\n"
        ".line{fill:none;stroke-width:3;stroke-linejoin:round;"
        "stroke-linecap:round}.area{opacity:.18}\n"
        ".none{--c:#d55e00}.setnx{--c:#9a6700}.snowshed{--c:#0072b2}"
        ".snowshed-refresh{--c:#007a5a}\n"
        ".line{stroke:var(--c)}.area,.label{fill:var(--c)}\n"
        "@media (prefers-color-scheme:dark){\n"
        "text{fill:#9198a1;stroke:#0d1117}.ground{fill:#0d1117}"
        ".head{fill:#f0f6fc}.grid{stroke:#3d444d}"
        ".event,.limit{stroke:#9198a1}\n"
        ".none{--c:#ff8a3d}.setnx{--c:#e8b339}.snowshed{--c:#56b4e9}"
        ".snowshed-refresh{--c:#2fc796}"
        ".area{opacity:.28}}\n"
        "</style>\n<rect class='ground' width='100%%' height='100%%'/>\n",
        width, height, width, height, title, font_px, font_px * 7 / 5);
}

const char *svg_grouped(char text[NUMBER_BYTES], uint64_t number)
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

double svg_round_step(double range, double steps)
{
    static const double factors[] = {1, 2, 5, 10};
    double power = pow(10, floor(log10(range / steps)));

    for (size_t i = 0; i < sizeof(factors) / sizeof(*factors); i++)
        if (range / (power * factors[i]) <= steps)
            return power * factors[i];
    return power * 10;
}
