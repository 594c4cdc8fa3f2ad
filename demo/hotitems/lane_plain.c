/*
 * What backends write by hand, in two ways. "none" is cache-aside: a caller
 * that misses asks the database. In "setnx" a lock in Redis picks the one that
 * asks, and the others sleep and look again. An empty value is an item that
 * does not exist.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "database.h"
#include "lane.h"
#include "redis_pool.h"
#include "wait.h"

#define LOCK_MS 5000 /* how long a holder that died blocks the others */
#define RETRY_MS 10
#define UNLOCK_MAX_MS 1000
#define KEY_BYTES 64

/* Only the holder removes the lock: it may have expired, and be another's. */
static const char unlock_script[] =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then "
    "return redis.call('DEL', KEYS[1]) end return 0";

struct plain {
    struct lane lane;
    struct redis_pool *redis;
    struct db *db;
    unsigned long long ttl_ms, pid;
    bool does_work;
    bool is_locked; /* setnx */
    /* atomic */
    _Atomic uint64_t queries, queries_alive;
    _Atomic uint64_t origin[LANE_ORIGINS];
};

/* One call of lane_get. */
struct read {
    struct plain *plain;
    struct lane_item *items;
    size_t count;
    uint64_t deadline_ms;
    bool is_waiting;                 /* for other callers' loads */
    bool is_out_of_memory;           /* for an answer */
    bool is_missing[LANE_ITEMS_MAX]; /* not read yet */
    bool is_mine[LANE_ITEMS_MAX];    /* setnx: the lock is ours */
};

static struct plain *plain_of(struct lane *lane)
{
    return (struct plain *)(void *)lane;
}

/* ---------------------------------------------------------- open and close */

static void close_plain(struct lane *lane)
{
    struct plain *p = plain_of(lane);

    db_close(p->db);
    redis_pool_free(p->redis);
    free(p);
}

static struct lane *open_plain(const char *name,
                               const struct lane_options *options,
                               struct shed_error *err)
{
    struct plain *p = calloc(1, sizeof(*p));

    *err = (struct shed_error){SHED_ENOMEM, "out of memory"};
    if (p == NULL)
        return NULL;
    p->is_locked = strcmp(name, "setnx") == 0;
    p->does_work = options->does_work;
    p->ttl_ms = options->cache.ttl_ms;
    p->pid = (unsigned long long)getpid();
    p->redis = redis_pool_new(options->redis_uri);
    if (p->redis != NULL)
        p->db = db_open(options->mysql_uri, (unsigned)options->read_connections,
                        options->cache.timeout_ms, err->reason,
                        sizeof(err->reason));
    if (p->db != NULL)
        return &p->lane;
    close_plain(&p->lane);
    return NULL;
}

/* ------------------------------------------------------------ Redis */

/* Runs a batch that has a command for each item of a set. */
typedef void add_command(const struct read *r, const struct lane_item *item,
                         struct redis_batch *batch);
typedef void take_reply(struct read *r, size_t i, const redisReply *reply);

static enum shed_code for_each(struct read *r, const bool *set,
                               add_command *add, take_reply *take,
                               struct shed_error *err)
{
    struct redis_batch batch = {0};
    enum shed_code code = SHED_OK;
    size_t next = 0;

    for (size_t i = 0; i < r->count; i++)
        if (set[i])
            add(r, &r->items[i], &batch);
    if (batch.count > 0)
        code = redis_batch_run(r->plain->redis, &batch, r->deadline_ms, err);
    for (size_t i = 0; code == SHED_OK && i < r->count; i++)
        if (set[i])
            take(r, i, batch.reply[next++]);
    redis_batch_clear(&batch);
    return code;
}

/* Keep a copy of a payload as the answer. */
static void keep(struct read *r, size_t i, const char *data, size_t size,
                 enum lane_origin origin)
{
    struct lane_item *item = &r->items[i];

    item->owned = malloc(size + 1); /* an empty one is not NULL */
    if (item->owned == NULL) {
        r->is_out_of_memory = true;
        return;
    }
    memcpy(item->owned, data, size);
    item->data = item->owned;
    item->size = size;
    item->is_there = size > 0;
    item->origin = origin;
    r->is_missing[i] = false;
}

/* Keys that begin with hotitems: and the name of the lane, or of its locks. */
struct key {
    char text[KEY_BYTES];
};

static void make_key(struct key *key, const char *of, uint64_t id)
{
    (void)snprintf(key->text, sizeof(key->text), "hotitems:%s:%" PRIu64, of,
                   id);
}

static void add_get(const struct read *r, const struct lane_item *item,
                    struct redis_batch *batch)
{
    struct key key;

    make_key(&key, lane_name(&r->plain->lane), item->id);
    redis_batch_add(batch, key.text, "GET %s", key.text);
}

static void take_value(struct read *r, size_t i, const redisReply *reply)
{
    enum lane_origin origin = reply->len == 0 ? LANE_NEGATIVE : LANE_REDIS;

    if (reply->type == REDIS_REPLY_STRING)
        keep(r, i, reply->str, reply->len,
             r->is_waiting ? LANE_WAITED : origin);
}

static void add_set(const struct read *r, const struct lane_item *item,
                    struct redis_batch *batch)
{
    struct key key;

    make_key(&key, lane_name(&r->plain->lane), item->id);
    redis_batch_add(batch, key.text, "SET %s %b PX %llu", key.text, item->data,
                    item->size, r->plain->ttl_ms);
}

static void add_lock(const struct read *r, const struct lane_item *item,
                     struct redis_batch *batch)
{
    struct key key;

    make_key(&key, "setnx:lock", item->id);
    redis_batch_add(batch, key.text, "SET %s %llu NX PX %d", key.text,
                    r->plain->pid, LOCK_MS);
}

static void take_lock(struct read *r, size_t i, const redisReply *reply)
{
    r->is_mine[i] = reply->type == REDIS_REPLY_STATUS;
}

static void add_unlock(const struct read *r, const struct lane_item *item,
                       struct redis_batch *batch)
{
    struct key key;

    make_key(&key, "setnx:lock", item->id);
    redis_batch_add(batch, key.text, "EVAL %s 1 %s %llu", unlock_script,
                    key.text, r->plain->pid);
}

static void ignore_reply(struct read *r, size_t i, const redisReply *reply)
{
    (void)r;
    (void)i;
    (void)reply;
}

/* ---------------------------------------------------------------- database */

static void take_row(void *user, uint64_t id, const char *json, size_t size)
{
    struct read *r = user;

    for (size_t i = 0; i < r->count; i++)
        if (r->is_missing[i] && r->items[i].id == id)
            keep(r, i, json, size, LANE_LOAD);
}

static enum shed_code code_of(enum statement_code code)
{
    switch (code) {
    case STATEMENT_OK:
        return SHED_OK;
    case STATEMENT_BUSY:
        return SHED_EBUSY;
    case STATEMENT_LATE:
        return SHED_ETIMEDOUT;
    default:
        return SHED_ESOURCE;
    }
}

/* The items of a set, with one query. */
static enum shed_code query(struct read *r, const bool *set,
                            struct shed_error *err)
{
    struct plain *p = r->plain;
    const char *work = p->does_work ? lane_name(&p->lane) : NULL;
    uint64_t ids[LANE_ITEMS_MAX];
    struct statements *session = NULL;
    size_t count = 0;
    enum statement_code code;

    for (size_t i = 0; i < r->count; i++)
        if (set[i])
            ids[count++] = r->items[i].id;
    code = db_borrow(p->db, r->deadline_ms, &session, err->reason,
                     sizeof(err->reason));
    if (code == STATEMENT_OK) {
        p->queries_alive++;
        code = db_read_items(session, work, ids, count, r->deadline_ms,
                             take_row, r);
        p->queries_alive--;
        p->queries += code == STATEMENT_OK;
        if (code != STATEMENT_OK)
            (void)snprintf(err->reason, sizeof(err->reason), "%s",
                           code == STATEMENT_LATE
                               ? "MySQL: not answered in time"
                               : statements_why(session));
    }
    db_give_back(p->db, session);
    return err->code = code_of(code);
}

/* Query the items of a set and store what came. What has no row is stored as
 * such. An answer that Redis does not take is an answer all the same. */
static enum shed_code load(struct read *r, const bool *set,
                           struct shed_error *err)
{
    struct shed_error ignored;
    bool is_loaded[LANE_ITEMS_MAX];
    enum shed_code code;

    memcpy(is_loaded, set, r->count * sizeof(*set)); /* set may be is_missing */
    code = query(r, is_loaded, err);
    for (size_t i = 0; code == SHED_OK && i < r->count; i++)
        if (is_loaded[i] && r->is_missing[i] && !r->is_out_of_memory)
            keep(r, i, "", 0, LANE_LOAD);
    if (code != SHED_OK || r->is_out_of_memory ||
        for_each(r, is_loaded, add_set, ignore_reply, &ignored) == SHED_OK)
        return code;
    for (size_t i = 0; i < r->count; i++)
        if (is_loaded[i])
            r->items[i].origin = LANE_UNPUBLISHED;
    return SHED_OK;
}

/* ------------------------------------------------------------------- reads */

static bool is_any(const bool *set, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (set[i])
            return true;
    return false;
}

/* Load what this call has the locks of. It looks once more before: another may
 * have loaded it since the first look. */
static enum shed_code load_mine(struct read *r, struct shed_error *err)
{
    struct shed_error ignored;
    bool is_locked[LANE_ITEMS_MAX];
    uint64_t deadline_ms = r->deadline_ms;
    enum shed_code code;

    memcpy(is_locked, r->is_mine, sizeof(is_locked));
    code = for_each(r, is_locked, add_get, take_value, err);
    for (size_t i = 0; i < r->count; i++)
        r->is_mine[i] = r->is_mine[i] && r->is_missing[i];
    if (code == SHED_OK && is_any(r->is_mine, r->count))
        code = load(r, r->is_mine, err);
    /* After the deadline, too: else the others wait until the lock expires. */
    r->deadline_ms = wait_now_ms() + UNLOCK_MAX_MS;
    (void)for_each(r, is_locked, add_unlock, ignore_reply, &ignored);
    r->deadline_ms = deadline_ms;
    return code;
}

static enum shed_code fill_setnx(struct read *r, struct shed_error *err)
{
    enum shed_code code;

    for (;;) {
        memset(r->is_mine, 0, sizeof(r->is_mine));
        code = for_each(r, r->is_missing, add_lock, take_lock, err);
        r->is_waiting = true;
        if (code == SHED_OK && is_any(r->is_mine, r->count))
            code = load_mine(r, err);
        if (code != SHED_OK || r->is_out_of_memory ||
            !is_any(r->is_missing, r->count))
            return code;
        if (wait_now_ms() + RETRY_MS >= r->deadline_ms) {
            (void)snprintf(err->reason, sizeof(err->reason),
                           "another process holds the lock, and stored nothing "
                           "before the deadline");
            return err->code = SHED_ETIMEDOUT;
        }
        demo_nap(RETRY_MS * 1000);
        code = for_each(r, r->is_missing, add_get, take_value, err);
        if (code != SHED_OK || !is_any(r->is_missing, r->count))
            return code;
    }
}

/* What is still missing has failed. */
static enum shed_code conclude(struct read *r, enum shed_code code,
                               struct shed_error *err)
{
    if (code == SHED_OK && is_any(r->is_missing, r->count)) {
        *err = (struct shed_error){SHED_ENOMEM, "out of memory"};
        code = SHED_ENOMEM;
    }
    for (size_t i = 0; i < r->count; i++) {
        r->items[i].code = r->is_missing[i] ? code : SHED_OK;
        if (!r->is_missing[i])
            r->plain->origin[r->items[i].origin]++;
    }
    return code;
}

static enum shed_code get(struct lane *lane, struct lane_item *items,
                          size_t count, uint64_t timeout_ms,
                          struct shed_error *err)
{
    struct read r = {.plain = plain_of(lane),
                     .items = items,
                     .count = count,
                     .deadline_ms = wait_now_ms() + timeout_ms};
    enum shed_code code;

    for (size_t i = 0; i < count; i++) {
        items[i].age_ms = LANE_AGE_UNKNOWN;
        items[i].owned = NULL;
        r.is_missing[i] = true;
    }
    code = for_each(&r, r.is_missing, add_get, take_value, err);
    if (code == SHED_OK && is_any(r.is_missing, count))
        code = r.plain->is_locked ? fill_setnx(&r, err)
                                  : load(&r, r.is_missing, err);
    return conclude(&r, code, err);
}

static void release(struct lane_item *item)
{
    free(item->owned);
    item->owned = NULL;
}

static enum shed_code expire(struct lane *lane, uint64_t id, uint64_t in_ms,
                             uint64_t timeout_ms, struct shed_error *err)
{
    struct redis_batch batch = {0};
    enum shed_code code;
    struct key key;

    make_key(&key, lane_name(lane), id);
    redis_batch_add(&batch, key.text, "PEXPIRE %s %llu", key.text,
                    (unsigned long long)in_ms);
    code = redis_batch_run(plain_of(lane)->redis, &batch,
                           wait_now_ms() + timeout_ms, err);
    redis_batch_clear(&batch);
    return code;
}

/* What expires at once is deleted. */
static enum shed_code forget(struct lane *lane, uint64_t id,
                             uint64_t timeout_ms, struct shed_error *err)
{
    return expire(lane, id, 0, timeout_ms, err);
}

static void read_stats(struct lane *lane, struct lane_stats *out)
{
    const struct plain *p = plain_of(lane);

    out->queries = p->queries;
    out->queries_alive = p->queries_alive;
    for (size_t i = 0; i < LANE_ORIGINS; i++)
        out->origin[i] = p->origin[i];
}

const struct lane_type lane_plain = {.open = open_plain,
                                     .close = close_plain,
                                     .get = get,
                                     .release = release,
                                     .forget = forget,
                                     .expire = expire,
                                     .read_stats = read_stats};
