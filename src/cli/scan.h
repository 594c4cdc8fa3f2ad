/* The parts of scan, besides the count of one cache's entries. */
#ifndef CLI_SCAN_H
#define CLI_SCAN_H

#include "cli/out.h"
#include "cli/ranking.h"

/* List the caches of a Redis. Returns: whether there are some. */
bool cli_scan_caches(const struct cli_call *call);

/* Show the hottest keys of a cache. Returns: whether it has entries. */
bool cli_scan_hot(const struct cli_call *call);

/* Add a key of the call's cache to a list, with its rank, called so. */
void cli_scan_show_key(const struct cli_call *call,
                       const struct cli_ranked *ranked, json_t *list,
                       const char *rank);

/* What to say where the cache of a call has no entries: which caches do. */
struct cli_text cli_cache_advice(const struct cli_call *call);

/* Say that it has none, and the advice. */
void cli_cache_hint(const struct cli_call *call);

#endif
