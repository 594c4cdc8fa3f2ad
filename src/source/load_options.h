/* The options of a source, checked. */
#ifndef SHED_LOAD_OPTIONS_H
#define SHED_LOAD_OPTIONS_H

#include <snowshed/source.h>

/* Take the program's options; given may be NULL, and *out has the defaults.
 * Returns: SHED_OK, SHED_EINVAL. */
SHED_MUST_CHECK enum shed_code
shed_source_options_take(struct shed_source_options *out,
                         const struct shed_source_options *given,
                         struct shed_error *err);

#endif
