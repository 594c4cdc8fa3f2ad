/*
 * Selling a few pieces of one item to many buyers, in three ways.
 *
 * way_snowshed: under the lease lock, with the stock in snowshed's cache. The
 * fencing guard opens each transaction, so that a process that has lost the
 * lock changes nothing. The transaction: the guard; the order, which fails if
 * the buyer already has one; is a piece left; take it. Then COMMIT, update the
 * cache, release. A shop would also write "AND stock > 0" into that UPDATE,
 * which is enough for a stock that is one number in one row; here it is left
 * out so that the figures show what the lock and the guard do.
 *
 * way_expire: the usual lock by SETNX and EXPIRE, around the unprotected sale.
 *
 * way_none: the unprotected sale, as in a first attempt: the stock is looked up
 * in Redis, read from the database, and written back reduced by one, in one
 * transaction. Two buyers that read the same number both get the same piece.
 */
#include <inttypes.h>
#include <snowshed/lock.h>
#include <snowshed/mysql.h>
#include <snowshed/stats.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/redis.h"
#include "seller.h"

#define WAIT_MS 10000 /* for the lock; after that, ask the cache again */
/* How long a dead holder blocks the sale in expire; ten times as much is
 * common. snowshed's lock has its default lease. */
#define EXPIRE_LEASE_MS 2000
#define ANSWER_TIMEOUT_MS 10000 /* a slow host must not fail the sale */
#define PATIENCE_US 60000000    /* how long a buyer keeps trying */
#define PLAIN_TTL_S 300
#define PLAIN_KEY "flashsale-plain:%llu"
#define NAME_BYTES 64

enum { READ_STOCK, TAKE_PIECE, WRITE_STOCK, PLACE_ORDER };

/* A stock may be negative, but results are unsigned: the CAST gives its two's
 * complement. */
static const char *const statements[] = {
    [READ_STOCK] =
        "SELECT CAST(stock AS UNSIGNED) FROM flashsale_item WHERE id = ?",
    [TAKE_PIECE] = "UPDATE flashsale_item SET stock = stock - 1 WHERE id = ?",
    [WRITE_STOCK] = "UPDATE flashsale_item SET stock = ? WHERE id = ?",
    [PLACE_ORDER] = ("INSERT INTO flashsale_order (item, buyer, token) "
                     "VALUES (?, ?, ?)")};

/* What a buyer is told. */
enum answer {
    SOLD,        /* the order has been committed */
    HAS_ONE,     /* this buyer already has an order */
    TURNED_AWAY, /* sold out according to the cache */
    SOLD_OUT,    /* sold out according to the database */
    ANSWERS,
    AGAIN, /* nothing is decided: ask again */
    FAILED
};

static const char *const answers[ANSWERS] = {"sold", "has-one", "turned-away",
                                             "sold-out"};

struct shop { /* the state of a process */
    const char *redis_uri;
    uint64_t item;
    bool is_guarded;
    /* NULL without a lock */
    struct shed_client *client;
    struct shed_source *source;
    struct shed_cache *cache;
    struct shed_lock *lock;     /* one for all threads */
    char lock_name[NAME_BYTES]; /* and the guard's resource */
    char key[NAME_BYTES];       /* of the stock in the cache */
    _Atomic uint64_t loads;     /* those already told */
};

struct thread {
    struct shop *shop;
    struct statements *db;
    redisContext *redis; /* without a lock */
    struct shed_error err;
    unsigned long long request;
    uint64_t buyer;
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
    (void)snprintf(s->lock_name, NAME_BYTES, "flashsale%s:%llu",
                   s->is_guarded ? "" : "-setnx", (unsigned long long)s->item);
    return shed_lock_open(s->client, shed_str(s->lock_name), &options, &s->lock,
                          err);
}

static enum shed_code open_locked(struct shop *s,
                                  const struct seller_options *o,
                                  struct shed_error *err)
{
    static const char query[] =
        "SELECT id, stock FROM flashsale_item WHERE id IN (?)";
    struct shed_client_options client = SHED_CLIENT_OPTIONS_INIT;
    enum shed_code code;

    client.command_timeout_ms = ANSWER_TIMEOUT_MS;
    code = shed_client_open(o->redis_uri, &client, &s->client, err);
    if (code == SHED_OK)
        code =
            shed_mysql_source_open(o->mysql_uri, query, NULL, &s->source, err);
    if (code == SHED_OK)
        code = shed_cache_open(s->client, "flashsale", s->source, NULL,
                               &s->cache, err);
    return code == SHED_OK ? open_lock(s, err) : code;
}

static void *open_shop(const struct way *way, const struct seller_options *o,
                       struct shed_error *err)
{
    struct shop *s = calloc(1, sizeof(*s));

    *err = (struct shed_error){SHED_ENOMEM, "out of memory"};
    if (s == NULL)
        return NULL;
    s->redis_uri = o->redis_uri;
    s->item = o->item;
    s->is_guarded = way == &way_snowshed;
    (void)snprintf(s->key, NAME_BYTES, "%llu", (unsigned long long)s->item);
    if (way == &way_none || open_locked(s, o, err) == SHED_OK)
        return s;
    close_shop(s);
    return NULL;
}

/* ----------------------------------------------------------------- threads */

static void leave(void *arg)
{
    struct thread *t = arg;

    if (t->redis != NULL)
        redisFree(t->redis);
    free(t);
}

static void *enter(void *process, struct statements *sql, char *why,
                   size_t size)
{
    struct thread *t = calloc(1, sizeof(*t));

    if (t == NULL)
        return NULL;
    *t = (struct thread){.shop = process, .db = sql};
    if (t->shop->lock == NULL)
        t->redis = demo_redis_open(t->shop->redis_uri, DEMO_REDIS_PATIENT_MS,
                                   why, size);
    if (t->redis != NULL || t->shop->lock != NULL)
        return t;
    leave(t);
    return NULL;
}

static enum statement_code read_stock(struct thread *t, int64_t *stock)
{
    uint64_t number = 0;
    enum statement_code code = statements_row(
        t->db, READ_STOCK, (MYSQL_BIND[]){statement_number(&t->shop->item)}, 1,
        &number);

    *stock = (int64_t)number;
    return code;
}

/* STATEMENT_DUPLICATE: the buyer already has one. */
static enum statement_code place_order(struct thread *t, uint64_t token)
{
    return statements_change(t->db, PLACE_ORDER,
                             (MYSQL_BIND[]){statement_number(&t->shop->item),
                                            statement_number(&t->buyer),
                                            statement_number(&token)});
}

/* ------------------------------------------------------- the unprotected sale
 */

/* Commit if all went well, otherwise roll back. */
static enum answer settle(struct thread *t, enum statement_code code)
{
    switch (statements_settle(t->db, code)) {
    case STATEMENT_OK:
        return SOLD;
    case STATEMENT_NONE:
        return SOLD_OUT;
    case STATEMENT_DUPLICATE:
        return HAS_ONE;
    case STATEMENT_AGAIN:
        return AGAIN;
    default:
        return FAILED;
    }
}

/* SELECT without FOR UPDATE: if reading locked the row, there would be no
 * mistake to show. */
static enum answer sell_rewriting(struct thread *t)
{
    int64_t stock = 0;
    uint64_t rest;
    enum statement_code code = statements_run(t->db, "START TRANSACTION");

    if (code == STATEMENT_OK)
        code = read_stock(t, &stock);
    if (code == STATEMENT_OK && stock <= 0)
        code = STATEMENT_NONE;
    rest = (uint64_t)(stock - 1);
    if (code == STATEMENT_OK)
        code =
            statements_change(t->db, WRITE_STOCK,
                              (MYSQL_BIND[]){statement_number(&rest),
                                             statement_number(&t->shop->item)});
    if (code == STATEMENT_OK)
        code = place_order(t, 0);
    return settle(t, code);
}

/* Run a command. Returns false on failure, with err; otherwise *number is the
 * reply, unchanged if that was not a number. */
static bool command(struct thread *t, int64_t *number, const char *format, ...)
{
    redisReply *reply;
    va_list args;
    bool is_good;

    va_start(args, format);
    reply = redisvCommand(t->redis, format, args);
    va_end(args);
    is_good = reply != NULL && reply->type != REDIS_REPLY_ERROR;
    if (!is_good) {
        t->err.code = SHED_EREDIS;
        (void)snprintf(t->err.reason, sizeof(t->err.reason), "Redis: %.150s",
                       reply != NULL ? reply->str : t->redis->errstr);
    } else if (reply->type == REDIS_REPLY_STRING) {
        *number = strtoll(reply->str, NULL, 10);
    }
    if (reply != NULL)
        freeReplyObject(reply);
    return is_good;
}

/* For a format. */
static unsigned long long item_of(const struct thread *t)
{
    return t->shop->item;
}

/* Look up the stock in the cache, which is filled from the database. */
static bool look_up(struct thread *t, int64_t *stock)
{
    *stock = INT64_MAX;
    if (!command(t, stock, "GET " PLAIN_KEY, item_of(t)))
        return false;
    if (*stock != INT64_MAX)
        return true;
    seller_say(t->request, "loads 1");
    return read_stock(t, stock) == STATEMENT_OK &&
           command(t, NULL, "SET " PLAIN_KEY " %lld EX %d", item_of(t),
                   (long long)*stock, PLAIN_TTL_S);
}

static enum answer attempt_plainly(struct thread *t, bool is_retry)
{
    int64_t stock = 0;
    enum answer answer;

    if (!is_retry && !look_up(t, &stock))
        return FAILED;
    if (!is_retry && stock <= 0)
        return TURNED_AWAY;
    seller_say(t->request, "in");
    answer = sell_rewriting(t);
    seller_say(t->request, "out");
    if (answer != FAILED && !command(t, NULL, "DEL " PLAIN_KEY, item_of(t)))
        return FAILED;
    return answer;
}

/* ---------------------------------------------------------- under the lock */

/* A cache that fails must not stop the sale: then the database decides. */
static bool is_sold_out(struct shop *s)
{
    struct shed_value *value = NULL;
    bool is_none;

    if (shed_get(s->cache, shed_str(s->key), NULL, &value, NULL) != SHED_OK)
        return false;
    /* a number as text; "0" is never written "00" */
    is_none = value->kind == SHED_KIND_ROW && value->size > 0 &&
              *(const char *)value->data <= '0';
    shed_value_unref(value);
    return is_none;
}

/* This process's loads since the last call. Threads may come in any order: the
 * differences add up, because unsigned numbers wrap around. */
static void tell_loads(struct thread *t)
{
    struct shop *s = t->shop;
    struct shed_stats stats;
    uint64_t loads;

    if (shed_stats_read(s->cache, &stats, sizeof(stats), NULL) != SHED_OK)
        return;
    loads = stats.loads - atomic_exchange(&s->loads, stats.loads);
    if (loads != 0)
        seller_say(t->request, "loads %lld", (long long)loads);
}

/* A buyer whom the guard refuses tries again. */
static enum statement_code ask_guard(struct thread *t,
                                     const struct shed_fence *fence)
{
    enum statement_code code = statements_pass_guard(
        t->db, t->shop->lock_name, fence, &t->newest, &t->err);

    if (code != STATEMENT_FAILED || t->err.code != SHED_ELOST)
        return code;
    seller_say(t->request, "refused");
    return STATEMENT_AGAIN;
}

static enum answer sell_guarded(struct thread *t)
{
    int64_t stock = 0;
    struct shed_fence fence;
    enum statement_code code;

    if (shed_lock_fence(t->shop->lock, &fence, &t->err) != SHED_OK)
        return AGAIN; /* lost already */
    code = statements_run(t->db, "START TRANSACTION");
    if (code == STATEMENT_OK)
        code = ask_guard(t, &fence);
    if (code == STATEMENT_OK)
        code = place_order(t, fence.number);
    if (code == STATEMENT_OK)
        code = read_stock(t, &stock);
    if (code == STATEMENT_OK && stock <= 0)
        code = STATEMENT_NONE;
    if (code == STATEMENT_OK)
        code =
            statements_change(t->db, TAKE_PIECE,
                              (MYSQL_BIND[]){statement_number(&t->shop->item)});
    return settle(t, code);
}

/* Release, and tell the result. If Redis has lost its data, the guard's table
 * can be ahead of it; then make the numbers continue above the guard's. */
static bool release(struct thread *t)
{
    struct shed_lock *lock = t->shop->lock;
    uint64_t newest = t->newest;
    enum shed_code code = shed_lock_release(lock, &t->err);

    t->newest = 0;
    if (code == SHED_ELOST)
        seller_say(t->request, "lost");
    else if (code != SHED_OK)
        return false;
    return newest == 0 || shed_lock_advance(lock, newest, &t->err) == SHED_OK;
}

/* Whatever the database's answer, the buyer invalidates the cache's entry,
 * because a process that was killed after its COMMIT has not done so. */
static enum answer sell_alone(struct thread *t)
{
    struct shop *s = t->shop;
    enum answer answer;

    seller_say(t->request, "in");
    answer = s->is_guarded ? sell_guarded(t) : sell_rewriting(t);
    seller_say(t->request, "out");
    if (answer < ANSWERS &&
        shed_invalidate(s->cache, shed_str(s->key), ANSWER_TIMEOUT_MS, &t->err))
        return FAILED;
    return answer;
}

static enum answer attempt_locked(struct thread *t, bool is_retry)
{
    enum shed_code code;
    enum answer answer;

    if (!is_retry && is_sold_out(t->shop))
        return TURNED_AWAY;
    code = shed_lock_acquire(t->shop->lock, WAIT_MS, &t->err);
    if (code != SHED_OK)
        return code == SHED_ETIMEDOUT ? AGAIN : FAILED;
    answer = sell_alone(t);
    return release(t) ? answer : FAILED;
}

/* ------------------------------------------------------------------ a buyer */

/* With as many attempts as necessary. is_retry: a process died in an earlier
 * one, so the buyer may already have an order. */
static bool serve(void *thread, const char *line, char *why, size_t size)
{
    struct thread *t = thread;
    uint64_t deadline_us = demo_now_us() + PATIENCE_US;
    enum answer answer = FAILED;
    int is_retry = 0;

    if (sscanf(line, "%llu %" SCNu64 " %d", &t->request, &t->buyer,
               &is_retry) != 3)
        return false;
    do {
        t->err = (struct shed_error){0};
        answer = t->shop->lock != NULL ? attempt_locked(t, is_retry != 0)
                                       : attempt_plainly(t, is_retry != 0);
    } while (answer == AGAIN && demo_now_us() < deadline_us);
    if (t->shop->lock != NULL)
        tell_loads(t);
    if (answer < ANSWERS) {
        seller_say(t->request, "told %s", answers[answer]);
        return true;
    }
    (void)snprintf(why, size, "%s",
                   answer == AGAIN ? "a buyer waits for an answer for too long"
                   : t->err.code != SHED_OK ? t->err.reason
                                            : statements_why(t->db));
    return false;
}

#define FILES "sql/flashsale.sql and sql/fence.sql"

const struct way way_none = {"none",     statements, FILES, open_shop,
                             close_shop, enter,      leave, serve};
const struct way way_expire = {"expire",   statements, FILES, open_shop,
                               close_shop, enter,      leave, serve};
const struct way way_snowshed = {"snowshed", statements, FILES, open_shop,
                                 close_shop, enter,      leave, serve};
