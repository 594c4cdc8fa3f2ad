/* Asks Redis what it grants to the client's user. */
#ifndef SHED_PROBE_H
#define SHED_PROBE_H

#include <snowshed/snowshed.h>

/* Behind the name of a cache: a key that it might have. */
#define SHED_PROBE_SUFFIX ":{snowshed:probe}"

/* Check that Redis can be reached until deadline_ms, and grants what a use of a
 * key needs. use: as probe.lua says; key: the first of its keys, sides: what
 * the names of the others begin with. Blocks: one round trip. Returns: as
 * shed_cache_probe. */
SHED_MUST_CHECK enum shed_code
shed_probe(struct shed_client *client, const char *use, struct shed_bytes key,
           struct shed_bytes sides, uint64_t deadline_ms,
           struct shed_error *err);

#endif
