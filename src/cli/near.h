/* What somebody may have meant by a word that is not known. Pure. */
#ifndef CLI_NEAR_H
#define CLI_NEAR_H

#include <stddef.h>

struct cli_near {
    const char *word;
    const char *best; /* NULL: nothing that was offered is near */
    size_t distance;  /* of best */
};

/* Take a name for the best if it is nearer than those before it. A name is near
 * if it differs from the word in one place only, by a third of the word's
 * characters and one more at most: most slips are in one place (F. Damerau, "A
 * technique for computer detection and correction of spelling errors", 1964).
 * Keeps a pointer to name. */
void cli_near_offer(struct cli_near *near, const char *name);

#endif
