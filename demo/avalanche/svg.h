/* What the pictures share: a head with colours, light or dark as the reader
 * prefers, and numbers. The colours are of Okabe and Ito, which colour-blind
 * people can tell apart. */
#ifndef DEMO_SVG_H
#define DEMO_SVG_H

#include <stdint.h>
#include <stdio.h>

#define NUMBER_BYTES 32

/* Begin a picture; </svg> is the caller's. Classes: head, label (in the
 * colour of its group), x and y (centred, right-aligned), grid, event; line and
 * area in the colour of their group, whose class is the name of a strategy. */
void svg_begin(FILE *out, int width, int height, int font_px,
               const char *title);

/* 11984 as 11,984. */
const char *svg_grouped(char text[NUMBER_BYTES], uint64_t number);

/* 1, 2 or 5 times a power of ten, so that at most steps of them make the range.
 */
double svg_round_step(double range, double steps);

/* A strategy's name in words. */
const char *svg_title_of(const char *strategy);

#endif
