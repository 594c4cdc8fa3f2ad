/* What a flight tells. */
#include "flight/flight_exchange.h"

void shed_flight_tell(const struct shed_flight_exchange *x,
                      enum shed_event_kind kind, enum shed_code outcome,
                      uint64_t duration_us, const char *reason)
{
    const struct shed_event event = {.kind = kind,
                                     .outcome = outcome,
                                     .name = shed_str(x->shared->cache->name),
                                     .key = x->user_key,
                                     .duration_us = duration_us,
                                     .reason = reason};

    shed_events_tell(x->shared->cache->client->events, &event);
}
