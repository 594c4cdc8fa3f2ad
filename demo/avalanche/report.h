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
/* One scenario in 1200 by 675: the avalanche, or the first that was run. */
void report_picture(FILE *out, const struct options *options,
                    const struct outcome *outcomes, size_t count);
/* All scenarios: latency and queries over time, a row each. */
void report_sheet(FILE *out, const struct outcome *outcomes, size_t count);

#endif
