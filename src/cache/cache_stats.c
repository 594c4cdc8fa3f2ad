/* What a cache has counted, as a struct and as text. */
#include <string.h>

#include <snowshed/stats.h>

#include "cache/cache.h"

enum shed_code shed_stats_read(const struct shed_cache *cache,
                               struct shed_stats *out, size_t size,
                               struct shed_error *err)
{
    struct shed_stats all;
    enum shed_code code =
        shed_stats_check("shed_stats_read", cache, out, size, sizeof(all), err);

    if (code != SHED_OK)
        return code;
    shed_counters_read(&cache->counters, &all);
    memcpy(out, &all, size);
    return SHED_OK;
}

static struct shed_subject subject(const void *list, size_t i)
{
    const struct shed_cache *cache = ((struct shed_cache *const *)list)[i];
    struct shed_source_state source = shed_source_look(cache->source);
    struct shed_gate_status gate;
    struct shed_local_size local = shed_local_size(cache->local);

    shed_gate_read(cache->client->address->gate, &gate);
    return (struct shed_subject){.name = cache->name,
                                 .name_size = strlen(cache->name),
                                 .counters = &cache->counters,
                                 .redis_up = shed_client_is_up(cache->client),
                                 .source_loads = source.loads,
                                 .source_loads_limit = source.loads_limit,
                                 .source_queue_keys = source.queued,
                                 .source_queue_limit_keys = source.queue_limit,
                                 .source_breaker = source.breaker.state,
                                 .source_callers = source.callers,
                                 .source_callers_limit = source.callers_limit,
                                 .fleet_loads = source.fleet.loads,
                                 .fleet_loads_limit = source.fleet.limit,
                                 .undelivered =
                                     shed_delivery_count(cache->delivery),
                                 .redis_breaker = gate.breaker.state,
                                 .local_rows = local.rows,
                                 .local_bytes = local.bytes};
}

size_t shed_stats_prometheus(struct shed_cache *const *caches, size_t count,
                             char *buffer, size_t capacity)
{
    return shed_stats_text(subject, (const void *)caches, count, buffer,
                           capacity);
}
