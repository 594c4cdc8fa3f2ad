/*
 * Items through snowshed. The row that the query selects is JSON already: what
 * is in Redis is what is sent, and readable by anybody.
 */
#include <inttypes.h>
#include <snowshed/async.h>
#include <snowshed/mysql.h>
#include <snowshed/stats.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lane.h"

#define CACHE_NAME "hotitem"
#define KEY_BYTES 24     /* of an id in decimal */
#define GROWTH_BYTES 256 /* of a text, between two looks at it */

/* As in hello/service.c, which says why. What is not here is an option. */
#define LOAD_TIMEOUT_MS 2000
#define CALLERS_LIMIT 5000
#define LOCAL_BYTES (128 << 20)
#define TAGS 10000

/* As much as for Redis' absence: what is hot fits into far less. */
#define NEAR_BYTES LOCAL_BYTES

struct snowshed {
    struct lane lane;
    struct shed_client *client; /* borrowed */
    struct shed_source *source;
    struct shed_cache *items;
    uint64_t loads_max;
    bool has_redis_breaker;
};

static const char query[] =
    "SELECT id, JSON_OBJECT('name', name, 'price_cents', price_cents, "
    "'stock', stock) FROM item WHERE id IN (?)";

/* The derived table is computed once, whatever the number of rows. */
static const char working_query[] =
    "SELECT id, JSON_OBJECT('name', name, 'price_cents', price_cents, "
    "'stock', stock) FROM (SELECT db_work('snowshed') AS done) AS work "
    "JOIN item ON item.id IN (?)";

static struct snowshed *snowshed_of(struct lane *lane)
{
    return (struct snowshed *)(void *)lane;
}

/* ---------------------------------------------------------- open and close */

static void close_snowshed(struct lane *lane)
{
    struct snowshed *s = snowshed_of(lane);

    shed_cache_close(s->items);
    shed_source_close(s->source);
    free(s);
}

static enum shed_code open_cache(struct snowshed *s,
                                 const struct lane_options *options,
                                 struct shed_error *err)
{
    struct shed_source_options source = options->source;
    struct shed_mysql_options mysql = SHED_MYSQL_OPTIONS_INIT;
    struct shed_cache_options cache = options->cache;
    enum shed_code code;

    source.load_timeout_ms = LOAD_TIMEOUT_MS;
    source.callers_limit = CALLERS_LIMIT;
    mysql.source = &source;
    cache.redis_down = SHED_REDIS_DOWN_STALE;
    cache.local_bytes = LOCAL_BYTES;
    cache.near_bytes = options->takes_near ? NEAR_BYTES : 0;
    cache.tags_limit = TAGS;
    code = shed_mysql_source_open(options->mysql_uri,
                                  options->does_work ? working_query : query,
                                  &mysql, &s->source, err);
    if (code == SHED_OK)
        code = shed_cache_open(options->client, CACHE_NAME, s->source, &cache,
                               &s->items, err);
    return code;
}

static struct lane *open_snowshed(const char *name,
                                  const struct lane_options *options,
                                  struct shed_error *err)
{
    struct snowshed *s = calloc(1, sizeof(*s));

    (void)name;
    if (s == NULL) {
        *err = (struct shed_error){SHED_ENOMEM, "out of memory"};
        return NULL;
    }
    s->client = options->client;
    s->loads_max = options->source.max_loads;
    s->has_redis_breaker = options->has_redis_breaker;
    if (open_cache(s, options, err) == SHED_OK)
        return &s->lane;
    close_snowshed(&s->lane);
    return NULL;
}

/* ------------------------------------------------------------------- reads */

struct key {
    char text[KEY_BYTES];
};

static struct shed_bytes make_key(struct key *key, uint64_t id)
{
    int size = snprintf(key->text, sizeof(key->text), "%" PRIu64, id);

    return shed_bytes(key->text, (size_t)size);
}

static enum lane_origin origin_of(const struct shed_value *value)
{
    switch (value->origin) {
    case SHED_ORIGIN_REDIS:
    case SHED_ORIGIN_WAITED:
        return value->kind == SHED_KIND_ABSENT ? LANE_NEGATIVE : LANE_REDIS;
    case SHED_ORIGIN_LOAD:
        return LANE_LOAD;
    case SHED_ORIGIN_STALE:
        return LANE_STALE;
    case SHED_ORIGIN_UNPUBLISHED:
        break;
    }
    return LANE_UNPUBLISHED;
}

/* The item takes over the reference to the value. */
static void keep_value(struct lane_item *item, struct shed_value *value)
{
    item->origin = origin_of(value);
    item->is_there = value->kind == SHED_KIND_ROW;
    item->age_ms = value->age_ms;
    item->data = value->data;
    item->size = value->size;
    item->owned = value;
}

static enum shed_code get_one(struct snowshed *s, struct lane_item *item,
                              uint64_t timeout_ms, struct shed_error *err)
{
    struct shed_get_options options = SHED_GET_OPTIONS_INIT;
    struct shed_value *value = NULL;
    struct key key;

    options.timeout_ms = timeout_ms;
    item->code =
        shed_get(s->items, make_key(&key, item->id), &options, &value, err);
    if (item->code == SHED_OK)
        keep_value(item, value);
    return item->code;
}

static void make_keys(const struct lane_item *items, size_t count,
                      struct key *keys, struct shed_item *reads)
{
    for (size_t i = 0; i < count; i++)
        reads[i].key = make_key(&keys[i], items[i].id);
}

static void keep_values(struct lane_item *items, size_t count,
                        const struct shed_item *reads)
{
    for (size_t i = 0; i < count; i++) {
        items[i].code = reads[i].code;
        if (items[i].code == SHED_OK)
            keep_value(&items[i], reads[i].value);
    }
}

/* One pipeline for those in Redis, one query for the others. */
static enum shed_code get_many(struct snowshed *s, struct lane_item *items,
                               size_t count, uint64_t timeout_ms,
                               struct shed_error *err)
{
    struct shed_get_options options = SHED_GET_OPTIONS_INIT;
    struct shed_item reads[LANE_ITEMS_MAX];
    struct key keys[LANE_ITEMS_MAX];
    enum shed_code code;

    options.timeout_ms = timeout_ms;
    make_keys(items, count, keys, reads);
    code = shed_get_many(s->items, reads, count, &options, err);
    keep_values(items, count, reads);
    return code;
}

static enum shed_code get(struct lane *lane, struct lane_item *items,
                          size_t count, uint64_t timeout_ms,
                          struct shed_error *err)
{
    struct snowshed *s = snowshed_of(lane);

    return count == 1 ? get_one(s, items, timeout_ms, err)
                      : get_many(s, items, count, timeout_ms, err);
}

/* A call of lane_begin. */
struct call {
    struct lane *lane;
    struct lane_item *items;
    size_t count;
    lane_done *done;
    void *user;
    struct shed_item reads[]; /* count */
};

static void end(void *user, enum shed_code code, struct shed_value *value,
                const struct shed_error *reason)
{
    struct call *call = user;

    if (call->count == 1) { /* of many, each has got its own */
        call->reads[0].code = code;
        call->reads[0].value = value;
    }
    keep_values(call->items, call->count, call->reads);
    lane_leave(call->lane);
    call->done(call->user, code, reason);
    free(call);
}

/* If there is only one, a row that is near ends the call at once. */
static enum shed_code submit(struct snowshed *s, struct call *call,
                             const struct shed_get_options *options,
                             struct shed_error *err)
{
    const struct shed_then then = {end, call, NULL};
    struct shed_value *near;
    enum shed_code code;

    if (call->count != 1)
        return shed_get_many_async(s->items, call->reads, call->count, options,
                                   &then, NULL, err);
    code = shed_get_async(s->items, call->reads[0].key, options, &then, &near,
                          NULL, err);
    if (near != NULL)
        end(call, SHED_OK, near, NULL);
    return code;
}

static void begin(struct lane *lane, struct lane_item *items, size_t count,
                  uint64_t timeout_ms, lane_done *done, void *user)
{
    struct shed_get_options options = SHED_GET_OPTIONS_INIT;
    struct shed_error err = {SHED_ENOMEM, "out of memory"};
    struct key keys[LANE_ITEMS_MAX];
    struct call *call = calloc(1, sizeof(*call) + count * sizeof(*call->reads));

    options.timeout_ms = timeout_ms;
    if (call != NULL) {
        *call = (struct call){lane, items, count, done, user};
        make_keys(items, count, keys, call->reads);
        if (submit(snowshed_of(lane), call, &options, &err) == SHED_OK)
            return;
    }
    for (size_t i = 0; i < count; i++)
        items[i].code = err.code;
    free(call);
    lane_leave(lane);
    done(user, err.code, &err);
}

static void release(struct lane_item *item)
{
    shed_value_unref(item->owned);
    item->owned = NULL;
}

/* After COMMIT, never before: a row that is read between the two would be
 * stored, and stay. Every later read gets the new row. */
static enum shed_code forget(struct lane *lane, uint64_t id,
                             uint64_t timeout_ms, struct shed_error *err)
{
    struct key key;

    return shed_invalidate(snowshed_of(lane)->items, make_key(&key, id),
                           timeout_ms, err);
}

/* After that the row is still there, for the stale windows. */
static enum shed_code expire(struct lane *lane, uint64_t id, uint64_t in_ms,
                             uint64_t timeout_ms, struct shed_error *err)
{
    struct key key;

    return shed_expire(snowshed_of(lane)->items, make_key(&key, id), in_ms,
                       timeout_ms, err);
}

static uint64_t difference(uint64_t more, uint64_t less)
{
    return more > less ? more - less
                       : 0; /* they were not read at one instant */
}

/* The value of a gauge in the library's text for Prometheus; 0 if it is not
 * there. Its series has one label, the cache's. */
static uint64_t gauge(const char *text, const char *name)
{
    char begin[64];
    const char *at;

    (void)snprintf(begin, sizeof(begin), "\n%s{", name);
    at = strstr(text, begin);
    at = at != NULL ? strchr(at, '}') : NULL;
    return at != NULL ? strtoull(at + 1, NULL, 10) : 0;
}

/* Returns: the library's text for Prometheus, from malloc; NULL: memory is out.
 */
static char *write_text(struct snowshed *s)
{
    size_t capacity =
        shed_stats_prometheus(&s->items, 1, NULL, 0, NULL, 0) + GROWTH_BYTES;
    char *text = malloc(capacity);

    if (text != NULL)
        (void)shed_stats_prometheus(&s->items, 1, NULL, 0, text, capacity);
    return text;
}

/* What is true now, and no counter, the library tells in its text only. */
static void read_gauges(struct snowshed *s, struct lane_guard *guard)
{
    char *text = write_text(s);

    if (text == NULL)
        return;
    guard->breaker =
        (enum shed_breaker_state)gauge(text, "snowshed_source_breaker");
    guard->loads = gauge(text, "snowshed_source_loads");
    guard->loads_limit = gauge(text, "snowshed_source_loads_limit");
    guard->undelivered = gauge(text, "snowshed_undelivered");
    free(text);
}

static void read_redis(const struct snowshed *s, struct lane_redis *redis)
{
    struct shed_client_status status;

    if (shed_client_status_read(s->client, &status, sizeof(status), NULL))
        return;
    redis->is_up = status.is_up == 1;
    redis->since_ms = status.since_ms;
    redis->has_breaker = s->has_redis_breaker;
    redis->breaker = (enum shed_breaker_state)status.breaker;
    redis->retry_ms = status.breaker_left_ms;
}

static void read_guard(struct snowshed *s, const struct shed_stats *stats,
                       struct lane_guard *guard)
{
    guard->is_there = true;
    guard->loads_max = s->loads_max;
    guard->refused = stats->loads_refused + stats->callers_refused;
    read_gauges(s, guard);
    read_redis(s, &guard->redis);
}

static void read_stats(struct lane *lane, struct lane_stats *out)
{
    struct shed_stats stats;
    struct shed_error err;

    if (shed_stats_read(snowshed_of(lane)->items, &stats, sizeof(stats), &err))
        return;
    out->queries = difference(stats.loads, stats.loads_failed);
    out->queries_alive = difference(stats.loads_begun, stats.loads);
    out->origin[LANE_REDIS] = difference(stats.hits, stats.stale);
    out->origin[LANE_STALE] = stats.stale;
    out->origin[LANE_NEGATIVE] = stats.negative_hits;
    out->origin[LANE_LOAD] = stats.published;
    out->origin[LANE_WAITED] = stats.joins + stats.waits;
    out->origin[LANE_UNPUBLISHED] = stats.unpublished +
                                    stats.publishes_superseded +
                                    stats.publishes_invalidated;
    read_guard(snowshed_of(lane), &stats, &out->guard);
}

static void metrics(struct lane *lane, FILE *out)
{
    char *text = write_text(snowshed_of(lane));

    if (text != NULL)
        (void)fputs(text, out);
    free(text);
}

const struct lane_type lane_snowshed = {.open = open_snowshed,
                                        .close = close_snowshed,
                                        .get = get,
                                        .begin = begin,
                                        .release = release,
                                        .forget = forget,
                                        .expire = expire,
                                        .read_stats = read_stats,
                                        .metrics = metrics};
