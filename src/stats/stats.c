/* What caches and locks have counted, as a struct and as text. */
#include <string.h>

#include <snowshed/stats.h>

#include "cache/cache.h"
#include "known/local.h"
#include "lock/engine.h"
#include "stats/text.h"

enum shed_code shed_stats_read(const struct shed_cache *cache,
                               struct shed_stats *out, size_t size,
                               struct shed_error *err)
{
    struct shed_stats all;
    enum shed_code code =
        shed_stats_check("shed_stats_read", cache, out, size, sizeof(all), err);

    if (code != SHED_OK)
        return code;
    shed_local_count_hits(cache->local);
    shed_counters_read(&cache->counters, 4, &all, sizeof(all));
    memcpy(out, &all, size);
    return SHED_OK;
}

enum shed_code shed_lock_stats_read(const struct shed_lock *l,
                                    struct shed_lock_stats *out, size_t size,
                                    struct shed_error *err)
{
    struct shed_lock_stats all;
    enum shed_code code = shed_stats_check("shed_lock_stats_read", l, out, size,
                                           sizeof(all), err);

    if (code != SHED_OK)
        return code;
    shed_counters_read(&l->counters, 2, &all, sizeof(all));
    memcpy(out, &all, size);
    return SHED_OK;
}

static struct shed_subject cache_subject(const void *list, size_t i)
{
    const struct shed_cache *cache = ((struct shed_cache *const *)list)[i];
    struct shed_source_state source = shed_source_look(cache->source);
    struct shed_server_status redis;
    struct shed_local_size local = shed_local_size(cache->local);

    shed_local_count_hits(cache->local);
    shed_client_read(cache->client, &redis);
    return (struct shed_subject){.name = cache->name,
                                 .name_size = strlen(cache->name),
                                 .counters = &cache->counters,
                                 .redis_up = redis.is_up,
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
                                 .redis_breaker = redis.gate.breaker.state,
                                 .local_rows = local.rows,
                                 .local_bytes = local.bytes};
}

static struct shed_subject lock_subject(const void *list, size_t i)
{
    const struct shed_lock *l = ((struct shed_lock *const *)list)[i];

    return (struct shed_subject){
        .name = l->name, .name_size = l->name_size, .counters = &l->counters};
}

size_t shed_stats_prometheus(struct shed_cache *const *caches,
                             size_t caches_count,
                             struct shed_lock *const *locks, size_t locks_count,
                             char *buffer, size_t capacity)
{
    const struct shed_subjects c = {cache_subject, (const void *)caches,
                                    caches_count};
    const struct shed_subjects l = {lock_subject, (const void *)locks,
                                    locks_count};

    return shed_stats_text(&c, &l, buffer, capacity);
}
