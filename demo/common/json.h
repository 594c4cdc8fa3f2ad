/* JSON for the demos' --json, on jansson. Memory that is out is found at the
 * end: jansson passes NULL on. */
#ifndef DEMO_JSON_H
#define DEMO_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

/* A number with so many decimals, an integer if there are none; null for NAN.
 */
json_t *json_number(double value, int decimals);

/* Write the value and release it. Returns false if that failed. */
bool json_write(FILE *out, json_t *root);

#endif
