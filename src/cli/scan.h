/* What other commands say of a cache that has no entries. */
#ifndef CLI_SCAN_H
#define CLI_SCAN_H

#include "cli/out.h"

/* What to say where the cache of a call has no entries: which caches do. */
struct cli_text cli_cache_advice(const struct cli_call *call);

/* Say that it has none, and the advice. */
void cli_cache_hint(const struct cli_call *call);

#endif
