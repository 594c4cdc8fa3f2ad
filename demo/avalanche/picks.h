/* Which items the threads of a scenario ask for. The processes inherit the
 * lists, and share the marks of what was asked for. */
#ifndef DEMO_PICKS_H
#define DEMO_PICKS_H

#include "record.h"

#define HOT_ID 1

struct picks {
    struct record *record;
    uint64_t keys;        /* items have the ids 1 to keys */
    uint64_t page;        /* items per call */
    double *zipf;         /* cumulative */
    uint64_t *deck;       /* every id once, in a random order */
    unsigned char *asked; /* by pick_absent; shared */
};

/* Make the lists; keys and page must be set before. Returns false when out of
 * memory. */
bool picks_init(struct picks *picks, uint64_t random, double zipf);

/* Returns how many different ids pick_absent has asked for. */
uint64_t picks_asked(const struct picks *picks);

/* What a thread asks for next (fleet_pick); the context is a struct picks. */

/* The hot item. */
size_t pick_hot(void *context, uint64_t *random, uint64_t *ids);
/* One item, the popular ones more often. */
size_t pick_zipf(void *context, uint64_t *random, uint64_t *ids);
/* An item that does not exist, the popular ones more often. */
size_t pick_absent(void *context, uint64_t *random, uint64_t *ids);
/* A page of a shop: one half from the deck, until every item has been on a
 * page, the other half popular items. */
size_t pick_page(void *context, uint64_t *random, uint64_t *ids);
/* A page of the deck. */
size_t pick_deck(void *context, uint64_t *random, uint64_t *ids);

#endif
