/* The options of a source, checked. */
#ifndef SHED_LOAD_OPTIONS_H
#define SHED_LOAD_OPTIONS_H

#include <snowshed/snowshed.h>

#include "base/breaker.h"

/* Take the program's options; given may be NULL, and *out has the defaults.
 * Returns: SHED_OK, SHED_EINVAL. */
SHED_MUST_CHECK enum shed_code
shed_source_options_take(struct shed_source_options *out,
                         const struct shed_source_options *given,
                         struct shed_error *err);

/* Make the breaker that they ask for. */
void shed_source_options_breaker(const struct shed_source_options *options,
                                 struct shed_breaker *breaker, uint64_t now_ms);

#endif
