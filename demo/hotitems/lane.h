/*
 * How the service reads items, behind one interface: a lane, chosen when the
 * service starts, so that three ways can be compared under the same traffic.
 * lane_snowshed.c is the one to copy. lane_plain.c has what backends write
 * without snowshed: cache-aside without protection ("none"), and with a lock by
 * SET NX whose losers sleep and look again ("setnx").
 *
 * Any thread may call any function until lane_close.
 */
#ifndef HOTITEMS_LANE_H
#define HOTITEMS_LANE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <snowshed/snowshed.h>
#include <snowshed/source.h>

/* Where an answer came from. */
enum lane_origin {
    LANE_REDIS = SHED_ORIGIN_REDIS,
    LANE_LOAD = SHED_ORIGIN_LOAD, /* the database was asked for it */
    LANE_UNPUBLISHED = SHED_ORIGIN_UNPUBLISHED, /* loaded, and not stored */
    LANE_STALE = SHED_ORIGIN_STALE,
    LANE_WAITED = SHED_ORIGIN_WAITED, /* another caller's load was waited for */
    LANE_NEGATIVE,
    LANE_ORIGINS
};

/* Static: "redis", "load" and so on. */
const char *lane_origin_name(enum lane_origin origin);

#define LANE_AGE_UNKNOWN UINT64_MAX
#define LANE_ITEMS_MAX 100 /* of one read */

/* One item of a read: the caller sets the id, the lane sets the rest. */
struct lane_item {
    uint64_t id;
    enum shed_code code; /* if it is not SHED_OK, nothing below is set */
    enum lane_origin origin;
    bool is_there;    /* false: there is no such item */
    uint64_t age_ms;  /* since it was stored, or LANE_AGE_UNKNOWN */
    const void *data; /* a JSON object, until lane_release */
    size_t size;
    void *owned; /* the lane's */
};

struct lane_options {
    const char *redis_uri, *mysql_uri;
    struct shed_client *client; /* open while the lane is */
    bool has_redis_breaker;     /* the client has */
    bool does_work;             /* each query calls db_work(name of the lane) */
    bool takes_near;            /* snowshed: rows from its near cache */
    uint64_t read_connections;  /* none and setnx; to MySQL */
    struct shed_cache_options cache; /* of it they have ttl_ms and timeout_ms */
    struct shed_source_options source; /* snowshed */
};

struct lane;

/* name is "none", "setnx" or "snowshed", and lives as long. Neither Redis nor
 * MySQL need be up. Returns NULL with err. */
struct lane *lane_open(const char *name, const struct lane_options *options,
                       struct shed_error *err);
void lane_close(struct lane *lane); /* no call is under way; NULL is allowed */

const char *lane_name(const struct lane *lane);

/*
 * Read up to LANE_ITEMS_MAX items within timeout_ms (1 or more), with one query
 * for all that this caller loads. Release the items afterwards, also after a
 * failure.
 *
 * Returns: SHED_OK if every item has been read; else the code of the first that
 * has not, with err. Codes are used as shed_get uses them.
 */
enum shed_code lane_get(struct lane *lane, struct lane_item *items,
                        size_t count, uint64_t timeout_ms,
                        struct shed_error *err);
void lane_release(struct lane *lane, struct lane_item *items, size_t count);

/*
 * The same without a thread that waits, where the lane can: done is told what
 * lane_get would have returned, exactly once, on any thread, perhaps before the
 * call has returned. It must not block. Keep the items until then.
 */
typedef void lane_done(void *user, enum shed_code code,
                       const struct shed_error *err);
bool lane_is_async(const struct lane *lane);
void lane_begin(struct lane *lane, struct lane_item *items, size_t count,
                uint64_t timeout_ms, lane_done *done, void *user);

/* Remove an item from Redis, after the COMMIT that changed it. Returns: as
 * shed_invalidate. */
enum shed_code lane_forget(struct lane *lane, uint64_t id, uint64_t timeout_ms,
                           struct shed_error *err);

/* Let the time to live of an item end in in_ms. Returns: as lane_forget. */
enum shed_code lane_expire(struct lane *lane, uint64_t id, uint64_t in_ms,
                           uint64_t timeout_ms, struct shed_error *err);

/* The connection to Redis, and the breaker before it. */
struct lane_redis {
    bool is_up;
    uint64_t since_ms; /* for how long that has been so */
    bool has_breaker;  /* false: the rest is 0 */
    enum shed_breaker_state breaker;
    uint64_t retry_ms; /* until an open one tries again */
};

/* How a lane protects itself and its database. */
struct lane_guard {
    bool is_there; /* only snowshed has one; else the rest is 0 */
    enum shed_breaker_state breaker;
    uint64_t loads;       /* now: queries that the bound is on */
    uint64_t loads_limit; /* now: that bound, which may adapt */
    uint64_t loads_max;   /* it is never higher */
    uint64_t refused; /* so far: items that were not loaded, and callers that
                         were not let wait */
    uint64_t undelivered; /* now: invalidations that wait for Redis */
    struct lane_redis redis;
};

/* What a lane counts. */
struct lane_stats {
    uint64_t queries;              /* that the database has answered so far */
    uint64_t origin[LANE_ORIGINS]; /* answers so far; 0 where it cannot tell */
    uint64_t queries_alive;        /* now */
    uint64_t waiting; /* now: calls of lane_get, or lane_begin, under way */
    struct lane_guard guard;
};

void lane_read_stats(struct lane *lane, struct lane_stats *out);

/* The most that have waited at a time since the last call. */
uint64_t lane_take_most_waiting(struct lane *lane);

/* Write what the library counts as Prometheus text; none for the plain lanes.
 */
void lane_metrics(struct lane *lane, FILE *out);

/* --------------------------------------------------------- for lanes */

/* A lane's functions, as those of lane.h without their prefix. */
struct lane_type {
    struct lane *(*open)(const char *name, const struct lane_options *options,
                         struct shed_error *err);
    void (*close)(struct lane *lane);
    enum shed_code (*get)(struct lane *lane, struct lane_item *items,
                          size_t count, uint64_t timeout_ms,
                          struct shed_error *err);
    /* NULL: it cannot; ends with lane_leave, and done */
    void (*begin)(struct lane *lane, struct lane_item *items, size_t count,
                  uint64_t timeout_ms, lane_done *done, void *user);
    void (*release)(struct lane_item *item);
    enum shed_code (*forget)(struct lane *lane, uint64_t id,
                             uint64_t timeout_ms, struct shed_error *err);
    enum shed_code (*expire)(struct lane *lane, uint64_t id, uint64_t in_ms,
                             uint64_t timeout_ms, struct shed_error *err);
    void (*read_stats)(struct lane *lane, struct lane_stats *out); /* zeroed */
    void (*metrics)(struct lane *lane, FILE *out);                 /* or NULL */
};

/* The first member of each lane. */
struct lane {
    const struct lane_type *type; /* lane_open sets it and the name */
    const char *name;
    _Atomic uint64_t waiting, most_waiting; /* see struct lane_stats */
};

/* A call of begin has ended. */
void lane_leave(struct lane *lane);

extern const struct lane_type lane_plain, lane_snowshed;

#endif
