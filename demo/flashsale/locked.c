/*
 * The flash sale under a lock, with the stock in snowshed's cache. Two
 * strategies:
 *
 * snowshed: the lease lock. The fencing guard opens each transaction, so that a
 * process that has lost the lock changes nothing. The transaction: the guard;
 * the order, which fails if the buyer already has one; is a piece left; take
 * it. Then COMMIT, update the cache, release. A shop would also write "AND
 * stock > 0" into that UPDATE, which is enough for a stock that is one number
 * in one row; here it is left out so that the figures show what the lock and
 * the guard do.
 *
 * expire: the usual lock by SETNX and EXPIRE, around the unprotected sale.
 */
#include <snowshed/lock.h>
#include <snowshed/mysql.h>
#include <snowshed/stats.h>
#include <stdio.h>
#include <stdlib.h>

#include "strategies.h"

#define WAIT_MS 10000 /* for the lock; after that, ask the cache again */
/* How long a dead holder blocks the sale in expire; ten times as much is
 * common. snowshed's lock has its default lease. */
#define EXPIRE_LEASE_MS 2000
#define ANSWER_TIMEOUT_MS 10000 /* a slow host must not fail the sale */
#define NAME_BYTES 64

struct shop { /* the state of a process */
    struct sale *sale;
    bool is_guarded;
    struct shed_client *client;
    struct shed_source *source;
    struct shed_cache *cache;
    struct shed_lock *lock; /* one for all threads */
    char lock_name[NAME_BYTES];
    size_t lock_name_size;
    char key[NAME_BYTES]; /* of the stock in the cache */
    size_t key_size;
    _Atomic uint64_t loads; /* those already added to the sale's */
};

struct thread {
    struct shop *shop;
    struct statements *db;
    struct worker *worker;
    struct shed_error err; /* why snowshed failed; code 0: it did not */
    uint64_t newest; /* the number that the guard knows, if it refused ours */
};

/* --------------------------------------------------------------- processes */

static void close_shop(void *arg)
{
    struct shop *s = arg;

    shed_lock_close(s->lock);
    shed_cache_close(s->cache);
    shed_source_close(s->source);
    shed_client_close(s->client);
    free(s);
}

static enum shed_code open_lock(struct shop *s, struct shed_error *err)
{
    struct shed_lock_options options = SHED_LOCK_OPTIONS_INIT;

    if (!s->is_guarded) {
        options.algorithm = SHED_LOCK_EXPIRE;
        options.lease_ms = EXPIRE_LEASE_MS;
    }
    return shed_lock_open(s->client,
                          shed_bytes(s->lock_name, s->lock_name_size), &options,
                          &s->lock, err);
}

static struct shop *open_shop(const struct settings *settings, bool is_guarded,
                              char *why, size_t size)
{
    static const char query[] =
        "SELECT id, stock FROM flashsale_item WHERE id IN (?)";
    struct shed_client_options client = SHED_CLIENT_OPTIONS_INIT;
    struct shed_error err = {SHED_ENOMEM, "out of memory"};
    struct shop *s = calloc(1, sizeof(*s));
    unsigned long long item;

    if (s == NULL)
        goto fail;
    s->sale = sale_of(settings->record);
    s->is_guarded = is_guarded;
    item = s->sale->plan.item;
    s->lock_name_size =
        (size_t)snprintf(s->lock_name, NAME_BYTES,
                         is_guarded ? SALE_LEASE_NAME : SALE_SETNX_NAME, item);
    s->key_size = (size_t)snprintf(s->key, NAME_BYTES, "%llu", item);
    client.command_timeout_ms = ANSWER_TIMEOUT_MS;
    if (shed_client_open(settings->redis_uri, &client, &s->client, &err) ||
        shed_mysql_source_open(s->sale->plan.mysql_uri, query, NULL, &s->source,
                               &err) ||
        shed_cache_open(s->client, SALE_CACHE_NAME, s->source, NULL, &s->cache,
                        &err) ||
        open_lock(s, &err))
        goto fail;
    return s;
fail:
    (void)snprintf(why, size, "%s", err.reason);
    if (s != NULL)
        close_shop(s);
    return NULL;
}

static void *open_expire(const struct settings *settings, char *why,
                         size_t size)
{
    return open_shop(settings, false, why, size);
}

static void *open_snowshed(const struct settings *settings, char *why,
                           size_t size)
{
    return open_shop(settings, true, why, size);
}

/* ----------------------------------------------------------------- threads */

static void leave_shop(void *arg)
{
    struct thread *t = arg;

    if (t->worker != NULL)
        sale_leave(t->worker);
    statements_close(t->db);
    free(t);
    mysql_thread_end();
}

static void *enter_shop(void *process, char *why, size_t size)
{
    struct thread *t = calloc(1, sizeof(*t));

    if (t == NULL)
        return NULL;
    t->shop = process;
    t->db = orders_open(why, size);
    t->worker = t->db != NULL ? sale_enter(t->shop->sale) : NULL;
    if (t->worker != NULL)
        return t;
    leave_shop(t);
    return NULL;
}

/* ------------------------------------------------------------------- cache */

/* A cache that fails must not stop the sale: then the database decides. */
static bool is_sold_out(struct shop *s)
{
    struct shed_value *value = NULL;
    bool is_none;

    if (shed_get(s->cache, shed_bytes(s->key, s->key_size), NULL, &value,
                 NULL) != SHED_OK)
        return false;
    /* a number as text; "0" is never written "00" */
    is_none = value->kind == SHED_KIND_ROW && value->size > 0 &&
              *(const char *)value->data <= '0';
    shed_value_unref(value);
    return is_none;
}

/* Add this process's loads since the last call to the sale's. Threads may come
 * in any order: the differences add up, because unsigned numbers wrap
 * around. */
static void report_loads(struct shop *s)
{
    struct shed_stats stats;

    if (shed_stats_read(s->cache, &stats, sizeof(stats), NULL) == SHED_OK)
        atomic_fetch_add(&s->sale->loads,
                         stats.loads - atomic_exchange(&s->loads, stats.loads));
}

/* -------------------------------------------------------------------- sale */

/* Ask the guard, and translate its answer for orders_settle. */
static enum statement_code ask_guard(struct thread *t,
                                     const struct shed_fence *fence)
{
    struct shop *s = t->shop;
    enum shed_code code = shed_mysql_fence(
        statements_mysql(t->db), shed_bytes(s->lock_name, s->lock_name_size),
        fence, &t->newest, &t->err);

    switch (code) {
    case SHED_OK:
        t->newest = 0;
        return STATEMENT_OK;
    case SHED_ELOST:
        atomic_fetch_add(&s->sale->refused, 1);
        return STATEMENT_AGAIN;
    case SHED_ETIMEDOUT:
        t->newest = 0;
        return STATEMENT_AGAIN;
    default:
        return STATEMENT_FAILED;
    }
}

static enum answer sell_guarded(struct thread *t, uint64_t buyer)
{
    uint64_t item = t->shop->sale->plan.item;
    int64_t stock = 0;
    struct shed_fence fence;
    enum statement_code code;

    if (shed_lock_fence(t->shop->lock, &fence, &t->err) != SHED_OK)
        return ANSWER_AGAIN; /* lost already */
    code = orders_begin(t->db);
    if (code == STATEMENT_OK)
        code = ask_guard(t, &fence);
    if (code == STATEMENT_OK)
        code = orders_place_order(t->db, item, buyer, fence.number);
    if (code == STATEMENT_OK)
        code = orders_read_stock(t->db, item, &stock);
    if (code == STATEMENT_OK && stock <= 0)
        code = STATEMENT_NONE;
    if (code == STATEMENT_OK)
        code = orders_take_piece(t->db, item);
    return orders_settle(t->db, code);
}

/* Release, and record the result. If Redis has lost its data, the guard's table
 * can be ahead of it; then make the numbers continue above the guard's. */
static bool release(struct thread *t)
{
    struct shed_lock *lock = t->shop->lock;
    uint64_t newest = t->newest;
    enum shed_code code = shed_lock_release(lock, &t->err);

    t->newest = 0;
    if (code == SHED_ELOST)
        atomic_fetch_add(&t->shop->sale->lost, 1);
    else if (code != SHED_OK)
        return false;
    return newest == 0 || shed_lock_advance(lock, newest, &t->err) == SHED_OK;
}

/* Under the lock. Whatever the database's answer, the buyer invalidates the
 * cache's entry, because a process that was killed after its COMMIT has not
 * done so. */
static enum answer sell_alone(struct thread *t, uint64_t buyer)
{
    struct shop *s = t->shop;
    enum answer answer;

    sale_begin_alone(s->sale, t->worker);
    answer = s->is_guarded ? sell_guarded(t, buyer)
                           : sell_rewriting(t->db, s->sale->plan.item, buyer);
    sale_end_alone(t->worker);
    if (answer < ANSWERS &&
        shed_invalidate(s->cache, shed_bytes(s->key, s->key_size),
                        ANSWER_TIMEOUT_MS, &t->err) != SHED_OK)
        return ANSWER_FAILED;
    return answer;
}

static enum answer explain(struct thread *t, char *why, size_t size)
{
    (void)snprintf(why, size, "%s",
                   t->err.code != SHED_OK ? t->err.reason
                                          : statements_why(t->db));
    return ANSWER_FAILED;
}

static enum answer attempt(void *thread, uint64_t buyer, bool is_retry,
                           char *why, size_t size)
{
    struct thread *t = thread;
    enum answer answer;
    enum shed_code code;

    if (!is_retry && is_sold_out(t->shop))
        return ANSWER_TURNED_AWAY;
    t->err.code = SHED_OK;
    code = shed_lock_acquire(t->shop->lock, WAIT_MS, &t->err);
    if (code == SHED_ETIMEDOUT)
        return ANSWER_AGAIN;
    if (code != SHED_OK)
        return explain(t, why, size);
    answer = sell_alone(t, buyer);
    if (answer == ANSWER_FAILED)
        (void)explain(t, why, size);
    return release(t) ? answer : explain(t, why, size);
}

static bool get_shop(void *thread, const uint64_t *ids, size_t count,
                     struct got *got, char *why, size_t size)
{
    struct thread *t = thread;
    bool is_good = sale_serve(t->shop->sale, ids[0], attempt, t, why, size);

    (void)count; /* one */
    (void)got;
    report_loads(t->shop);
    return is_good;
}

const struct strategy flashsale_expire = {.name = "expire",
                                          .open = open_expire,
                                          .close = close_shop,
                                          .enter = enter_shop,
                                          .leave = leave_shop,
                                          .get = get_shop};

const struct strategy flashsale_snowshed = {.name = "snowshed",
                                            .open = open_snowshed,
                                            .close = close_shop,
                                            .enter = enter_shop,
                                            .leave = leave_shop,
                                            .get = get_shop};
