/* Which caches have entries in a Redis. */
#ifndef CLI_CACHES_H
#define CLI_CACHES_H

#include "cli/out.h"

/* What to say where the cache of a call has no entries: "did you mean 'item'?",
 * or how to find its name. */
struct cli_text cli_cache_advice(const struct cli_call *call);

/* Print, without JSON, that it has none, and the advice. */
void cli_cache_print_none(const struct cli_call *call, const char *before);

#endif
