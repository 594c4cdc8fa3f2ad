/* Whether a run kept what snowshed promises. */
#ifndef DEMO_VERDICT_H
#define DEMO_VERDICT_H

#include <stdbool.h>
#include <stdio.h>

#include "scenarios.h"

/* Name each promise that a strategy of snowshed broke, and what to do next.
 * Returns: whether all were kept; then nothing is printed. */
bool verdict_print(FILE *out, const struct options *options,
                   const struct outcome *outcomes, size_t count);

#endif
