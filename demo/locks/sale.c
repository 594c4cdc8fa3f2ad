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

/* What a process with locks has. */
struct shop {
    bool is_guarded;
    struct shed_source *source;
    struct shed_cache *cache;
    struct shed_lock *lock;     /* one for all threads */
    char lock_name[NAME_BYTES]; /* and the guard's resource */
    char key[NAME_BYTES];       /* of the stock in the cache */
    _Atomic uint64_t loads;     /* those already told */
};

/* A purchase. */
struct purchase {
    struct counter *at;
    struct shop *shop; /* NULL without a lock */
    unsigned long long request;
    uint64_t buyer;
    uint64_t newest; /* the number that the guard knows, if it refused ours */
};

/* ------------------------------------------------------ a process with locks
 */

static void close_shop(void *arg)
{
    struct shop *s = arg;

    if (s == NULL)
        return;
    shed_lock_close(s->lock);
    shed_cache_close(s->cache);
    shed_source_close(s->source);
    free(s);
}

static enum shed_code open_lock(const struct seller *seller, struct shop *s,
                                struct shed_error *err)
{
    struct shed_lock_options options = SHED_LOCK_OPTIONS_INIT;

    if (!s->is_guarded) {
        options.algorithm = SHED_LOCK_EXPIRE;
        options.lease_ms = EXPIRE_LEASE_MS;
    }
    (void)snprintf(s->lock_name, NAME_BYTES, "flashsale%s:%llu",
                   s->is_guarded ? "" : "-setnx",
                   (unsigned long long)seller->item);
    return shed_lock_open(seller->client, shed_str(s->lock_name), &options,
                          &s->lock, err);
}

static enum shed_code open_shop(struct seller *seller, struct shed_error *err)
{
    static const char query[] =
        "SELECT id, stock FROM flashsale_item WHERE id IN (?)";
    struct shop *s = seller->shop = calloc(1, sizeof(*s));
    enum shed_code code;

    *err = (struct shed_error){SHED_ENOMEM, "out of memory"};
    if (s == NULL)
        return SHED_ENOMEM;
    s->is_guarded = seller->way == &way_snowshed;
    (void)snprintf(s->key, NAME_BYTES, "%llu",
                   (unsigned long long)seller->item);
    code =
        shed_mysql_source_open(seller->mysql_uri, query, NULL, &s->source, err);
    if (code == SHED_OK)
        code = shed_cache_open(seller->client, "flashsale", s->source, NULL,
                               &s->cache, err);
    return code == SHED_OK ? open_lock(seller, s, err) : code;
}

/* ---------------------------------------------------------------- statements
 */

static enum statement_code read_stock(struct purchase *p, int64_t *stock)
{
    uint64_t number = 0;
    enum statement_code code = statements_select(
        p->at->db, READ_STOCK, &p->at->seller->item, NULL, &number, 1, 1);

    *stock = (int64_t)number;
    return code;
}

/* STATEMENT_DUPLICATE: the buyer already has one. */
static enum statement_code place_order(struct purchase *p, uint64_t token)
{
    return statements_change(p->at->db, PLACE_ORDER,
                             (uint64_t[]){p->at->seller->item, p->buyer, token},
                             NULL);
}

/* ------------------------------------------------------- the unprotected sale
 */

/* Commit if all went well, otherwise roll back. */
static enum answer settle(struct purchase *p, enum statement_code code)
{
    switch (statements_settle(p->at->db, code)) {
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
static enum answer sell_rewriting(struct purchase *p)
{
    int64_t stock = 0;
    enum statement_code code = statements_run(p->at->db, "START TRANSACTION");

    if (code == STATEMENT_OK)
        code = read_stock(p, &stock);
    if (code == STATEMENT_OK && stock <= 0)
        code = STATEMENT_NONE;
    if (code == STATEMENT_OK)
        code = statements_change(
            p->at->db, WRITE_STOCK,
            (uint64_t[]){(uint64_t)(stock - 1), p->at->seller->item}, NULL);
    if (code == STATEMENT_OK)
        code = place_order(p, 0);
    return settle(p, code);
}

/* Run a command. Returns false on failure, with err; otherwise *number is the
 * reply, unchanged if that was not a number. */
static bool command(struct purchase *p, int64_t *number, const char *format,
                    ...)
{
    redisReply *reply;
    va_list args;
    bool is_good;

    va_start(args, format);
    reply = redisvCommand(p->at->redis, format, args);
    va_end(args);
    is_good = reply != NULL && reply->type != REDIS_REPLY_ERROR;
    if (!is_good) {
        p->at->err.code = SHED_EREDIS;
        (void)snprintf(p->at->err.reason, sizeof(p->at->err.reason),
                       "Redis: %.150s",
                       reply != NULL ? reply->str : p->at->redis->errstr);
    } else if (reply->type == REDIS_REPLY_STRING) {
        *number = strtoll(reply->str, NULL, 10);
    }
    if (reply != NULL)
        freeReplyObject(reply);
    return is_good;
}

/* For a format. */
static unsigned long long item_of(const struct purchase *p)
{
    return p->at->seller->item;
}

/* Look up the stock in the cache, which is filled from the database. */
static bool look_up(struct purchase *p, int64_t *stock)
{
    *stock = INT64_MAX;
    if (!command(p, stock, "GET " PLAIN_KEY, item_of(p)))
        return false;
    if (*stock != INT64_MAX)
        return true;
    seller_say(p->request, "loads 1");
    return read_stock(p, stock) == STATEMENT_OK &&
           command(p, NULL, "SET " PLAIN_KEY " %lld EX %d", item_of(p),
                   (long long)*stock, PLAIN_TTL_S);
}

static enum answer attempt_plainly(struct purchase *p, bool is_retry)
{
    int64_t stock = 0;
    enum answer answer;

    if (!is_retry && !look_up(p, &stock))
        return FAILED;
    if (!is_retry && stock <= 0)
        return TURNED_AWAY;
    seller_say(p->request, "in");
    answer = sell_rewriting(p);
    seller_say(p->request, "out");
    if (answer != FAILED && !command(p, NULL, "DEL " PLAIN_KEY, item_of(p)))
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
static void tell_loads(struct purchase *p)
{
    struct shop *s = p->shop;
    struct shed_stats stats;
    uint64_t loads;

    if (shed_stats_read(s->cache, &stats, sizeof(stats), NULL) != SHED_OK)
        return;
    loads = stats.loads - atomic_exchange(&s->loads, stats.loads);
    if (loads != 0)
        seller_say(p->request, "loads %lld", (long long)loads);
}

/* A buyer whom the guard refuses tries again. */
static enum statement_code ask_guard(struct purchase *p,
                                     const struct shed_fence *fence)
{
    enum statement_code code = statements_pass_guard(
        p->at->db, p->shop->lock_name, fence, &p->newest, &p->at->err);

    if (code != STATEMENT_FAILED || p->at->err.code != SHED_ELOST)
        return code;
    seller_say(p->request, "refused");
    return STATEMENT_AGAIN;
}

static enum answer sell_guarded(struct purchase *p)
{
    int64_t stock = 0;
    struct shed_fence fence;
    enum statement_code code;

    if (shed_lock_fence(p->shop->lock, &fence, &p->at->err) != SHED_OK)
        return AGAIN; /* lost already */
    code = statements_run(p->at->db, "START TRANSACTION");
    if (code == STATEMENT_OK)
        code = ask_guard(p, &fence);
    if (code == STATEMENT_OK)
        code = place_order(p, fence.number);
    if (code == STATEMENT_OK)
        code = read_stock(p, &stock);
    if (code == STATEMENT_OK && stock <= 0)
        code = STATEMENT_NONE;
    if (code == STATEMENT_OK)
        code = statements_change(p->at->db, TAKE_PIECE, &p->at->seller->item,
                                 NULL);
    return settle(p, code);
}

/* Release, and tell the result. If Redis has lost its data, the guard's table
 * can be ahead of it; then make the numbers continue above the guard's. */
static bool release(struct purchase *p)
{
    struct shed_lock *lock = p->shop->lock;
    uint64_t newest = p->newest;
    enum shed_code code = shed_lock_release(lock, &p->at->err);

    p->newest = 0;
    if (code == SHED_ELOST)
        seller_say(p->request, "lost");
    else if (code != SHED_OK)
        return false;
    return newest == 0 ||
           shed_lock_advance(lock, newest, &p->at->err) == SHED_OK;
}

/* Whatever the database's answer, the buyer invalidates the cache's entry,
 * because a process that was killed after its COMMIT has not done so. */
static enum answer sell_alone(struct purchase *p)
{
    struct shop *s = p->shop;
    enum answer answer;

    seller_say(p->request, "in");
    answer = s->is_guarded ? sell_guarded(p) : sell_rewriting(p);
    seller_say(p->request, "out");
    if (answer < ANSWERS && shed_invalidate(s->cache, shed_str(s->key),
                                            ANSWER_TIMEOUT_MS, &p->at->err))
        return FAILED;
    return answer;
}

static enum answer attempt_locked(struct purchase *p, bool is_retry)
{
    enum shed_code code;
    enum answer answer;

    if (!is_retry && is_sold_out(p->shop))
        return TURNED_AWAY;
    code = shed_lock_acquire(p->shop->lock, WAIT_MS, &p->at->err);
    if (code != SHED_OK)
        return code == SHED_ETIMEDOUT ? AGAIN : FAILED;
    answer = sell_alone(p);
    return release(p) ? answer : FAILED;
}

/* ------------------------------------------------------------------ a buyer */

/* With as many attempts as necessary. is_retry: a process died in an earlier
 * one, so the buyer may already have an order. */
static bool serve(struct counter *counter, const char *line)
{
    struct purchase purchase = {.at = counter, .shop = counter->seller->shop};
    struct purchase *p = &purchase;
    uint64_t deadline_us = demo_now_us() + PATIENCE_US;
    enum answer answer = FAILED;
    int is_retry = 0;

    if (sscanf(line, "%llu %" SCNu64 " %d", &p->request, &p->buyer,
               &is_retry) != 3)
        return false;
    do {
        counter->err = (struct shed_error){SHED_OK, ""};
        answer = p->shop != NULL ? attempt_locked(p, is_retry != 0)
                                 : attempt_plainly(p, is_retry != 0);
    } while (answer == AGAIN && demo_now_us() < deadline_us);
    if (p->shop != NULL)
        tell_loads(p);
    if (answer < ANSWERS)
        seller_say(p->request, "told %s", answers[answer]);
    else if (answer == AGAIN)
        counter->err = (struct shed_error){
            SHED_ETIMEDOUT, "a buyer waits for an answer for too long"};
    return answer < ANSWERS;
}

#define FILES "sql/flashsale.sql and sql/fence.sql"

const struct way way_none = {"none", statements, FILES, false,
                             serve,  NULL,       NULL};
const struct way way_expire = {"expire", statements, FILES,     true,
                               serve,    open_shop,  close_shop};
const struct way way_snowshed = {"snowshed", statements, FILES,     true,
                                 serve,      open_shop,  close_shop};
