/* Values of entries. Its one invariant: a value is made only of an entry that
 * decodes, and keeps the reply that it is in. */
#include "entry/entry_value.h"

#include "base/clock.h"
#include "base/value.h"

struct shed_value *shed_entry_value(struct shed_bytes key,
                                    struct shed_reply *reply, uint64_t now_ms,
                                    struct shed_freshness_times *times,
                                    enum shed_entry_state *state)
{
    struct shed_entry entry;
    struct shed_value *value;
    enum shed_kind kind = SHED_KIND_ROW;
    size_t size = 0;
    const char *bytes = shed_reply_bytes(reply, &size);

    *state = bytes != NULL ? shed_entry_decode(key, bytes, size, &entry)
                           : SHED_ENTRY_FOREIGN;
    if (*state != SHED_ENTRY_OK)
        return NULL;
    if (entry.type == SHED_ENTRY_NEGATIVE)
        kind = SHED_KIND_ABSENT;
    else if (entry.type != SHED_ENTRY_VALUE) {
        *state = SHED_ENTRY_FOREIGN; /* a lease or a marker is no value */
        return NULL;
    } else if (entry.flags & SHED_ENTRY_NULL)
        kind = SHED_KIND_NULL;
    value = shed_value_init(&reply->value, kind, SHED_ORIGIN_REDIS, bytes,
                            entry.payload, entry.payload_size, reply,
                            shed_reply_free);
    value->age_ms = shed_left_ms(now_ms, entry.written_ms);
    value->fresh_ms = now_ms > 0 ? shed_left_ms(entry.until_ms, now_ms) : 0;
    *times = (struct shed_freshness_times){.written_ms = entry.written_ms,
                                           .until_ms = entry.until_ms,
                                           .cost_ms = entry.cost_ms};
    return value;
}

bool shed_entry_is_lease(const struct shed_reply *reply,
                         struct shed_entry *lease)
{
    size_t size = 0;
    const char *bytes = shed_reply_bytes(reply, &size);

    return bytes != NULL &&
           shed_entry_decode_header(bytes, size, lease) == SHED_ENTRY_OK &&
           lease->type == SHED_ENTRY_LEASE;
}

void shed_entry_value_count(struct shed_counters *counters,
                            const struct shed_value *value)
{
    shed_count(value->kind == SHED_KIND_ABSENT ? &counters->negative_hits
                                               : &counters->hits,
               1);
}
