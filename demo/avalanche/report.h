/* The outcomes as a table, as JSON, and as a picture. */
#ifndef DEMO_REPORT_H
#define DEMO_REPORT_H

#include <stdbool.h>
#include <stdio.h>

#include "scenarios.h"

/* The table: first the settings, then a block for each scenario with
 * explanations below it, then, for several scenarios, the essential figures.
 * outcomes are ordered by scenario, and within one by strategy. */
void report_setting(FILE *out, const struct options *options);
void report_scenario(FILE *out, const struct outcome *outcomes,
                     size_t strategies);
void report_summary(FILE *out, const struct outcome *outcomes, size_t count);
/* Returns false if it could not be written. */
bool report_json(FILE *out, const struct options *options,
                 const struct outcome *outcomes, size_t count);
/* One scenario in 1200 by 675: the avalanche, or the first that was run. */
void report_picture(FILE *out, const struct options *options,
                    const struct outcome *outcomes, size_t count);
/* What happens in a scenario, in one sentence. */
const char *report_story(const char *scenario);

#endif
