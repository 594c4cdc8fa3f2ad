/*
 * Options with which a client, a source and a cache do nothing but what a test
 * sets: no breaker, no adaptive limit, no refresh, no repeats, no tags. Most
 * tests want one feature at a time; test_defaults has what users get.
 */
#ifndef SHED_BARE_H
#define SHED_BARE_H

#include <snowshed/source.h>

SHED_INLINE struct shed_client_options bare_client(void)
{
    struct shed_client_options o = SHED_CLIENT_OPTIONS_INIT;

    o.breaker.failure_pct = 0;
    return o;
}

SHED_INLINE struct shed_source_options bare_source(void)
{
    struct shed_source_options o = SHED_SOURCE_OPTIONS_INIT;

    o.adaptive_loads = 0;
    o.breaker.failure_pct = 0;
    o.callers_limit = 0;
    return o;
}

SHED_INLINE struct shed_cache_options bare_cache(void)
{
    struct shed_cache_options o = SHED_CACHE_OPTIONS_INIT;

    o.refresh_after_pct = 0;
    o.failover_memory_ms = 0;
    o.tags_limit = 0;
    return o;
}

/* For calls that are given no others. */
#define BARE_CLIENT (&(struct shed_client_options[]){bare_client()}[0])
#define BARE_SOURCE (&(struct shed_source_options[]){bare_source()}[0])
#define BARE_CACHE (&(struct shed_cache_options[]){bare_cache()}[0])

#endif
