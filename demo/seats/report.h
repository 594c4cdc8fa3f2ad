/* The scenarios as a table, and as JSON. */
#ifndef DEMO_SEATS_REPORT_H
#define DEMO_SEATS_REPORT_H

#include <stdbool.h>
#include <stdio.h>

#include "runner.h"

void seats_table(FILE *out, const struct options *options,
                 const struct outcome *outcomes, size_t count);
/* Returns false if it could not be written. */
bool seats_json(FILE *out, const struct options *options,
                const struct outcome *outcomes, size_t count);

#endif
