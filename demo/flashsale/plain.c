/*
 * The flash sale without protection, as in a first attempt: the stock is looked
 * up in Redis, read from the database, and written back reduced by one, in one
 * transaction. Two buyers that read the same number both get the same piece.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/redis.h"
#include "strategies.h"

#define TTL_S 300

struct thread {
    struct sale *sale;
    redisContext *redis;
    struct statements *db;
    struct worker *worker;
};

/* SELECT without FOR UPDATE: if reading locked the row, there would be no
 * mistake to show. */
enum answer sell_rewriting(struct statements *db, uint64_t item, uint64_t buyer)
{
    int64_t stock = 0;
    enum statement_code code = orders_begin(db);

    if (code == STATEMENT_OK)
        code = orders_read_stock(db, item, &stock);
    if (code == STATEMENT_OK && stock <= 0)
        code = STATEMENT_NONE;
    if (code == STATEMENT_OK)
        code = orders_write_stock(db, item, stock - 1);
    if (code == STATEMENT_OK)
        code = orders_place_order(db, item, buyer, 0);
    return orders_settle(db, code);
}

static void leave_plain(void *arg)
{
    struct thread *t = arg;

    if (t->worker != NULL)
        sale_leave(t->worker);
    statements_close(t->db);
    if (t->redis != NULL)
        redisFree(t->redis);
    free(t);
    mysql_thread_end();
}

static void *enter_plain(void *process, char *why, size_t size)
{
    const struct settings *settings = process;
    struct thread *t = calloc(1, sizeof(*t));

    if (t == NULL)
        return NULL;
    t->sale = sale_of(settings->record);
    t->redis = demo_redis_open(settings->redis_uri, why, size);
    t->db = t->redis != NULL ? orders_open(why, size) : NULL;
    t->worker = t->db != NULL ? sale_enter(t->sale) : NULL;
    if (t->worker != NULL)
        return t;
    leave_plain(t);
    return NULL;
}

/* Run a command. Returns false on failure, with the reason in why; otherwise
 * *number is the reply, unchanged if that was not a number. */
static bool command(struct thread *t, char *why, size_t size, int64_t *number,
                    const char *format, ...)
{
    redisReply *reply;
    va_list args;
    bool is_good;

    va_start(args, format);
    reply = redisvCommand(t->redis, format, args);
    va_end(args);
    is_good = reply != NULL && reply->type != REDIS_REPLY_ERROR;
    if (!is_good)
        (void)snprintf(why, size, "Redis: %s",
                       reply != NULL ? reply->str : t->redis->errstr);
    else if (reply->type == REDIS_REPLY_STRING)
        *number = strtoll(reply->str, NULL, 10);
    if (reply != NULL)
        freeReplyObject(reply);
    return is_good;
}

/* Look up the stock in the cache, which is filled from the database. */
static bool look_up(struct thread *t, int64_t *stock, char *why, size_t size)
{
    unsigned long long item = t->sale->plan.item;

    *stock = INT64_MAX;
    if (!command(t, why, size, stock, "GET " SALE_PLAIN_KEY, item))
        return false;
    if (*stock != INT64_MAX)
        return true;
    atomic_fetch_add(&t->sale->loads, 1);
    if (orders_read_stock(t->db, item, stock) != STATEMENT_OK) {
        (void)snprintf(why, size, "%s", statements_why(t->db));
        return false;
    }
    return command(t, why, size, NULL, "SET " SALE_PLAIN_KEY " %lld EX %d",
                   item, (long long)*stock, TTL_S);
}

static enum answer attempt(void *thread, uint64_t buyer, bool is_retry,
                           char *why, size_t size)
{
    struct thread *t = thread;
    unsigned long long item = t->sale->plan.item;
    int64_t stock = 0;
    enum answer answer;

    if (!is_retry && !look_up(t, &stock, why, size))
        return ANSWER_FAILED;
    if (!is_retry && stock <= 0)
        return ANSWER_TURNED_AWAY;
    sale_begin_alone(t->sale, t->worker);
    answer = sell_rewriting(t->db, item, buyer);
    sale_end_alone(t->worker);
    if (answer == ANSWER_FAILED)
        (void)snprintf(why, size, "%s", statements_why(t->db));
    else if (!command(t, why, size, NULL, "DEL " SALE_PLAIN_KEY, item))
        return ANSWER_FAILED;
    return answer;
}

static bool get_plain(void *thread, const uint64_t *ids, size_t count,
                      struct got *got, char *why, size_t size)
{
    struct thread *t = thread;

    (void)count; /* one */
    (void)got;
    return sale_serve(t->sale, ids[0], attempt, t, why, size);
}

const struct strategy flashsale_none = {.name = "none",
                                        .enter = enter_plain,
                                        .leave = leave_plain,
                                        .get = get_plain};
