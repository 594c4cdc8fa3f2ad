/* What the flights of a cache have in common, and what they tell. */
#include "flight/flight_exchange.h"

void shed_flight_tell(const struct shed_flight_exchange *x,
                      enum shed_event_kind kind, enum shed_code outcome,
                      uint64_t duration_us, const char *reason)
{
    const struct shed_event event = {.kind = kind,
                                     .outcome = outcome,
                                     .name = x->settings->name,
                                     .key = x->user_key,
                                     .duration_us = duration_us,
                                     .reason = reason};

    shed_events_tell(x->settings->events, &event);
}

void shed_flight_exchange_settings_init(struct shed_flight_exchange_settings *s,
                                        uint64_t record_ms)
{
    s->rule = shed_freshness_rule_of_cache(s->options);
    shed_write_digits(s->lease_ms, s->options->lease_ms);
    shed_write_digits(s->grace_ms, SHED_LEASE_GRACE_MS);
    shed_write_digits(s->record_ms, record_ms);
}
