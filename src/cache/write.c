/*
 * What writes share. Its invariants: however a write of a key ends, callers
 * that come after it do not join a flight from before it, nor get a row that
 * was kept before it; and one that Redis may have missed is undelivered before
 * its call returns.
 */
#include "cache/write.h"

#include "base/error.h"

struct shed_error shed_write_judge(const struct shed_reply *reply,
                                   const struct shed_error *all,
                                   const char *what)
{
    const char *text = shed_reply_error(reply);
    struct shed_error why = *all;

    if (why.code == SHED_OK && shed_reply_integer(reply) < 0)
        (void)shed_fail(&why,
                        text != NULL ? shed_reply_code(reply) : SHED_EREDIS,
                        "Redis refused %s: %s", what,
                        text != NULL ? text : "a reply of an unknown form");
    return why;
}

bool shed_write_follow_up(struct shed_cache *cache, const struct shed_key *key,
                          struct shed_delivery_write write,
                          struct shed_error *why)
{
    bool is_safe = shed_delivery_follow_up(cache->delivery, key, write, why);

    shed_flights_detach(cache->flights, key);
    shed_local_drop(cache->local, shed_key_of_entry(key));
    return is_safe;
}

void shed_write_count_invalidation(struct shed_cache *cache,
                                   struct shed_bytes key, const char *reason,
                                   enum shed_code code)
{
    const struct shed_event event = {.kind = SHED_EVENT_INVALIDATED,
                                     .name = shed_str(cache->name),
                                     .key = key,
                                     .reason = reason};
    struct shed_counters *counters = &cache->counters;

    if (code != SHED_OK) {
        shed_count(&counters->invalidation_failures, 1);
        return;
    }
    shed_count(reason != NULL ? &counters->tag_invalidations
                              : &counters->invalidations,
               1);
    shed_events_tell(cache->client->events, &event);
}
