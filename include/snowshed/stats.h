/*
 * What a cache, or the handle of a lock, has done since it was opened, as a
 * struct and as Prometheus text.
 */
#ifndef SNOWSHED_STATS_H
#define SNOWSHED_STATS_H

#include <snowshed/lock.h>
#include <snowshed/snowshed.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * The counters of a cache: X(field, help) is a field of struct shed_stats, and
 * a metric snowshed_<field>_total.
 *
 * Each key of a get counts in hits, negative_hits or local_hits if it was
 * answered at once, with an old row as well, else in misses. A miss that ends
 * with a row that another process has loaded counts in hits, too.
 *
 * A key that is invalidated counts in invalidations when Redis has carried it
 * out. One that failed counts in invalidation_failures, and in
 * invalidations_undelivered or invalidations_dropped, unless it is undelivered
 * already; later perhaps in invalidations_delivered. These three also count
 * failed puts and expiries.
 */
#define SHED_COUNTERS(X)                                                       \
    X(hits, "keys answered with a row or a NULL from Redis")                   \
    X(negative_hits, "keys answered with a kept 'no such row'")                \
    X(misses, "keys that were not answered at once")                           \
    X(joins, "keys that joined a flight of this process")                      \
    X(waits, "flights that found the lease taken")                             \
    X(polls, "looks at Redis by waiters, by the timer")                        \
    X(pushes, "looks at Redis by waiters, by a push")                          \
    X(loads, "loads that have ended, a batch each")                            \
    X(loaded_keys, "keys passed to the source")                                \
    X(load_failures, "keys that failed to load")                               \
    X(leases_won, "leases taken on a key without one")                         \
    X(leases_lost, "leases that were taken over or revoked")                   \
    X(leases_taken_over, "leases taken from a dead or silent holder")          \
    X(published, "loaded values that were stored")                             \
    X(publishes_superseded, "loaded values refused: another came first")       \
    X(publishes_invalidated,                                                   \
      "loaded values refused: invalidated during the load")                    \
    X(unpublished, "loaded values that Redis could not take")                  \
    X(foreign_entries, "foreign entries that were replaced")                   \
    X(corrupt_entries, "corrupt entries that were replaced")                   \
    X(invalidations, "keys invalidated, at once or later")                     \
    X(puts, "keys put")                                                        \
    X(errors_timeout, "keys that ended with SHED_ETIMEDOUT")                   \
    X(errors_busy, "keys that ended with SHED_EBUSY")                          \
    X(errors_redis, "keys that ended with SHED_EREDIS")                        \
    X(errors_source, "keys that ended with SHED_ESOURCE")                      \
    X(errors_other, "keys that ended with another failure")                    \
    X(invalidation_failures,                                                   \
      "keys and tags that could not be invalidated at once")                   \
    X(loads_begun, "loads that have begun, a batch each")                      \
    X(misses_ended, "misses whose get has ended")                              \
    X(refreshes, "refreshes that this process was elected for")                \
    X(stale, "keys answered with SHED_ORIGIN_STALE")                           \
    X(unmodified, "keys that the source found unmodified")                     \
    X(loads_refused,                                                           \
      "keys not loaded: the queue full, the breaker open, or memory short")    \
    X(callers_refused, "keys for which too many callers waited")               \
    X(invalidations_undelivered,                                               \
      "keys and tags of which Redis could not be told")                        \
    X(invalidations_delivered,                                                 \
      "undelivered keys and tags that were delivered")                         \
    X(invalidations_dropped,                                                   \
      "keys and tags given up: too many, or the cache closed")                 \
    X(fleet_waits, "loads that waited for fleet_loads")                        \
    X(fleet_failures, "times that Redis did not answer for fleet_loads")       \
    X(local_hits, "keys answered with a local row")                            \
    X(tag_misses, "misses by the invalidation of a tag")                       \
    X(tag_invalidations, "tags invalidated, or all entries")                   \
    X(loads_failed, "loads that failed, for all keys alike")                   \
    X(invalidations_repeated, "keys repeated at another server")               \
    X(near_hits, "hits and negative hits by near rows, in no hit_us")

/* The same of a lock: snowshed_lock_<field>_total. Re-entries by the holder are
 * not counted. */
#define SHED_LOCK_COUNTERS(X)                                                  \
    X(acquired, "holds that began")                                            \
    X(tries, "times that Redis was asked for the lock")                        \
    X(timeouts, "acquires that ended with SHED_ETIMEDOUT")                     \
    X(failures, "acquires that ended with another failure")                    \
    X(released, "holds that were released, confirmed by Redis")                \
    X(lost, "holds that were lost")                                            \
    X(renewals, "renewals by the watchdog, confirmed by Redis")                \
    X(renewal_failures, "renewals by the watchdog that were not")

/* Bucket i counts what is at most 2^i, but above 2^(i-1); the last one, all
 * that is above. */
#define SHED_BUCKETS 28

struct shed_histogram {
    uint64_t bucket[SHED_BUCKETS]; /* not cumulative */
    uint64_t count;
    uint64_t sum; /* microseconds, or keys */
};

struct shed_stats {
    struct shed_histogram hit_us;     /* gets answered at once, by Redis */
    struct shed_histogram miss_us;    /* gets that took the slow path */
    struct shed_histogram load_us;    /* calls of the source */
    struct shed_histogram batch_keys; /* keys per call of the source */
#define SHED_FIELD(field, help) uint64_t field;
    SHED_COUNTERS(SHED_FIELD)
#undef SHED_FIELD
};

struct shed_lock_stats {
    struct shed_histogram wait_us; /* from an acquire to its hold */
    struct shed_histogram hold_us; /* from a hold to its release or loss */
#define SHED_FIELD(field, help) uint64_t field;
    SHED_LOCK_COUNTERS(SHED_FIELD)
#undef SHED_FIELD
};

/* Copy the statistics into *out; size is sizeof *out. */
SHED_API SHED_MUST_CHECK enum shed_code
shed_stats_read(const struct shed_cache *cache, struct shed_stats *out,
                size_t size, struct shed_error *err);
SHED_API SHED_MUST_CHECK enum shed_code
shed_lock_stats_read(const struct shed_lock *lock, struct shed_lock_stats *out,
                     size_t size, struct shed_error *err);

/*
 * Write the statistics of caches and locks into buffer as Prometheus text. The
 * label of a sample is cache="NAME" or lock="NAME", with \xNN for what is not
 * printable. Of two handles of one name pass only one.
 *
 * Of a cache, besides SHED_COUNTERS:
 *     snowshed_hit_seconds, snowshed_miss_seconds, snowshed_load_seconds,
 *     snowshed_batch_keys: the histograms of struct shed_stats
 *     snowshed_fleet_wait_seconds: how long loads waited for fleet_loads
 *     snowshed_redis_up: 1 while the client is connected, else 0
 *     snowshed_redis_breaker, snowshed_source_breaker: enum shed_breaker_state
 *     snowshed_undelivered: keys of which Redis is still to be told
 *     snowshed_local_rows, snowshed_local_bytes
 * Of its source, now and at most (_limit; 0: any number):
 *     snowshed_source_loads, snowshed_source_loads_limit
 *     snowshed_source_queue_keys, snowshed_source_queue_limit_keys
 *     snowshed_source_callers, snowshed_source_callers_limit
 *     snowshed_fleet_loads, snowshed_fleet_loads_limit: as last seen here
 * Of a lock, besides SHED_LOCK_COUNTERS:
 *     snowshed_lock_wait_seconds, snowshed_lock_hold_seconds
 *
 * Returns: as shed_escape.
 */
SHED_API size_t shed_stats_prometheus(struct shed_cache *const *caches,
                                      size_t caches_count,
                                      struct shed_lock *const *locks,
                                      size_t locks_count, char *buffer,
                                      size_t capacity);

#ifdef __cplusplus
}
#endif

#endif
