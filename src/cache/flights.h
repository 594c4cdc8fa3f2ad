/*
 * Runs flights on the reactor thread: turns what the state machine wants into
 * calls of scripts, of the source and of timers, and what comes back into
 * events. One flights per cache.
 */
#ifndef SHED_FLIGHTS_H
#define SHED_FLIGHTS_H

#include <snowshed/snowshed.h>

#include "base/stats.h"
#include "cache/flight_redis.h"
#include "cache/table.h"
#include "redis/reactor.h"

/* What the flights of all caches of a client share. */
struct shed_airport {
    struct shed_reactor *reactor;
    struct shed_session *session;
    struct shed_table *table;
    char process[SHED_ENTRY_PROCESS_BYTES + 1];
    _Atomic uint64_t last_flight;
};

/* A key as Redis has it, NAME:{KEY}, and where KEY stands in it. */
struct shed_key {
    const char *redis;
    size_t redis_size;
    size_t at;
    size_t size;
};

struct shed_flights;

/* What is passed must outlive the flights. Returns: SHED_OK, SHED_ENOMEM. */
SHED_MUST_CHECK int
shed_flights_create(struct shed_airport *airport, struct shed_source *source,
                    const struct shed_cache_options *options,
                    struct shed_counters *counters, struct shed_flights **out,
                    struct shed_error *err);

/* Wait until its flights are over, and free it. NULL is allowed. */
void shed_flights_close(struct shed_flights *flights);

/* Join the key's flight, or put a new one before *starts, to be started at
 * once: those that are started together load together. Any thread but the
 * reactor's.
 * Returns: SHED_OK: caller's gate will open, unless it leaves. SHED_ENOMEM: it
 * will not. */
SHED_MUST_CHECK int shed_flights_join(struct shed_flights *flights,
                                      const struct shed_key *key,
                                      struct shed_caller *caller,
                                      struct shed_post **starts,
                                      struct shed_error *err);
void shed_flights_start(struct shed_flights *flights, struct shed_post *starts);

/* The hooks of the push session. Reactor thread. */
void shed_flights_on_change(void *airport, const char *key, size_t size);
void shed_flights_on_epoch(void *airport);

#endif
