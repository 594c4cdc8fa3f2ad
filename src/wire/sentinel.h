/*
 * Asks the sentinels that watch a primary where it is. The primary is where
 * more than half of them say: so a sentinel that is cut off from the others,
 * lags or lies misleads nobody, and neither does a former primary on its side
 * of a partition.
 *
 * The guidelines of Redis for clients ("Guidelines for Redis clients with
 * support for Redis Sentinel") believe the first sentinel that answers. As they
 * demand, ROLE is asked on each connection to the server (setup.h).
 */
#ifndef SHED_WIRE_SENTINEL_H
#define SHED_WIRE_SENTINEL_H

#include <stdbool.h>
#include <stddef.h>

#include <snowshed/snowshed.h>

#include "wire/reply.h"

/* For how long sentinels are waited for that do not answer. */
#define SHED_SENTINELS_ASK_MS ((uint64_t)1000)

struct shed_address;

/*
 * Ask all sentinels of an address at the same time, until more than half agree.
 * Blocks: for SHED_SENTINELS_ASK_MS at most, and while the host names of
 * sentinels are looked up. Any thread. Returns: SHED_OK and *out; SHED_EREDIS:
 * no majority, err says why; SHED_ENOMEM.
 */
SHED_MUST_CHECK enum shed_code
shed_sentinels_ask(const struct shed_address *address, struct shed_place *out,
                   struct shed_error *err);

/* Find the answer that more than half of count give. Returns: NULL if there is
 * none. Pure. */
const struct shed_place *shed_sentinels_agree(const struct shed_place *answers,
                                              size_t count);

#endif
