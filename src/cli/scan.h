/* The parts of scan, besides the count of one cache's entries. */
#ifndef CLI_SCAN_H
#define CLI_SCAN_H

#include "cli/out.h"

/* List the caches of a Redis. Returns: whether there are some. */
bool cli_scan_caches(const struct cli_call *call);

/* What to say where the cache of a call has no entries: which caches do. */
struct cli_text cli_cache_advice(const struct cli_call *call);

/* Say that it has none, and the advice. */
void cli_cache_hint(const struct cli_call *call);

#endif
