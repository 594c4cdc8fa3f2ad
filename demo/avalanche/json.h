/* JSON for the demos' --json, with jansson. Running out of memory is detected
 * at the end, because jansson passes NULL on. */
#ifndef DEMO_JSON_H
#define DEMO_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

/* A number with this many decimals; an integer if there are none; null for
 * NAN. */
json_t *json_number(double value, int decimals);

/* Write the value and release it. Returns false if that failed. */
bool json_write(FILE *out, json_t *root);

#endif
