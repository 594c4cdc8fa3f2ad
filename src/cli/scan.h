/* The parts of scan, besides the count of one cache's entries. */
#ifndef CLI_SCAN_H
#define CLI_SCAN_H

#include "cli/out.h"
#include "cli/ranking.h"

/* List the caches of a Redis. Returns: whether there are some. */
bool cli_scan_caches(const struct cli_call *call);

/* Show the hottest keys of a cache. Returns: whether it has entries. */
bool cli_scan_hot(const struct cli_call *call);

/* Print the end of a line: a key of the cache, as a word that a shell passes on
 * as it is. Returns: its item in the list, with the key. */
json_t *cli_scan_show_key(const struct cli_call *call,
                          const struct cli_ranked *ranked, json_t *list);

/* What to say where the cache of a call has no entries: which caches do. */
struct cli_text cli_cache_advice(const struct cli_call *call);

/* Print, without JSON, that it has none, and the advice. */
void cli_cache_print_none(const struct cli_call *call, const char *before);

#endif
