/* What a call is handed of an entry: a value that keeps the reply it is in. */
#ifndef SHED_ENTRY_VALUE_H
#define SHED_ENTRY_VALUE_H

#include <snowshed/snowshed.h>

#include "base/stats.h"
#include "entry/entry.h"
#include "entry/freshness.h"
#include "wire/reply.h"

/* Make a value of the entry in a reply, at now_ms by the server's clock; 0:
 * that is not known. The reply is taken over on success. *times says when the
 * entry was written and how long it is fresh. Any thread. Returns: NULL if it
 * does not decode to a row or its absence: *state says why. */
struct shed_value *shed_entry_value(struct shed_bytes key,
                                    struct shed_reply *reply, uint64_t now_ms,
                                    struct shed_freshness_times *times,
                                    enum shed_entry_state *state);

/* Whether a reply is a lease; then *lease has its times. Any thread. */
bool shed_entry_is_lease(const struct shed_reply *reply,
                         struct shed_entry *lease);

/* Count a value from Redis that a key is answered with. Any thread. */
void shed_entry_value_count(struct shed_counters *counters,
                            const struct shed_value *value);

#endif
