/* The outcomes of the flash sale as a table and as JSON. */
#ifndef DEMO_FLASHSALE_REPORT_H
#define DEMO_FLASHSALE_REPORT_H

#include <stdbool.h>
#include <stdio.h>

#include "runner.h"

/* The outcomes of one strategy must be adjacent. */
void flashsale_table(FILE *out, const struct options *options,
                     const struct outcome *outcomes, size_t count);
/* Returns false if it could not be written. */
bool flashsale_json(FILE *out, const struct options *options,
                    const struct outcome *outcomes, size_t count);

#endif
