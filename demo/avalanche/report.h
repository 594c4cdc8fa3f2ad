/* The outcomes as a table, as JSON, and as a picture. */
#ifndef DEMO_REPORT_H
#define DEMO_REPORT_H

#include <stdbool.h>
#include <stdio.h>

#include "scenarios.h"

/* outcomes stand by scenario, and in it by way. */
void report_table(FILE *out, const struct options *options,
                  const struct outcome *outcomes, size_t count);
void report_json(FILE *out, const struct options *options,
                 const struct outcome *outcomes, size_t count);
void report_svg(FILE *out, const struct outcome *outcomes, size_t count);

#endif
