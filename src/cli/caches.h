/* Which caches have entries in a Redis. */
#ifndef CLI_CACHES_H
#define CLI_CACHES_H

#include "cli/entry_view.h"

struct cli_cache {
    char name[SHED_NAME_MAX_BYTES + 1];
    uint64_t count[CLI_KINDS]; /* entries */
    uint64_t written;          /* rows, and "no such row", of the last minute */
    bool has_tags;             /* its rows heed a log of tags */
};

struct cli_caches {
    struct cli_cache *list;
    size_t count;
    uint64_t left_out; /* entries of caches beyond the first thousand */
    uint64_t denied;   /* keys that this user may not read */
};

/* Look at keys of the database, at this rate (0: 20000 per second), until
 * keys_max of them have been looked at, at least. */
void cli_caches_find(struct cli_redis *redis, uint64_t rate, uint64_t keys_max,
                     struct cli_caches *out);
void cli_caches_free(struct cli_caches *caches);

/* What to say where a cache has no entries: ": did you mean 'item'?", or how to
 * find its name. */
#define CLI_ADVICE_BYTES 128
const char *cli_cache_advice(struct cli_redis *redis, const char *name,
                             char text[CLI_ADVICE_BYTES]);

#endif
